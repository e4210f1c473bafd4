"""The record: the contract between measuring and showing. No torch here."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

SCHEMA_VERSION = 1

Status = Literal["passed", "incorrect", "oom", "error", "timeout", "unavailable", "skipped"]
Timer = Literal["graph", "call", "submit"]
Cache = Literal["cold", "hot"]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
Percent = Annotated[float, Field(ge=0, le=100)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Utc = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]


class Strict(BaseModel):
    """A part of a record: unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",  # else they are written as null, where a value is of any type
        use_attribute_docstrings=True,
    )


class Device(Strict):
    """The device that was measured."""

    slug: Slug
    """Name for folders and addresses, for example `nvidia-h200`."""
    kind: Literal["cuda", "cpu"]
    """What measured: a CUDA GPU, or the CPU."""
    name: str
    """Name as the driver or the operating system gives it."""
    compute_capability: str | None = None
    """CUDA compute capability, for example `9.0`; null on a CPU."""
    multiprocessors: Count
    """Streaming multiprocessors; cores on a CPU."""
    memory_bytes: Count
    """Memory of the device."""
    l2_bytes: Count
    """Last cache before memory: L2 on a GPU, the last-level cache on a CPU."""
    driver: str | None = None
    """Driver version; null on a CPU."""
    uuid_hash: str | None = None
    """Hash of the device's UUID, to tell two cards of one model apart."""
    power_limit_w: float | None = None
    """Power limit as found."""
    sm_clock_max_mhz: float | None = None
    """Highest SM clock that the card allows."""
    memory_clock_max_mhz: float | None = None
    """Highest memory clock that the card allows."""
    mig: bool | None = None
    """Whether the card is partitioned (MIG)."""
    other_processes: Count | None = None
    """Compute processes of others on the card at the start."""


class Source(Strict):
    """The source that was measured."""

    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Full commit hash; null when unknown, and then left out of per-commit tables."""
    dirty: bool | None = None
    """Whether files differed from that commit; null when git could not say."""
    parents: list[str]
    """Parents of the commit, first parent first."""
    subject: str | None = None
    """First line of the commit message."""
    committed_at: str | None = None
    """Committer date, ISO 8601."""


class ImplementationInfo(Strict):
    """What the site needs to know of an implementation."""

    name: str
    """Name, as in the case key."""
    kind: Literal["eager", "compiled", "triton", "library"]
    """How it is made."""
    summary: str
    """One line about it."""


class MarkInfo(Strict):
    """A stretch of an op's axis that charts mark."""

    name: str
    """What lies there."""
    low: Count
    """Where it begins on the axis."""
    high: Count
    """Where it ends on the axis."""


class OpInfo(Strict):
    """What the site needs to know of an op, so that it needs no kernel code."""

    name: str
    """Name, as in the case key."""
    title: str
    """Title for people."""
    summary: str
    """One sentence: what it computes and where it is used."""
    formula: str
    """The mathematics in words or plain notation."""
    axis: str
    """The size that curves run along."""
    baseline: str
    """The implementation that speed-ups divide by."""
    inputs: str
    """The distribution of the inputs."""
    implementations: list[ImplementationInfo]
    """All implementations, in display order."""
    regions: list[str]
    """Ops that this op consists of, when it is a pipeline."""
    marks: list[MarkInfo] | None = None
    """Sizes along the axis that users care for; null when there are none."""
    unit: str | None = None
    """What the axis counts, in the plural, for example `matrices`; null: as the axis is called."""

    def kind_of(self, name: str) -> str | None:
        """Return how an implementation is made; None for one that the op does not list."""
        return next((info.kind for info in self.implementations if info.name == name), None)


class RanksInfo(Strict):
    """How the ranks of a run reach each other."""

    backend: Literal["nccl", "gloo"]
    """What adds over ranks; its version is among `versions`."""
    topology: str | None = None
    """Links between the GPUs, for example `NVLink (NV18)` or `PCIe (PIX)`; null on a CPU."""
    environment: dict[str, str]
    """What was set for the ranks: `NCCL_NVLS_ENABLE` of 0 leaves NVLink multicast off."""


class Run(Strict):
    """First line of a file: one start of the collector."""

    kind: Literal["run"] = "run"
    schema_version: Literal[1]
    """Structure of the lines of this file."""
    run_id: Hash
    """Random name of the run."""
    started_at: Utc
    """Start of the run, UTC."""
    purpose: Literal["measure", "calibrate", "backfill", "import", "count"]
    """Why it was made; `count`: to read hardware counters, with `counters` lines alone."""
    command: list[str]
    """The command line, so that it can be repeated."""
    device: Device
    """The device that was measured."""
    source: Source
    """The source that was measured."""
    versions: dict[str, str]
    """Versions of python, torch, triton, cuda, the operating system and optional packages."""
    methods: dict[str, dict[str, Any]]
    """What each `method_id` stands for."""
    ops: list[OpInfo]
    """Catalogue of the ops of this run."""
    flags: list[str]
    """What a reader must know of the whole run, for example `shared-device`."""
    ranks: RanksInfo | None = None
    """How ranks reach each other; null where each case ran in one process."""


