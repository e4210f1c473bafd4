import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LONG_FOR_A_REASON = {"collector/record.py"}  # one contract, one file
PUBLIC_HOSTS = {
    "arxiv.org",
    "doi.org",
    "download.pytorch.org",
    "git-lfs.github.com",
    "github.com",
    "img.shields.io",
    "json-schema.org",
    "jsonlines.org",
    "keepachangelog.com",
    "shields.io",
    "www.rfc-editor.org",
    "www.w3.org",
}

RESERVED = ("example", "example.com", "example.org", "invalid")  # nobody's, by RFC 2606


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> dict[str, str]:
    made = {}
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content and path.suffix != ".z":
            made[path.relative_to(ROOT).as_posix()] = content.decode()
    return made


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_site_folder_is_no_package_and_is_not_ignored() -> None:
    assert not (ROOT / "site" / "__init__.py").exists()
    ignored = ["git", "check-ignore", "--no-index", "site/x", "site/docs/x.md", "data/runs/x.jsonl"]
    assert subprocess.run(ignored, cwd=ROOT, capture_output=True).returncode == 1


def test_the_standard_site_module_is_the_one_of_python() -> None:
    done = python("import site; print(site.getsitepackages()[0])", "-X", "frozen_modules=off")
    assert done.returncode == 0, done.stderr


FIRST_RUNS = ("-85eb50d6-73747a4e.jsonl", "-9258b91c-418ad648.jsonl")


def test_no_file_names_this_machine() -> None:
    places = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/|/tmp/v/")
    found = {name: places.search(text) for name, text in texts().items()}
    found.pop("tests/test_project.py", None)
    # Records stay as they came; since these two the collector leaves folders out of its command.
    found = {name: hit for name, hit in found.items() if not name.endswith(FIRST_RUNS)}
    assert {name: hit.group() for name, hit in found.items() if hit} == {}


def test_only_public_hosts_are_named() -> None:
    address = re.compile(r"https?://([a-z0-9-]+(?:\.[a-z0-9-]+)+)")
    named = {
        (host, name)
        for name, text in texts().items()
        if not name.startswith("data/runs/")
        for host in address.findall(text)
        if host not in PUBLIC_HOSTS and not host.startswith("127.") and not host.endswith(RESERVED)
    }
    assert named == set()


@pytest.mark.parametrize(
    "path",
    [p for p in tracked() if p.suffix == ".py"],
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_files_stay_short(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    exempt = name in LONG_FOR_A_REASON or name.startswith(("kernels/ops/", "tests/"))
    assert exempt or len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_the_site_is_imported_without_torch_and_kernels() -> None:
    modules = sorted(path.stem for path in (ROOT / "site" / "dashboard").glob("[a-z]*.py"))
    names = ", ".join(f"dashboard.{module}" for module in modules)
    assert "dashboard.build" in names
    blocked = "torch=None, triton=None, kernels=None"
    done = python(
        f"import sys; sys.path.insert(0, 'site'); sys.modules.update({blocked})\nimport {names}"
    )
    assert done.returncode == 0, done.stderr


def test_records_are_read_without_torch() -> None:
    done = python(
        "import sys, collector.store, collector.verdict, collector.schema; print(*sys.modules)"
    )
    assert done.returncode == 0, done.stderr
    assert not {"torch", "triton"} & set(done.stdout.split())


def test_an_op_described_needs_no_torch() -> None:
    done = python("import sys, kernels.spec, kernels.registry; print(*sys.modules)")
    assert not {"torch", "triton"} & set(done.stdout.split())


def test_a_library_that_wants_the_other_kernels_package_sees_a_missing_feature() -> None:
    # Hugging Face's package of the same import name: libraries look for its distribution or names.
    code = (
        "import importlib.metadata as m\n"
        "try:\n  from kernels import get_kernel\n"
        "except ImportError:\n  print('absent')\n"
        "print('kernels' in m.packages_distributions())"
    )
    done = python(code)
    assert done.stdout.split() == ["absent", "False"], done.stderr


def test_packages_are_listed_as_they_are() -> None:
    found = {
        path.parent.relative_to(ROOT).as_posix().removeprefix("site/").replace("/", ".")
        for path in tracked()
        if path.name == "__init__.py" and "tests" not in path.relative_to(ROOT).parts
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == found


def requirements(name: str) -> dict[str, str]:
    rows = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([a-z0-9.-]+)==([^ ;]+).*", row) for row in rows if row[:1] not in "#"]
    return {pin[1]: pin[2] for pin in pins if pin}


def test_the_locks_agree_and_hold_every_direct_dependency() -> None:
    site, full = requirements("site.txt"), requirements("full.txt")
    assert site and site.items() <= full.items()
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    name = re.compile(r"[a-z0-9-]+")
    direct = {name.match(row)[0] for row in project["dependencies"]}
    assert direct <= site.keys()
    wanted = {name.match(row)[0] for row in [*extras["dev"], *extras["gpu"]]}
    assert wanted - {"torch", "triton"} <= full.keys()
    assert not {"torch", "triton"} & full.keys()
    assert requirements("torch.txt") == {"torch": "2.13.0"}


def test_actions_are_pinned_by_commit() -> None:
    workflows = [path for path in tracked() if path.parent.name == "workflows"]
    uses = [line for path in workflows for line in re.findall(r"uses: (.*)", path.read_text())]
    assert len(uses) >= 6
    assert [u for u in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", u)] == []
