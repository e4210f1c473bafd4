"""Two commits to compare, and what is told of them: shared by the tests of the comparison."""

import json
from dataclasses import replace

import pytest
import synthetic

from collector.compare import Request, compare
from collector.compare_sides import CompareError

PACKED = (1, "sinkhorn", "triton-packed")
# One size of one op, graph and call: ten series.
SMALL = {"ops": ("sinkhorn",), "sweep": 1, "caches": ("cold",), "failures": False, "samples": 5,
         "noise": 5e-4}  # fmt: skip
EXACT = {"replicates": 2, "noise": 0.0, "samples": 3}


def plan(**changes):
    return synthetic.Plan(**(SMALL | {"commits": 2, "replicates": 6} | changes))


def told(data, candidate=None, baseline="previous", **changes):
    """Compare the second commit with the first, or what is named."""
    request = Request(str(candidate or plan().shas()[1]), str(baseline), data, data)
    return compare(replace(request, **changes))


def built(data, **changes):
    synthetic.build(data, plan(**changes))
    return told(data)


def file_of(folder, index, name="one", card=synthetic.H200, **changes):
    """Write a run of its own outside the data; `name` makes it another run of the same commit."""
    run, *rest = synthetic.run_records(plan(**changes), card, index)
    run_id = name.encode().hex().ljust(16, "0")
    return synthetic.write(folder / name, [run.model_copy(update={"run_id": run_id}), *rest])


def rewrite(path, change):
    values = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(value) + "\n" for value in values if value is not None))
    return path


def failed(status, implementation="triton-packed"):
    """Turn every time of an implementation into a failure."""

    def change(value):
        if value.get("case", {}).get("implementation") != implementation:
            return value
        kept = {name: part for name, part in value.items() if name != "latency"}
        return kept | {"status": status, "reason": "as planted"}

    return change


def in_run(part, **values):
    return lambda line: line | {part: line[part] | values} if line["kind"] == "run" else line


def verdicts(result):
    return {row.verdict for one in result.devices for row in one.rows}


def error_of(*arguments, **options):
    with pytest.raises(CompareError) as caught:
        told(*arguments, **options)
    return caught.value.code, str(caught.value)