class WorkloadKey(Strict):
    """Sizes and dtype."""

    sizes: dict[str, Count]
    """Sizes by name."""
    dtype: str
    """Data type of the inputs."""


class CaseWork(Strict):
    """What runs in a case, however it is measured."""

    op: str
    """The op."""
    implementation: str
    """The implementation."""
    mode: Literal["forward", "backward", "full"]
    """Which part: forward pass, backward pass, or both."""
    workload: WorkloadKey
    """Sizes and dtype."""


class Case(CaseWork):
    """Key of a case: with the device it names a series."""

    timer: Timer
    """`graph`: device time in a CUDA graph; `call`: wall time of a call from Python, one after
    another; `submit`: host time to enqueue a call."""
    cache: Cache
    """`cold`: at least three times the last-level cache touched between two uses of one set of
    inputs and outputs; `hot`: the same set again and again."""


class Latency(Strict):
    """Time of one call, from all samples."""

    median_ns: Positive
    """Median."""
    q01_ns: Positive
    """1st percentile."""
    q25_ns: Positive
    """25th percentile."""
    q75_ns: Positive
    """75th percentile."""
    q99_ns: Positive
    """99th percentile."""
    min_ns: Positive
    """Fastest sample."""
    max_ns: Positive
    """Slowest sample."""
    ci_low_ns: Positive
    """Lower end of the 95 % order-statistic interval of the median, within this process."""
    ci_high_ns: Positive
    """Upper end of that interval."""
    samples: Annotated[int, Field(gt=0)]
    """Number of samples."""
    calls: Annotated[int, Field(gt=0)]
    """Calls in one sample."""
    sets: Annotated[int, Field(gt=0)]
    """Distinct sets of inputs and outputs."""
    stopped: Literal["settled", "budget", "limit"]
    """Why sampling ended: interval within 0.25 %, time budget, or sample limit."""
    encoded: str
    """All samples, whole nanoseconds for `calls` calls: base64 of zlib of the
    smallest and each one's distance from it."""

    @model_validator(mode="after")
    def ordered(self) -> Self:
        """Refuse quantiles that are out of order."""
        row = [self.min_ns, self.q01_ns, self.q25_ns, self.median_ns]
        row += [self.q75_ns, self.q99_ns, self.max_ns]
        if row != sorted(row) or not self.ci_low_ns <= self.median_ns <= self.ci_high_ns:
            raise ValueError("latency: quantiles are out of order")
        return self


class CostRecord(Strict):
    """Work that the mathematics needs, the same for every implementation."""

    flops: Count
    """Floating-point operations."""
    minimal_bytes: Count
    """Each input read once, each output written once."""
    special_ops: Count
    """Exponentials, reciprocals, roots and the like."""
    pipe: str
    """Unit that the flops run on: `fp32`, `bf16`, `fp16`, `tf32` or `int8`."""
    link_bytes: Count | None = None
    """Bytes that each rank sends to others, by the model of a ring; the rest is of one rank too.
    Null where there are no ranks."""
    traffic_bytes: Count | None = None
    """Bytes that this implementation is expected to move, where that is modelled."""
    launches: Count | None = None
    """Kernels that this implementation launches for a call, where that is modelled."""


class Correctness(Strict):
    """Result against the float64 oracle on the same rounded inputs."""

    max_abs_error: Annotated[float, Field(ge=0)] | None = None
    """Largest absolute error of an element; null when the result is not finite where it must be."""
    norm_error: Annotated[float, Field(ge=0)] | None = None
    """||out - oracle|| / ||oracle||; null as above."""
    bound_ratio: Annotated[float, Field(ge=0)] | None = None
    """Worst error over its allowed bound: at most 1 when right; null as above."""
    checked: Literal["before", "before-and-after", "interpreter"]
    """When outputs were checked: before timing, also every output after it, or in the
    interpreter."""


class KernelCode(Strict):
    """What the compiler made of one Triton kernel."""

    name: str
    """Name of the function."""
    registers: Count
    """Registers of a thread."""
    spills: Count
    """Spilled registers of a thread."""
    shared_bytes: Count
    """Shared memory of a block."""
    num_warps: Count
    """Warps of a block."""
    constants: str
    """Compile-time constants, as `BLOCK=256,N=4`."""
    sass_hash: str | None = None
    """Hash of the machine code with addresses and names normalised; null when unavailable."""
    source_hash: str
    """Hash of the kernel's source."""


