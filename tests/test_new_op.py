import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import measure_little

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def python(root: Path, *arguments: str, torch: bool = True) -> str:
    blocked = "" if torch else "sys.modules.update(torch=None, triton=None, kernels=None); "
    code = f"import sys, runpy; sys.path[:0] = ['.', 'site']; {blocked}"
    if arguments[0] == "-c":
        code += arguments[1]
    else:
        code += f"sys.argv[1:] = {list(arguments[1:])!r}; "
        code += f"runpy.run_module({arguments[0]!r}, run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def with_softmax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, which measures little, with the file that CONTRIBUTING shows."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("kernels", "collector", "site", "templates", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "pyproject.toml", "package.json"):
        shutil.copy(ROOT / name, root / name)
    measure_little(root)
    (example,) = FENCE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    (root / "kernels" / "ops" / "softmax.py").write_text(example, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def lines(with_softmax: Path, answered: list[str]) -> list[dict[str, Any]]:
    """Records of the smoke workloads, measured on the CPU and in the interpreter."""
    assert answered
    (path,) = (with_softmax / "data" / "runs").rglob("*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# In one process: most of the time of each goes into imports.
ANSWER = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import pytest
from collector.__main__ import main
from collector.plan import CollectOptions, plan
from kernels.registry import load_ops
jobs = plan(load_ops(), CollectOptions(ops=("softmax",)), "cuda")
print(len(jobs), *sorted({job.implementation for job in jobs}), flush=True)
sys.argv[1:] = "collect --op softmax --workload smoke --output data".split()
sys.argv += "--implementation torch --implementation triton".split()
with pytest.raises(SystemExit, match="^0$"):
    main()
chosen = ["-k", "softmax and not compiled", "-p", "no:cacheprovider"]
sys.exit(pytest.main(["tests/test_ops.py", "-q", *chosen]))
"""


@pytest.fixture(scope="module")
def answered(with_softmax: Path) -> list[str]:
    """Say what is planned on a GPU, collect, then run the common tests."""
    return python(with_softmax, "-c", ANSWER).splitlines()


def test_the_registry_and_the_plan_find_it(answered: list[str]) -> None:
    # Seven sizes, three implementations.
    assert answered[0].split() == ["21", "torch", "torch.compile", "triton"]


def test_the_common_tests_of_ops_pass_for_it(answered: list[str]) -> None:
    found = re.search(r"(\d+) passed", answered[-1])
    assert found and int(found[1]) >= 10 and "failed" not in answered[-1]


def test_the_collector_times_torch_and_checks_triton(lines: list[dict[str, Any]]) -> None:
    measured = [line for line in lines if line["kind"] == "measurement"]
    torch = [line for line in measured if line["case"]["implementation"] == "torch"]
    triton = [line for line in measured if line["case"]["implementation"] == "triton"]
    assert [line["status"] for line in torch] == ["passed"] * 2
    assert all(line["latency"]["median_ns"] > 0 for line in torch)
    assert [line["correctness"]["checked"] for line in triton] == ["interpreter"] * 2
    assert all(line["correctness"]["bound_ratio"] <= 1 for line in triton)
    assert all("latency" not in line for line in triton)


def test_the_site_has_its_page(with_softmax: Path, lines: list[dict[str, Any]]) -> None:
    assert lines[-1]["kind"] == "end"
    python(with_softmax, "dashboard", "--out", "pages", torch=False)
    kernels = with_softmax / "pages" / "docs" / "kernels"
    page = (kernels / "softmax.md").read_text(encoding="utf-8")
    assert "Softmax" in page and "Turns each row into probabilities." in page
    assert "softmax" in (kernels / "index.md").read_text(encoding="utf-8")


def test_only_one_file_was_added(with_softmax: Path, lines: list[dict[str, Any]]) -> None:
    assert lines
    made = {"data", "pages", "build", "node_modules", ".hypothesis", "__pycache__"}
    new = [
        path.relative_to(with_softmax).as_posix()
        for path in with_softmax.rglob("*")
        if path.is_file()
        and not made & set(path.relative_to(with_softmax).parts)
        and not (ROOT / path.relative_to(with_softmax)).exists()
    ]
    assert new == ["kernels/ops/softmax.py"]
