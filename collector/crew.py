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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
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


class Worker:
    """A process: it says a word when it has imported all, then waits for its task."""

    def __init__(
        self, module: str, interpret: bool = False, imports: Sequence[str] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Start it in its own session, so that Ctrl-C reaches only this process."""
        self.read, write = os.pipe()
        self.launch(
            [sys.executable, "-m", module, str(write), *imports],
            environment(interpret, settings),
            pass_fds=(write,),
        )
        os.close(write)

    def launch(
        self, command: Sequence[str], env: Mapping[str, str], stdout: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Start the process; what it says, on purpose or not, is kept for its last words."""
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.errors if stdout is None else stdout,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env=env,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self.ended = False

    def alive(self) -> bool:
        """Tell whether the process is there."""
        return self.process.poll() is None

    def wait_until_ready(self) -> None:
        """Wait for its first word; silence and death are left to whoever reads it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.read, selectors.EVENT_READ)
            selector.select(START_TIMEOUT_S)

    def tell(self, words: Mapping[str, Any]) -> None:
        """Write a line to it; one that is gone is noticed by whoever reads it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()

    def how_it_died(self) -> str:
        """Describe its end: signal or exit code, and its last words."""
        how = how_it_ended(self.process.wait())
        return f"the worker died ({how}){last_words(self.errors)}"

    def end(self) -> None:
        """End it and all that it started; fine when it is gone or ended already."""
        if self.ended:
            return
        self.ended = True
        if self.alive():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.read)
        self.errors.close()


class Pool:
    """Workers for the tasks of a run, some of them started before their task comes.

    None is handed out before all that were started have imported what they need: while one
    measures, no other starts. One that waits costs memory alone.
    """

    def __init__(self, start: Callable[[bool], Worker], at_once: int, tasks: int) -> None:
        """Take what starts a worker (for the interpreter or not), and how many will be wanted."""
        self._start, self._at_once, self._tasks = start, at_once, tasks
        self._waiting: list[Worker] = []
        self._started: list[Worker] = []

    def fill(self) -> None:
        """Start workers for the next tasks, without waiting for them."""
        for _ in range(max(min(self._at_once, self._tasks), 1)):
            self._waiting.append(self._new(interpret=False))

    def take(self, interpret: bool) -> Worker:
        """Return a worker; those for the interpreter are never started ahead."""
        if interpret:
            return self._new(interpret=True)
        self._waiting = [worker for worker in self._waiting if worker.alive()]
        if not self._waiting:
            self.fill()
        self._tasks -= 1
        for worker in self._waiting:
            worker.wait_until_ready()
        return self._waiting.pop(0)

    def end(self) -> None:
        """End all workers."""
        for worker in self._started:
            worker.end()

    def _new(self, interpret: bool) -> Worker:
        self._started.append(self._start(interpret))
        return self._started[-1]


class Crew:
    """One worker at a time, each on the steps that are left."""

    def __init__(
        self, task: dict[str, Any], step_timeout_s: float, hire: Callable[[], Worker]
    ) -> None:
        """Take a task: its steps and what all workers on it need to know."""
        self.task = task
        self.hire = hire
        self.step_timeout_s = step_timeout_s
        self._limit_s = START_TIMEOUT_S

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
        """Give a worker the steps from `first` on and yield its events, then a Loss."""
        worker = self.hire()
        try:
            worker.tell(self.task | {"steps": self.task["steps"][first:]})
            yield from self._read(worker)
        finally:
            worker.end()

    def _read(self, worker: Worker) -> Iterator[Event | Loss]:
        """Yield events until the worker says bye, falls silent or dies."""
        buffer, step = b"", None
        self._limit_s = START_TIMEOUT_S
        for chunk in chunks(worker.read, lambda: self._limit_s):
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
        yield Loss(step, "error", worker.how_it_died())


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


def environment(
    interpret: bool, settings: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return a worker's environment: our modules first, the interpreter only where it is asked.

    `settings` give way to what the person at the terminal has set.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**settings, **os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    env.pop("TRITON_INTERPRET", None)
    return env | ({"TRITON_INTERPRET": "1"} if interpret else {})


def last_words(errors: IO[str]) -> str:
    """Return the last line that a worker wrote, as `: text`, or nothing."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def how_it_ended(code: int) -> str:
    """Name the end of a process: a signal or an exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def probe() -> dict[str, Any]:
    """Return what device there is, what versions, and why there is no GPU."""
    return asked("collector.device", "the device cannot be probed")


def asked(module: str, otherwise: str) -> dict[str, Any]:
    """Return what a short-lived process answers, so that this one holds no CUDA context.

    RuntimeError where it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(interpret=False),
        check=False,
        timeout=START_TIMEOUT_S,
    )
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"{otherwise}: {words[-1] if words else 'no message'}")
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
