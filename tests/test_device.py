from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from collector import device
from collector.device import DeviceError, Nvml, Watcher, probe_source, slugify
from kernels.registry import load_ops


class NVMLError(Exception):
    pass


def refuse(*_):
    raise NVMLError


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
        ("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz", "intel-xeon-platinum-8488c"),
        ("AMD EPYC 9R14 96-Core Processor", "amd-epyc-9r14-96-core"),
        ("???", "unknown"),
    ],
)
def test_a_device_name_becomes_a_slug(name, slug):
    assert slugify(name) == slug


def test_every_reading_is_missing_where_nvml_refuses_it():
    nvml = Nvml(object(), SimpleNamespace(NVMLError=NVMLError, nvmlDeviceGetMigMode=refuse))
    assert nvml.mig() is None
    assert nvml.read("nvmlDeviceGetNothing") is None
    assert nvml.milli("nvmlDeviceGetMigMode") is None


def test_a_watcher_summarises_looks_and_starts_afresh():
    readings = iter([1500, 2600, 300_000, 60, 0x4, 1700, 2600, 500_000, 62, 0x1])
    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetClockInfo=lambda *_: next(readings),
        nvmlDeviceGetPowerUsage=lambda *_: next(readings),
        nvmlDeviceGetTemperature=lambda *_: next(readings),
        nvmlDeviceGetCurrentClocksEventReasons=lambda *_: next(readings),
    )
    watcher = Watcher(Nvml(object(), fake))
    watcher.sample()
    watcher.sample()
    seen = watcher.summary()
    assert (seen.sm_clock_mhz, seen.power_w, seen.temperature_c) == (1600, 400, 62)
    assert seen.event_reasons == 0x5
    assert watcher.summary() is None


def test_a_throttled_card_still_gives_finite_telemetry():
    fake = SimpleNamespace(NVMLError=NVMLError, nvmlDeviceGetClockInfo=lambda *_: 1188)
    watcher = Watcher(Nvml(object(), fake))
    watcher.sample()
    assert watcher.summary().sm_clock_mhz == 1188


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError("The NVIDIA driver on your system is too old\nmore"),
            "driver on your system",
        ),
        (AssertionError("Torch not compiled with CUDA"), "Torch not compiled"),
        (None, "no CUDA device is visible"),
    ],
)
def test_the_reason_why_cuda_does_not_start_is_told_in_one_line(error, told, monkeypatch):
    import torch

    def init():
        if error:
            raise error

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    assert told in device.why_no_gpu()
    assert "\n" not in device.why_no_gpu()


def test_a_cpu_build_of_torch_is_told_as_such(monkeypatch):
    import torch

    monkeypatch.setattr(torch.version, "cuda", None)
    assert "CPU build" in device.why_no_gpu()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "ROOT", tmp_path)
    monkeypatch.delenv("ALMANAC_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for key in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{key}_NAME", "Ada")
        monkeypatch.setenv(f"{key}_EMAIL", "ada@example.org")
    return tmp_path


def commit(folder, subject):
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-qm", subject, "--allow-empty"]):
        subprocess.run(["git", "-C", str(folder), *args], check=True)


def test_a_commit_is_read_with_its_parents_and_subject(repository):
    commit(repository, "First")
    commit(repository, "Second: faster | <b>")
    source = probe_source(None)
    assert source.subject == "Second: faster | <b>"
    assert len(source.parents) == 1
    assert source.dirty is False


def test_a_changed_file_makes_the_tree_dirty_but_new_data_does_not(repository):
    commit(repository, "First")
    (repository / "data").mkdir()
    (repository / "data" / "new.jsonl").write_text("{}\n")
    assert probe_source(None).dirty is False
    (repository / "kernel.py").write_text("changed\n")
    assert probe_source(None).dirty is True


def test_without_a_repository_the_commit_is_unknown(repository):
    assert probe_source(None).commit is None


def test_without_git_the_commit_is_unknown(repository, monkeypatch):
    commit(repository, "First")
    monkeypatch.setenv("PATH", "")
    assert probe_source(None).commit is None


def test_a_given_commit_wins_over_the_one_checked_out(repository, monkeypatch):
    commit(repository, "First")
    monkeypatch.setenv("ALMANAC_COMMIT", "a" * 40)
    assert probe_source(None).commit == "a" * 40
    assert probe_source("b" * 40).commit == "b" * 40


def test_a_short_commit_that_git_does_not_know_is_refused(repository):
    with pytest.raises(DeviceError, match="40 hex digits"):
        probe_source("abc123")


def test_version_of_every_package_that_an_implementation_needs_is_recorded():
    needed = {name for op in load_ops().values() for i in op.implementations for name in i.packages}
    # A distribution is called as what is imported, or that with an ending.
    asked = {name for name in needed for package in device.PACKAGES
             if package.replace("-", "_").startswith(name)}  # fmt: skip
    assert asked == needed >= {"liger_kernel", "flashinfer", "gemlite"}


def test_the_assembler_that_an_environment_names_is_asked_for_its_version(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tool))
    assert device.ptxas_version() == "13.0.88"


def test_an_assembler_that_does_not_start_has_no_version(monkeypatch):
    pytest.importorskip("triton")

    def refuse(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(device.subprocess, "run", refuse)
    assert device.ptxas_version() is None
