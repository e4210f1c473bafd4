"""What the compiler made of the Triton kernels that a call launches."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from collector.record import KernelCode


def launched_kernels(call: Callable[[], object], functions: Iterable[Any]) -> list[KernelCode]:
    """Call once and describe which compiled forms of these Triton functions it launched."""
    import triton

    handles: set[int] = set()

    def seen(metadata: Any) -> None:
        handles.add(metadata.get()["function"])

    triton.knobs.runtime.launch_enter_hook.add(seen)
    try:
        call()
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(seen)
    loaded = [(f, k) for f in functions for k in compiled_forms(f)]
    return [describe(f, k) for f, k in loaded if k.function in handles]


def compiled_forms(function: Any) -> list[Any]:
    """Return every compiled form of a Triton function in this process."""
    caches = getattr(function, "device_caches", {})
    return [kernel for cached in caches.values() for kernel in cached[0].values()]


def describe(function: Any, kernel: Any) -> KernelCode:
    """Describe one compiled form."""
    return KernelCode(
        name=kernel.name,
        registers=kernel.n_regs,
        spills=kernel.n_spills,
        shared_bytes=kernel.metadata.shared,
        num_warps=kernel.metadata.num_warps,
        constants=constants(function, kernel),
        sass_hash=sass_hash(kernel.asm["cubin"], kernel.name),
        source_hash=hashlib.sha256(function.src.encode()).hexdigest()[:12],
    )


def constants(function: Any, kernel: Any) -> str:
    """Return the compile-time constants as `BLOCK=256,N=4`."""
    named = {function.arg_names[key[0]]: value for key, value in kernel.src.constants.items()}
    return ",".join(f"{name}={value}" for name, value in named.items() if name.isupper())


@cache
def sass_hash(cubin: bytes, name: str) -> str | None:
    """Hash the machine code with addresses and names normalised; None without a disassembler."""
    from triton.tools.disasm import get_sass

    try:
        sass = get_sass(cubin)
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return None
    return hashlib.sha256(normalised(sass, name).encode()).hexdigest()[:12]


def normalised(sass: str, name: str) -> str:
    """Leave only instructions: no addresses, encodings, blank lines, nor the function's name."""
    text = re.sub(r"/\*.*?\*/", "", sass).replace(name, "kernel")
    return "\n".join(line for raw in text.splitlines() if (line := " ".join(raw.split())))
