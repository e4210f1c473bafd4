"""What machine this is: device, driver, clocks, versions, commit. It reads, it never sets."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from collector.record import Device, Source, Telemetry

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "torch", "triton", "liger-kernel", "flashinfer-python", "gemlite", "nvidia-ml-py",
)  # fmt: skip


class DeviceError(RuntimeError):
    """The device cannot be measured; the message says why and what to do."""


def probe_device() -> Device:
    """Describe the CUDA device that torch would use, or the CPU when there is none."""
    import torch

    return cuda_device() if torch.cuda.is_available() else cpu_device()


def why_no_gpu() -> str:
    """Say in one line why CUDA is not used, with the remedy."""
    import torch

    if torch.version.cuda is None:
        return "torch is a CPU build; for a GPU install a CUDA build of torch"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"CUDA does not start: {str(error).splitlines()[0]}"
    return "no CUDA device is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES"


def slugify(name: str) -> str:
    """Turn a device name into `[a-z0-9-]+`."""
    words = re.sub(r"\(r\)|\(tm\)|processor|cpu|@.*$", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"


def cuda_device() -> Device:
    """Describe the current CUDA device."""
    import torch

    seen = torch.cuda.get_device_properties(torch.cuda.current_device())
    nvml = Nvml.current()
    return Device(
        slug=slugify(seen.name),
        kind="cuda",
        name=seen.name,
        compute_capability=f"{seen.major}.{seen.minor}",
        multiprocessors=seen.multi_processor_count,
        memory_bytes=seen.total_memory,
        l2_bytes=seen.L2_cache_size,
        driver=nvml.driver(),
        uuid_hash=hashlib.sha256(str(seen.uuid).encode()).hexdigest()[:12],
        power_limit_w=nvml.milli("nvmlDeviceGetEnforcedPowerLimit"),
        sm_clock_max_mhz=nvml.read("nvmlDeviceGetMaxClockInfo", 1),
        memory_clock_max_mhz=nvml.read("nvmlDeviceGetMaxClockInfo", 2),
        mig=nvml.mig(),
        other_processes=nvml.other_processes(),
    )


def cpu_device() -> Device:
    """Describe the CPU of this machine."""
    name = cpu_name()
    return Device(
        slug=f"cpu-{slugify(name)}",
        kind="cpu",
        name=name,
        multiprocessors=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        l2_bytes=last_level_cache_bytes(),
    )


def cpu_name() -> str:
    """Return the CPU's model name, or the machine type when the system hides it."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.processor() or platform.machine()