class Telemetry(Strict):
    """State of the card while the case was timed."""

    sm_clock_mhz: float | None = None
    """Mean SM clock."""
    memory_clock_mhz: float | None = None
    """Mean memory clock."""
    power_w: float | None = None
    """Mean power."""
    temperature_c: float | None = None
    """Highest temperature."""
    event_reasons: Count | None = None
    """Raw bits of the reasons that held clocks down, or'ed together."""


class RankTimes(Strict):
    """Times of the ranks of one case."""

    median_ns: Annotated[list[Positive], Field(min_length=1)]
    """Median of each rank, in the order of ranks."""
    slowest: Count
    """The rank with the longest median, whose samples are the latency of the case."""


class Measurement(Strict):
    """One case in one replicate."""

    kind: Literal["measurement"] = "measurement"
    case: Case
    """What was timed."""
    workload_hash: Hash
    """Hash of what decides the number apart from the method: op, sizes, dtype, inputs, seed."""
    method_id: Hash
    """Hash of everything of the method that shapes the number."""
    replicate: Count
    """Number of the fresh process."""
    status: Status
    """`passed` has a time; every other status has a reason and no time."""
    reason: str | None = None
    """Why there is no time."""
    at_s: Annotated[float, Field(ge=0)]
    """Seconds since the start of the run."""
    latency: Latency | None = None
    """Time of one call; null unless passed."""
    ranks: RankTimes | None = None
    """Times of the single ranks; null unless passed, and where the workload has no size `ranks`."""
    cost: CostRecord | None = None
    """Null: as in the first line of the same op, implementation, mode, workload and replicate."""
    correctness: Correctness | None = None
    """Null: as in that first line, or never checked."""
    quality: dict[str, Annotated[float, Field(ge=0)]] | None = None
    """Figures of the result that a right one need not keep, by name; null as for `cost`, or none.
    For Sinkhorn how far sums of rows and columns are from one."""
    codegen: list[KernelCode] | None = None
    """Triton kernels of this implementation. Null: as in that first line, or none."""
    telemetry: Telemetry | None = None
    """State of the card while the first series of the job was timed; null on a CPU and as for
    `cost`."""
    peak_memory_bytes: Count | None = None
    """Peak device memory of one call beyond its inputs; null as for `cost`, or not measured."""
    graph_nodes: Count | None = None
    """Kernels, copies and fills that one call starts, counted in a CUDA graph of it; null as for
    `cost`, or not counted."""
    compile_seconds: Annotated[float, Field(ge=0)] | None = None
    """Seconds of the first call, compilation included, with what the caches on disk hold: little
    where the run compiled its cases before it measured. Null as for `cost`."""
    flags: list[str]
    """`above-roof`, `below-floor`, `unsteady`, `coarse-tick`, `host-bound`, `interpreter` ..."""

    @model_validator(mode="after")
    def time_only_when_passed(self) -> Self:
        """Refuse a time without `passed`, and `passed` without a time."""
        if (self.status == "passed") != (self.latency is not None):
            raise ValueError("latency: a time is given exactly when the status is passed")
        if (self.status == "passed") != (self.reason is None):
            raise ValueError("reason: is given exactly when the status is not passed")
        return self


class Sentinel(Strict):
    """One frozen kernel that measures the device itself."""

    kind: Literal["sentinel"] = "sentinel"
    name: str
    """Name of the sentinel, for example `copy`, `empty`, `gemm-bf16`."""
    replicate: Count
    """Number of the fresh process."""
    phase: Literal["before", "between", "after"]
    """When in the run it was measured."""
    method_id: Hash
    """Hash of the method."""
    status: Status
    """As for a measurement."""
    reason: str | None = None
    """Why there is no time."""
    at_s: Annotated[float, Field(ge=0)]
    """Seconds since the start of the run."""
    latency: Latency | None = None
    """Time of one call."""
    bytes: Count
    """Bytes read and written by a call."""
    flops: Count
    """Floating-point operations of a call."""
    special_ops: Count
    """Special-function operations of a call."""
    telemetry: Telemetry | None = None
    """State of the card; null on a CPU."""

    @model_validator(mode="after")
    def time_only_when_passed(self) -> Self:
        """Refuse a time without `passed`, and `passed` without a time."""
        if (self.status == "passed") != (self.latency is not None):
            raise ValueError("latency: a time is given exactly when the status is passed")
        return self


