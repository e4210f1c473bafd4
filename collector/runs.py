"""The runs that a report is made of: named by a file or a commit, else the newest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from collector.device import commit_named
from collector.history.digest import digest
from collector.history.load import make_history
from collector.history.model import History, Point, Problem, RunInfo, SeriesKey
from collector.history.reading import read_run, run_paths
from collector.record import Latency, Measurement, OpInfo, Run, decode_samples
from collector.store import NO_RUNS, content_of, run_of

LEAST_PREFIX = 4
OFFERED = 5


class RunsError(RuntimeError):
    """There is no such run; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for; what is empty does not choose."""

    data: Path
    ops: tuple[str, ...] = ()
    device: str = ""
    run: Path | None = None
    commit: str = ""


@dataclass(frozen=True, slots=True)
class OneRun:
    """One run: its points, and the samples that they were made of, in ns a call, sorted."""

    info: RunInfo
    history: History
    points: Mapping[SeriesKey, Point]
    samples_ns: Mapping[SeriesKey, Sequence[float]]
    problems: tuple[Problem, ...]

    def op(self, name: str) -> OpInfo:
        """Return what the run says of an op."""
        return self.history.ops[name]


def chosen(request: Request) -> list[OneRun]:
    """Read the runs that are asked for, the newest last; RunsError where there is none."""
    if request.run is not None:
        return [_with_ops(read(request.run), request)]
    heads = {path: run for path in run_paths(request.data) if (run := run_of(path))}
    if not heads:
        raise RunsError(f"{request.data}: {NO_RUNS}")
    return [read(path) for path in paths(heads, request)]


def paths(heads: Mapping[Path, Run], request: Request) -> list[Path]:
    """Return the files that are asked for; RunsError where nothing fits."""
    _check("op", request.ops, {op.name for run in heads.values() for op in run.ops})
    devices = {run.device.slug for run in heads.values()}
    _check("device", [request.device] if request.device else [], devices)
    fitting = {path: run for path, run in heads.items() if fits(run, request)}
    if request.commit:
        sha = full_sha(request.commit)
        fitting = {p: r for p, r in fitting.items() if (r.source.commit or "").startswith(sha)}
    if not fitting:
        raise RunsError(
            f"no run of {request.commit or 'that device'} fits; {_offer(heads.values(), request)}"
        )
    order = sorted(fitting, key=lambda path: (fitting[path].started_at, path.name))
    if request.commit:
        return order
    newest = {fitting[path].device.slug: path for path in order}
    return [path for path in order if path in newest.values()]


def fits(run: Run, request: Request) -> bool:
    """Tell whether a run is of the device, and has one of the ops."""
    names = {op.name for op in run.ops}
    return request.device in ("", run.device.slug) and (
        not request.ops or bool(names & set(request.ops))
    )


def full_sha(name: str) -> str:
    """Return the hash of a commit, tag or branch, else what may be the beginning of one."""
    if found := commit_named(name):
        return found
    if len(name) < LEAST_PREFIX:
        raise RunsError(f"{name}: no commit, tag or branch of that name")
    return name


def elsewhere(request: Request, runs: Iterable[OneRun]) -> list[str]:
    """Return the ops that other runs alone hold, where no run was named."""
    if request.run or request.commit or request.ops:
        return []
    heads = [run for path in run_paths(request.data) if (run := run_of(path))]
    every = {op.name for run in heads if fits(run, request) for op in run.ops}
    return sorted(every - {name for one in runs for name in one.info.ops})


def read(path: Path) -> OneRun:
    """Read one run; RunsError where the file has no run line."""
    content = content_of(path)
    made = digest(str(path), content)
    if made.run is None:
        raise RunsError("\n".join(map(str, made.problems)))
    history = make_history([made], ())
    points = {key: found[-1] for key, found in history.series.items()}
    info = history.runs[made.run.run_id]
    samples = samples_of(str(path), content, points)
    return OneRun(info, history, points, samples, history.problems)


def samples_of(
    file: str, content: bytes, points: Mapping[SeriesKey, Point]
) -> Mapping[SeriesKey, Sequence[float]]:
    """Return the samples behind every point that has a time; damaged ones are left out."""
    found, _ = read_run(file, content)
    lines: dict[tuple[object, ...], list[Latency]] = {}
    for _, line in found.measurements if found else ():
        if line.latency is not None:
            lines.setdefault(_line_name(line), []).append(line.latency)
    made = {}
    for key, point in points.items():
        if point.median_ns is not None:
            with suppress(ValueError):
                made[key] = sorted(chain.from_iterable(map(per_call, lines[_name(key, point)])))
    return made


def per_call(latency: Latency) -> list[float]:
    """Return the samples of one replicate in ns a call; ValueError when they are damaged."""
    return [sample / latency.calls for sample in decode_samples(latency.encoded)]


def _name(key: SeriesKey, point: Point) -> tuple[object, ...]:
    case = (key.op, key.implementation, key.mode, key.dtype, frozenset(key.sizes))
    return *case, key.timer, key.cache, point.method_id, point.workload_hash


def _line_name(line: Measurement) -> tuple[object, ...]:
    case, work = line.case, line.case.workload
    sizes = frozenset(work.sizes.items())
    names = (case.op, case.implementation, case.mode, work.dtype, sizes, case.timer, case.cache)
    return *names, line.method_id, line.workload_hash


def _with_ops(run: OneRun, request: Request) -> OneRun:
    """Refuse a named run that lacks an op that is asked for."""
    _check("op", request.ops, set(run.info.ops))
    return run


def _check(what: str, asked: Iterable[str], there: set[str]) -> None:
    for name in asked:
        if name not in there:
            raise RunsError(f"no {what} {name!r} was measured; there are: {names(there)}")


def _offer(heads: Iterable[Run], request: Request) -> str:
    """Name the newest commits that were measured."""
    fitting = sorted((r for r in heads if fits(r, request)), key=lambda run: run.started_at)
    shas = [run.source.commit[:8] for run in fitting if run.source.commit]
    newest = list(dict.fromkeys(shas))[-OFFERED:]
    return f"measured were, newest last: {', '.join(newest) or 'no commits'}"


def names(words: Iterable[str]) -> str:
    """Write names as a list."""
    return ", ".join(sorted(words))
