"""Ranks that share a case: torchrun and what it starts, as one worker to whoever hires it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from collector.crew import Pool, Worker, asked, environment, how_it_ended, last_words
from collector.record import RanksInfo

# NVLink multicast is left off, whatever the terminal says: it shapes the number.
SETTINGS = {"NCCL_NVLS_ENABLE": "0"}
MARK = "KERNEL_ALMANAC_RANKS"
PATIENCE_S = 10.0


class Ranks(Worker):
    """Some ranks: the first is told the task and sends what comes of it.

    torchrun gives each a session of its own, so they are found by a mark in their environment.
    """

    def __init__(self, count: int, interpret: bool) -> None:
        """Start torchrun, which starts the ranks and ends all when one of them fails."""
        self.mark = f"{MARK}={secrets.token_hex(8)}"
        name, value = self.mark.split("=")
        env = {"OMP_NUM_THREADS": "1"} | environment(interpret) | SETTINGS | {name: value}
        self.read, write = os.pipe()
        self.launch(command(count), env, stdout=write)
        os.close(write)

    def how_it_died(self) -> str:
        """Say which ranks failed and how, each with its last word."""
        code = self.process.wait()
        self.errors.seek(0)
        text = self.errors.read()
        told = "; ".join(failures(text))
        if told:
            return f"a rank died: {told}"
        return f"torchrun ended ({how_it_ended(code)}){last_words(self.errors)}"

    def end(self) -> None:
        """End the ranks, let torchrun bury them, end it too where it does not end by itself."""
        if not self.ended:
            for pid in marked(self.mark):
                if pid != self.process.pid:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)
        super().end()


def command(count: int) -> list[str]:
    """Return the command that starts ranks on this machine, meeting at a free local port."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*torchrun, "--local-addr=127.0.0.1", f"--nproc-per-node={count}", "-m", *MODULE]


MODULE = ("collector.ranked",)


def pool(count: int) -> Pool:
    """Make the pool of one number of ranks; none are started ahead."""
    return Pool(partial(Ranks, count), at_once=1, tasks=1)


def marked(mark: str) -> Iterator[int]:
    """Yield the processes whose environment holds a mark, whatever session they are in."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def failures(text: str) -> list[str]:
    """Read from torchrun's report and the ranks' own last words which ranks failed, and how.

    Those that a signal ended come first: the others mostly failed for want of them.
    """
    words = {int(rank): said for rank, said in re.findall(r"^rank (\d+): (.+)$", text, re.M)}
    reported = re.findall(r"rank +: (\d+) .*\n +exitcode +: (-?\d+)", text)
    codes = sorted(
        {int(rank): int(code) for rank, code in reported}.items(), key=lambda one: one[1]
    )
    return [f"rank {rank} ({how_it_ended(code)}){said(words.get(rank))}" for rank, code in codes]


def said(words: str | None) -> str:
    """Add what a rank said last."""
    return f": {words[:150]}" if words else ""


def probe(counts: Sequence[int], kind: str) -> tuple[RanksInfo | None, dict[str, str]]:
    """Return how ranks reach each other here, and the version of what adds over them.

    RuntimeError where there are fewer GPUs than ranks.
    """
    if not counts:
        return None, {}
    if kind != "cuda":
        return RanksInfo(backend="gloo", environment=SETTINGS), {}
    found = asked("collector.links", "GPUs cannot be counted")
    if found["gpus"] < max(counts):
        there = f"this machine shows {found['gpus']}"
        raise RuntimeError(f"--ranks {max(counts)} needs {max(counts)} GPUs; {there}")
    info = RanksInfo(backend="nccl", topology=found["topology"], environment=SETTINGS)
    return info, {"nccl": found["nccl"]}