def last_level_cache_bytes() -> int:
    """Return the size of the last cache before memory; 32 MiB when the system hides it."""
    sizes = [
        int(path.read_text(encoding="utf-8").strip().removesuffix("K")) * 1024
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    return max(sizes, default=32 * 1024**2)


class Nvml:
    """Read a card through NVML; every reading is None where the driver refuses it."""

    def __init__(self, handle: Any, library: Any) -> None:
        """Keep the handle and the library; use `current`."""
        self._handle = handle
        self._nvml = library

    @classmethod
    def current(cls) -> Nvml:
        """Open the card that torch uses; without NVML all readings are None."""
        import torch

        try:
            import pynvml
        except ImportError:
            return cls(None, None)
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        try:
            pynvml.nvmlInit()
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            return cls(pynvml.nvmlDeviceGetHandleByUUID(name), pynvml)
        except pynvml.NVMLError:
            return cls(None, None)

    def _try(self, read: Callable[[], Any]) -> Any:
        """Return a reading, or None where it is refused."""
        if self._handle is None:
            return None
        try:
            return read()
        except (self._nvml.NVMLError, AttributeError):
            return None

    def read(self, function: str, *args: int) -> Any:
        """Call an NVML function on the card."""
        return self._try(lambda: getattr(self._nvml, function)(self._handle, *args))

    def milli(self, function: str) -> float | None:
        """Call an NVML function that answers in thousandths."""
        value = self.read(function)
        return None if value is None else value / 1000

    def driver(self) -> str | None:
        """Return the driver's version."""
        value = self._try(lambda: self._nvml.nvmlSystemGetDriverVersion())
        return value.decode() if isinstance(value, bytes) else value

    def mig(self) -> bool | None:
        """Tell whether the card is partitioned."""
        value = self.read("nvmlDeviceGetMigMode")
        return None if value is None else bool(value[0])

    def other_processes(self) -> int | None:
        """Count compute processes on the card other than this one."""
        seen = self.read("nvmlDeviceGetComputeRunningProcesses")
        return None if seen is None else len([p for p in seen if p.pid != os.getpid()])


class Watcher:
    """Look at the card while it works and summarise since the last summary."""

    def __init__(self, nvml: Nvml | None) -> None:
        """Watch the card, or nothing on a CPU."""
        self._nvml = nvml
        self._looks: list[tuple[Any, ...]] = []

    def sample(self) -> None:
        """Take one look."""
        if self._nvml is not None:
            self._looks.append(
                (
                    self._nvml.read("nvmlDeviceGetClockInfo", 1),
                    self._nvml.read("nvmlDeviceGetClockInfo", 2),
                    self._nvml.milli("nvmlDeviceGetPowerUsage"),
                    self._nvml.read("nvmlDeviceGetTemperature", 0),
                    self._nvml.read("nvmlDeviceGetCurrentClocksEventReasons"),
                )
            )

    def summary(self) -> Telemetry | None:
        """Summarise the looks since the last summary; None when there were none."""
        looks, self._looks = self._looks, []
        if not looks:
            return None
        sm, memory, power, temperature, reasons = (
            [value for value in column if value is not None] for column in zip(*looks, strict=True)
        )
        bits = 0
        for reason in reasons:
            bits |= reason
        return Telemetry(
            sm_clock_mhz=round(fmean(sm)) if sm else None,
            memory_clock_mhz=round(fmean(memory)) if memory else None,
            power_w=round(fmean(power), 1) if power else None,
            temperature_c=max(temperature) if temperature else None,
            event_reasons=bits if reasons else None,
        )


def versions() -> dict[str, str]:
    """Return the versions that can move a number."""
    import torch

    found = {"python": platform.python_version(), "os": f"{platform.system()} {platform.release()}"}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        if assembler := ptxas_version():
            found["ptxas"] = assembler
    return found | {"cpu": cpu_name()}


def ptxas_version() -> str | None:
    """Return the version of the assembler that Triton calls: an environment may name another."""
    try:
        import triton

        command = [triton.knobs.nvidia.ptxas.path, "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (ImportError, AttributeError, RuntimeError, OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"V(\d+[\d.]*)", said)
    return found[1] if found else None


def git(*args: str) -> str | None:
    """Ask git about this project's folder; None when there is no git or no commit."""
    if shutil.which("git") is None:
        return None
    # A checkout that another user made is still read, never written.
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def commit_named(name: str) -> str | None:
    """Return the hash of the commit that a name stands for; None where git knows none."""
    question = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return git(*question) or None


def probe_source(commit: str | None) -> Source:
    """Describe the measured source; a commit that is given wins over what git says."""
    commit = commit or os.environ.get("ALMANAC_COMMIT") or None
    sha = git("rev-parse", "--verify", f"{commit or 'HEAD'}^{{commit}}")
    if sha is None:
        if commit and not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise DeviceError(f"--commit {commit}: git does not know it; give all 40 hex digits")
        return Source(commit=commit, dirty=None, parents=[])
    lines = (git("show", "-s", "--format=%P%n%cI%n%s", sha) or "\n\n").split("\n", 2)
    return Source(
        commit=sha,
        dirty=None if commit else is_dirty(),
        parents=lines[0].split(),
        committed_at=lines[1] or None,
        subject=lines[2] or None,
    )


def is_dirty() -> bool | None:
    """Tell whether files outside `data/` differ from the commit."""
    status = git("status", "--porcelain", "--", ":(exclude)data")
    return None if status is None else bool(status)


def main() -> None:
    """Print device, versions and why there is no GPU, as one line of JSON."""
    found = probe_device()
    why = None if found.kind == "cuda" else why_no_gpu()
    answer = {"device": found.model_dump(mode="json"), "versions": versions(), "why_no_gpu": why}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
