"""The words of a history: frozen values that the records make, and that tables and pages read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from collector.reading import Problem as Problem
from collector.record import (
    Correctness,
    CostRecord,
    Device,
    End,
    KernelCode,
    OpInfo,
    RanksInfo,
    Source,
)

Sizes = tuple[tuple[str, int], ...]


class SeriesKey(NamedTuple):
    """One case on one device: what a line over commits follows."""

    device: str
    op: str
    implementation: str
    mode: str
    dtype: str
    sizes: Sizes
    timer: str
    cache: str

    def size(self, name: str) -> int:
        """Return one size; KeyError when the op has no such size."""
        return dict(self.sizes)[name]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of this project with at least one run; `order` counts along the first parents.

    `known` is false when git does not hold it and the order falls back to the run's time.
    """

    sha: str
    subject: str
    committed_at: str
    order: int
    known: bool


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One file: who measured what, when, with what."""

    run_id: str
    file: str
    started_at: str
    purpose: str
    command: tuple[str, ...]
    device: Device
    source: Source
    versions: Mapping[str, str]
    flags: tuple[str, ...]
    end: End | None
    replicates: int
    ops: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]
    ranks: RanksInfo | None = None


class Point(NamedTuple):
    """All replicates of one series in one run.

    `medians_ns` has one median per passed replicate; `median_ns` is their geometric mean and the
    quantiles are those of all samples of all replicates. All are None unless one replicate passed;
    one incorrect replicate makes the point incorrect. `ci_low_ns` and `ci_high_ns` bound the median
    at 95 %: over replicates where there are two or more, else within the one process.
    `file` and `line` are the place of its first record; `quality` has pairs of name and value.
    Where ranks share the case, `rank_medians_ns` has the median of each in one replicate.
    """

    run_id: str
    commit: str | None
    medians_ns: tuple[float, ...]
    median_ns: float | None
    ci_low_ns: float | None
    ci_high_ns: float | None
    q01_ns: float | None
    q25_ns: float | None
    q75_ns: float | None
    q99_ns: float | None
    min_ns: float | None
    samples: int
    calls: int
    sets: int
    status: str
    reason: str | None
    cost: CostRecord | None
    correctness: Correctness | None
    codegen: tuple[KernelCode, ...]
    sm_clock_mhz: float | None
    peak_memory_bytes: int | None
    compile_seconds: float | None
    flags: tuple[str, ...]
    method_id: str
    workload_hash: str
    file: str
    line: int
    graph_nodes: int | None = None
    quality: tuple[tuple[str, float], ...] = ()
    rank_medians_ns: tuple[float, ...] = ()

    @property
    def location(self) -> str:
        """Name the place of its first record."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured limits of one device in one run; a limit that was not measured is None.

    Bandwidths in bytes/s, rates in operations/s, floors in ns per call. The copy is the fastest of
    several. `gemm_flops_per_s` maps a pipe (`bf16`, `fp16`, `tf32`) to its rate, those of links a
    number of ranks to what each sends in a large all-reduce and, for each timer, to the time of a
    smallest one.
    """

    copy_bytes_per_s: float | None
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    l2_bytes_per_s: float | None
    fp32_flops_per_s: float | None
    special_ops_per_s: float | None
    gemm_flops_per_s: Mapping[str, float]
    floor_graph_ns: float | None
    floor_call_ns: float | None
    floor_submit_ns: float | None
    link_bytes_per_s: Mapping[int, float] = field(default_factory=dict)
    link_floor_ns: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def memory_bytes_per_s(self) -> float | None:
        """The memory roof: the faster of copying and reading, since some kernels hardly write."""
        return max(filter(None, (self.copy_bytes_per_s, self.read_bytes_per_s)), default=None)


@dataclass(frozen=True, slots=True)
class SentinelPoint:
    """One sentinel in one run: median per replicate and phase, in ns, with its counts.

    `best_ns` is the median over replicates of the best phase: the machine at its best in this run.
    """

    name: str
    run_id: str
    medians_ns: tuple[float, ...]
    median_ns: float
    best_ns: float
    bytes: int
    flops: int
    special_ops: int


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A change that somebody accepted; without an implementation it holds for all of the op.

    `commit` may be the beginning of a hash, `when` a date.
    """

    device: str
    op: str
    commit: str
    reason: str
    by: str
    when: str
    implementation: str

    @property
    def told(self) -> str:
        """Say why, who and when."""
        return f"{self.reason} ({self.by}, {self.when})"


@dataclass(frozen=True)
class History:
    """Everything that the records say, in order; made once, read by all pages.

    Points of a series are ordered by commit order, then by the start of their run; those without
    a commit come last. `sentinels` and `ceilings` go by run id, `devices` by slug, latest run wins.
    """

    runs: Mapping[str, RunInfo]
    commits: tuple[Commit, ...]
    devices: Mapping[str, Device]
    ops: Mapping[str, OpInfo]
    series: Mapping[SeriesKey, tuple[Point, ...]]
    sentinels: Mapping[str, tuple[SentinelPoint, ...]]
    ceilings: Mapping[str, Ceilings]
    problems: tuple[Problem, ...]
    records: int
    acknowledged: tuple[Acknowledgement, ...] = ()

    @cached_property
    def by_sha(self) -> Mapping[str, Commit]:
        """Every commit by its hash."""
        return {commit.sha: commit for commit in self.commits}

    @cached_property
    def by_run(self) -> Mapping[str, Mapping[SeriesKey, Point]]:
        """Every point by its run and its series."""
        found: dict[str, dict[SeriesKey, Point]] = {run_id: {} for run_id in self.runs}
        for key, points in self.series.items():
            for point in points:
                found[point.run_id][key] = point
        return found