class KernelCounters(Strict):
    """What the hardware counted in one kernel; what a profiler or GPU cannot count is left out."""

    name: str
    """Name of the function."""
    blocks: Count
    """Blocks of the launch."""
    threads_per_block: Count
    """Threads of a block."""
    duration_ns: Positive
    """Time under the profiler, which is no measured time: clocks and launches are others."""
    sm_clock_mhz: Positive | None = None
    """SM clock while it ran."""
    dram_read_bytes: Count
    """Bytes read from the device's memory."""
    dram_write_bytes: Count
    """Bytes written to the device's memory while it ran."""
    l2_hit_percent: Percent | None = None
    """Share of the sectors asked of the L2 cache that were there; writes are hits."""
    occupancy_percent: Percent | None = None
    """Achieved occupancy: active warps over the most that a multiprocessor holds, while active."""
    issue_active_percent: Percent | None = None
    """Share of active cycles in which a scheduler started an instruction."""
    instructions: Count | None = None
    """Instructions of warps."""
    special_instructions: Count | None = None
    """Instructions of warps on the pipe of special functions and conversions (XU)."""
    fp32_adds: Count | None = None
    """Additions of threads in fp32."""
    fp32_multiplies: Count | None = None
    """Multiplications of threads in fp32."""
    fp32_fused: Count | None = None
    """Fused multiply-adds of threads in fp32; each is two flops."""
    registers: Count | None = None
    """Registers of a thread."""
    blocks_by_registers: Count | None = None
    """Blocks that the registers of a multiprocessor suffice for."""
    blocks_by_shared_memory: Count | None = None
    """Blocks that its shared memory suffices for."""
    blocks_by_warps: Count | None = None
    """Blocks that its places for warps suffice for."""
    blocks_at_most: Count | None = None
    """Blocks that it holds in any case."""


class Counters(Strict):
    """What the hardware counted in one call of a case, from an empty cache."""

    kind: Literal["counters"] = "counters"
    case: CaseWork
    """What was run."""
    workload_hash: Hash
    """As for a measurement."""
    method_id: Hash
    """Hash of how the profiler was called."""
    at_s: Annotated[float, Field(ge=0)]
    """Seconds since the start of the run."""
    cost: CostRecord
    """Work that the mathematics needs."""
    correctness: Correctness
    """Result of the check before the counted call."""
    kernels: Annotated[list[KernelCounters], Field(min_length=1)]
    """Kernels of the call, in their order; copies and fills are not counted."""
    written_back_bytes: Count
    """Bytes written to memory after the call, when all that it left in the cache was pushed out."""


class End(Strict):
    """Last line of a file: the run was closed."""

    kind: Literal["end"] = "end"
    ended_at: Utc
    """End of the run, UTC."""
    outcome: Literal["complete", "budget", "interrupted", "error"]
    """Whether all that was planned was done, and why not."""
    counts: dict[str, Count]
    """Measurements by status."""
    seconds: dict[str, Annotated[float, Field(ge=0)]]
    """Where the time went, by phase."""


Record = Annotated[Run | Measurement | Sentinel | Counters | End, Field(discriminator="kind")]
RECORD: TypeAdapter[Run | Measurement | Sentinel | Counters | End] = TypeAdapter(Record)


def parse(line: str | bytes) -> Run | Measurement | Sentinel | Counters | End:
    """Read one line; pydantic.ValidationError names the field and what is wrong."""
    return RECORD.validate_json(line)


def dump(record: Strict) -> str:
    """Write one line without its newline: compact, nulls left out, NaN and infinity refused."""
    value = _short(record.model_dump(mode="json", exclude_none=True))
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _short(value: Any) -> Any:
    """Write summaries with 7 significant digits; the samples themselves are whole numbers."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, float):
        short = float(f"{value:.7g}")
        return int(short) if short.is_integer() else short
    return value


def encode_samples(samples_ns: list[int]) -> str:
    """Pack whole nanoseconds; `decode_samples` gives back the same list."""
    least = min(samples_ns)
    above = [sample - least for sample in samples_ns]
    packed = zlib.compress(",".join(map(str, [least, *above])).encode(), 9)
    return base64.b64encode(packed).decode()


def decode_samples(encoded: str) -> list[int]:
    """Unpack what `encode_samples` packed; ValueError when it is damaged."""
    try:
        text = zlib.decompress(base64.b64decode(encoded, validate=True)).decode()
    except zlib.error as error:
        raise ValueError(f"encoded samples are damaged: {error}") from error
    least, *above = map(int, text.split(","))
    return [least + sample for sample in above]


def identity(*parts: object) -> str:
    """Hash parts of an identity into 12 hex digits, stable over processes and machines."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
