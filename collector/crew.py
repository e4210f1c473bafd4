"""Start workers, read what they send, outlive their deaths."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from collector.device import ROOT
from collector.record import Status

START_TIMEOUT_S = 180.0
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker ended before its task did: at which step, and how."""

    step: int | None
    status: Status
    reason: str


class Crew:
    """One worker process at a time, each on the steps that are left."""

    def __init__(self, task: dict[str, Any], step_timeout_s: float, interpret: bool) -> None:
        """Take a task: its steps and what all workers on it need to know."""
        self.task = task
        self.interpret = interpret
        self.step_timeout_s = step_timeout_s
        self._limit_s = START_TIMEOUT_S
        self._process: subprocess.Popen[str] | None = None

    def events(self, stop: Callable[[], bool]) -> Iterator[Event | Loss]:
        """Yield what workers send, steps counted from the first, and a Loss where one dies.

        After a death the next worker goes on behind the step that caused it. A Loss without a step
        means that no worker could start: nothing more comes. `stop` is asked between steps.
        """
        first = 0
        while first < len(self.task["steps"]) and not stop():
            done = first
            for event in self._run(first):
                if isinstance(event, Loss):
                    break
                if event["event"] == "start":
                    event = event | {"step": first + event["step"]}
                done += event["event"] == "done"
                yield event
                if event["event"] == "bye" or (event["event"] == "done" and stop()):
                    return
            assert isinstance(event, Loss)
            if event.step is not None:
                yield replace(event, step=first + event.step)
                done = first + event.step + 1
            elif done == first:
                yield event
                return
            first = done

    def _run(self, first: int) -> Iterator[Event | Loss]:
        """Start a worker on the steps from `first` on and yield its events, then a Loss."""
        read, write = os.pipe()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
            self._process = self._start(first, write, errors)
            os.close(write)
            try:
                yield from self._read(read, errors)
            finally:
                os.close(read)
                self.end()

    def _start(self, first: int, write: int, errors: IO[str]) -> subprocess.Popen[str]:
        """Start a worker in its own session, so that Ctrl-C reaches only this process."""
        task = self.task | {"steps": self.task["steps"][first:], "fd": write}
        process = subprocess.Popen(
            [sys.executable, "-m", "collector.worker"],
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=environment(self.interpret),
            pass_fds=(write,),
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        return process

    def _read(self, read: int, errors: IO[str]) -> Iterator[Event | Loss]:
        """Yield events until the worker says bye, falls silent or dies."""
        buffer, step = b"", None
        self._limit_s = START_TIMEOUT_S
        for chunk in chunks(read, lambda: self._limit_s):
            if chunk is None:
                told = f"no answer within {self._limit_s:.0f} s; the worker was ended"
                yield Loss(step, "timeout", told)
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["event"] in ("start", "done"):
                    working = event["event"] == "start"
                    self._limit_s = self.step_timeout_s if working else START_TIMEOUT_S
                step = {"start": event.get("step"), "done": None}.get(event["event"], step)
                yield event
                if event["event"] == "bye":
                    return
        yield Loss(step, "error", self._how_it_died(errors))

    def _how_it_died(self, errors: IO[str]) -> str:
        """Describe the end of a worker: signal or exit code, and its last words."""
        assert self._process is not None
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the worker died ({how}){last_words(errors)}"

    def end(self) -> None:
        """End the worker and all that it started; fine when it is gone already."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def chunks(read: int, limit_s: Callable[[], float]) -> Iterator[bytes | None]:
    """Yield what arrives on a pipe; None after `limit_s` of silence; ends when it is closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(read, selectors.EVENT_READ)
        while True:
            if not selector.select(limit_s()):
                yield None
                return
            chunk = os.read(read, 1 << 16)
            if not chunk:
                return
            yield chunk


def environment(interpret: bool) -> dict[str, str]:
    """Return a worker's environment: our modules first, the interpreter only where it is asked."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    env.pop("TRITON_INTERPRET", None)
    return env | ({"TRITON_INTERPRET": "1"} if interpret else {})


def last_words(errors: IO[str]) -> str:
    """Return the last line that a worker wrote, as `: text`, or nothing."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def probe() -> dict[str, Any]:
    """Ask a short-lived process what device there is, so that this one holds no CUDA context."""
    done = subprocess.run(
        [sys.executable, "-m", "collector.device"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(interpret=False),
        check=False,
        timeout=START_TIMEOUT_S,
    )
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"the device cannot be probed: {words[-1] if words else 'no message'}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def started_at() -> str:
    """Return now in UTC, as records write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def relative(path: Path) -> str:
    """Shorten a path to one below the present folder, where it is."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
