import hashlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from collector import code_record
from collector import record as r
from collector.reading import Problem, read_lines

FROZEN = Path(__file__).parent / "history" / "record.v1.jsonl"
RUN, SENTINEL, PASSED, HOT, OOM, END = FROZEN.read_text(encoding="utf-8").splitlines()

# Seven significant digits survive writing; samples are whole nanoseconds.
times_ns = st.integers(1, 9_999_999).map(lambda n: n / 128).map(lambda t: float(f"{t:.7g}"))
counts = st.integers(0, 2**63)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def latencies(draw: st.DrawFn) -> r.Latency:
    row = sorted(draw(st.lists(times_ns, min_size=7, max_size=7)))
    samples = draw(st.lists(st.integers(1, 2**40), min_size=1, max_size=50))
    names = ("min_ns", "q01_ns", "q25_ns", "median_ns", "q75_ns", "q99_ns", "max_ns")
    return r.Latency(
        **dict(zip(names, row, strict=True)),
        ci_low_ns=row[2],
        ci_high_ns=row[4],
        samples=len(samples),
        calls=draw(st.integers(1, 10**6)),
        sets=draw(st.integers(1, 100)),
        stopped=draw(st.sampled_from(["settled", "budget", "limit"])),
        encoded=r.encode_samples(samples),
    )


@st.composite
def measurements(draw: st.DrawFn) -> r.Measurement:
    passed = draw(st.booleans())
    sizes = draw(st.dictionaries(texts, counts, max_size=4))
    return r.Measurement(
        case=r.Case(
            op=draw(texts),
            implementation=draw(texts),
            mode=draw(st.sampled_from(["forward", "backward", "full"])),
            workload=r.WorkloadKey(sizes=sizes, dtype=draw(texts)),
            timer=draw(st.sampled_from(["graph", "call", "submit"])),
            cache=draw(st.sampled_from(["cold", "hot"])),
        ),
        workload_hash=r.identity(sizes),
        method_id=r.identity("method"),
        replicate=draw(counts),
        status="passed" if passed else draw(st.sampled_from(["oom", "timeout", "skipped"])),
        reason=None if passed else draw(texts),
        at_s=draw(times_ns),
        latency=draw(latencies()) if passed else None,
        flags=draw(st.lists(texts, max_size=3)),
    )


def changed(line: str, **changes: object) -> str:
    value = json.loads(line)
    for path, new in changes.items():
        *parents, last = path.split("__")
        holder = value
        for name in parents:
            holder = holder[name]
        holder[last] = new
    return json.dumps(value)


@given(measurements())
def test_a_measurement_survives_writing_and_reading(measurement: r.Measurement) -> None:
    line = r.dump(measurement)
    assert "\n" not in line and "\r" not in line
    assert r.parse(line) == measurement


@given(st.lists(st.integers(0, 2**53), min_size=1))
def test_samples_survive_packing(samples: list[int]) -> None:
    assert r.decode_samples(r.encode_samples(samples)) == samples


def test_damaged_samples_are_an_error() -> None:
    packed = r.encode_samples([100, 200, 300])
    for damaged in (packed[:-6], "!" + packed, packed.replace(packed[8], "A" * 3)):
        with pytest.raises(ValueError):
            r.decode_samples(damaged)


def test_version_1_reads_as_it_was_written() -> None:
    rows = [row for _, row in read_lines("v1", FROZEN.read_bytes())]
    assert not [row for row in rows if isinstance(row, Problem)]
    assert [row.kind for row in rows] == ["run", "sentinel", *["measurement"] * 3, "end"]
    # Not one character moves when a line is read and written again.
    assert [r.dump(row) for row in rows] == [RUN, SENTINEL, PASSED, HOT, OOM, END]


@pytest.mark.parametrize("time_ns", [0, -1, "NaN", "Infinity", None, "fast"])
def test_a_time_that_is_no_time_is_refused(time_ns: object) -> None:
    with pytest.raises(ValidationError, match=r"latency.median_ns"):
        r.parse(changed(PASSED, latency__median_ns=time_ns))


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        (PASSED, {"status": "oom", "reason": "out of memory"}),
        (PASSED, {"status": "skipped"}),
        (PASSED, {"latency": None}),
        (PASSED, {"reason": "passed has no reason"}),
        (OOM, {"status": "passed", "reason": None}),
        (OOM, {"reason": None}),
        (SENTINEL, {"status": "oom"}),
        (SENTINEL, {"latency": None}),
    ],
)
def test_a_time_is_given_exactly_when_a_case_passed(line: str, changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        r.parse(changed(line, **changes))


@pytest.mark.parametrize("line", [RUN, SENTINEL, PASSED, END])
def test_unknown_keys_are_refused(line: str) -> None:
    with pytest.raises(ValidationError, match="time_us"):
        r.parse(changed(line, time_us=1.1))


@pytest.mark.parametrize("field", ["q01_ns", "q25_ns", "max_ns", "ci_low_ns", "ci_high_ns"])
def test_quantiles_out_of_order_are_refused(field: str) -> None:
    wrong = 1e-3 if field in ("max_ns", "ci_high_ns") else 1e9
    with pytest.raises(ValidationError, match="out of order"):
        r.parse(changed(PASSED, **{f"latency__{field}": wrong}))


def test_close_times_stay_distinct() -> None:
    for time_ns in (20_490.0, 20_530.0):
        line = changed(
            HOT, latency__median_ns=time_ns, latency__max_ns=3e4, latency__ci_high_ns=3e4,
            latency__q75_ns=3e4, latency__q99_ns=3e4,
        )  # fmt: skip
        assert json.loads(r.dump(r.parse(line)))["latency"]["median_ns"] == time_ns


def test_not_a_number_is_never_written() -> None:
    run = r.parse(RUN)
    assert isinstance(run, r.Run)
    broken = run.model_copy(update={"methods": {"00c0ffee": {"rotation": math.nan}}})
    with pytest.raises(ValueError, match="not JSON compliant"):
        r.dump(broken)


def test_no_measured_number_has_a_default() -> None:
    names = {**vars(r), **vars(code_record)}
    models = [m for m in names.values() if isinstance(m, type) and issubclass(m, BaseModel)]
    defaults = {
        (model.__name__, name): field.default
        for model in models
        for name, field in model.model_fields.items()
        if name != "kind" and not field.is_required()
    }
    assert len(models) > 10 and defaults
    assert {key: value for key, value in defaults.items() if value is not None} == {}


def test_identity_is_the_same_on_every_machine() -> None:
    text = '["sinkhorn",{"batch":4,"n":4},"float32"]'
    expected = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert r.identity("sinkhorn", {"n": 4, "batch": 4}, "float32") == expected


def test_details_are_written_once_so_that_the_other_lines_are_short() -> None:
    assert len(HOT.encode()) < 800 < len(PASSED.encode())
