"""What the compiler made of the Triton kernels that a call launches."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from collector.code_reading import code_hash
from collector.device import ROOT
from collector.record import KernelCode
from collector.store import StoreError, write_atomically

CACHE = ROOT / "build" / "sass"


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
        source_hash=source_hash(function),
    )


def constants(function: Any, kernel: Any) -> str:
    """Return the compile-time constants as `BLOCK=256,N=4`."""
    named = {function.arg_names[key[0]]: value for key, value in kernel.src.constants.items()}
    return ",".join(f"{name}={value}" for name, value in named.items() if name.isupper())


def source_hash(function: Any) -> str:
    """Hash the source of a Triton function and of those that it calls, at any depth."""
    sources = [called.src for called in reachable(function, {})]
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:12]


def reachable(function: Any, seen: dict[int, Any]) -> list[Any]:
    """Return a Triton function and those of its module that it names, in order of first use."""
    seen[id(function)] = function
    names = function.fn.__code__.co_names
    for value in (function.fn.__globals__.get(name) for name in names):
        if hasattr(value, "src") and hasattr(value, "fn") and id(value) not in seen:
            reachable(value, seen)
    return list(seen.values())


@cache
def sass_hash(cubin: bytes, name: str) -> str | None:
    """Hash the machine code with addresses and names normalised; None without a disassembler.

    Kept on disk, since a long kernel takes seconds to disassemble.
    """
    import triton

    how = Path(__file__).read_bytes(), triton.__version__.encode()
    kept = CACHE / hashlib.sha256(b"\0".join([cubin, name.encode(), *how])).hexdigest()
    with suppress(OSError):
        return code_hash(kept.read_text("utf-8"))
    code = disassembled(cubin, name)
    if code is None:
        return None
    with suppress(StoreError):
        write_atomically(kept, code.encode())
    return code_hash(code)


def disassembled(cubin: bytes, name: str) -> str | None:
    """Return the normalised machine code; None without a disassembler."""
    from triton.tools.disasm import get_sass

    try:
        sass = get_sass(cubin)
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return None
    return normalised(sass, name)


def normalised(sass: str, name: str) -> str:
    """Leave only instructions: no addresses, encodings, blank lines, nor the function's name."""
    text = re.sub(rf"/\*.*?\*/|(?<!\w){re.escape(name)}(?!\w)", shortened, sass)
    return "\n".join(line for raw in text.splitlines() if (line := " ".join(raw.split())))


def shortened(found: re.Match[str]) -> str:
    """Drop a comment; write `kernel` for the name."""
    return "" if found[0].startswith("/*") else "kernel"
