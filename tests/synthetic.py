"""Invented runs for tests: seeded, valid, plausible in shape. Their numbers never reach `data/`."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from collector import record as r

FIRST_START = datetime(2026, 1, 5, 8, tzinfo=UTC)
FIRST_UUID = "abcdef012345"
GPU_METHOD = {"graph": "a1a1a1a1a1a1", "call": "b2b2b2b2b2b2", "submit": "c3c3c3c3c3c3"}
SENTINEL_METHOD = "d4d4d4d4d4d4"
ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class Card:
    """An invented device: its limits are the model behind the invented times."""

    slug: str
    kind: str = "cuda"
    bytes_per_s: float = 4.2e12
    l2_bytes_per_s: float = 9e12
    flops_per_s: float = 4.5e13
    special_per_s: float = 4e12
    floor_graph_ns: float = 540.0
    floor_call_ns: float = 9000.0
    l2_bytes: int = 60_000_000


H200 = Card("nvidia-h200")
H100 = Card("nvidia-h100", bytes_per_s=3.0e12, l2_bytes=50_000_000)
CPU = Card("cpu-2-cores", "cpu", 2e10, 6e10, 1e11, 1e9, 1500.0, 1500.0, 32_000_000)


@dataclass(frozen=True)
class Plan:
    """What to invent.

    `commits` is a number or full hashes, oldest first. `effects` maps (commit index, op,
    implementation) to a factor on its times from that commit on; `shift` maps a commit index to a
    factor on everything at that commit, sentinels included. `sass` maps like `effects` to the text
    that the machine code hash is made of; by default it changes where an effect begins. `uuids`
    maps a commit index to the physical card that measured it; each series and sentinel of a card is
    off by up to `spread`. `swept` adds sizes beside the axis, traffic and launches: modelled for
    `uncounted`, counted for all others. `quality` names figures of the results of `sinkhorn`.
    """

    seed: int = 0
    cards: tuple[Card, ...] = (H200,)
    commits: int | Sequence[str] = 3
    replicates: int = 2
    ops: tuple[str, ...] = ("rms_norm", "sinkhorn")
    timers: tuple[str, ...] = ("graph", "call")
    caches: tuple[str, ...] = ("cold", "hot")
    sweep: int = 13
    samples: int = 30
    noise: float = 0.001
    failures: bool = True
    effects: Mapping[tuple[int, str, str], float] = field(default_factory=dict)
    shift: Mapping[int, float] = field(default_factory=dict)
    sass: Mapping[tuple[int, str, str], str] = field(default_factory=dict)
    versions: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    dirty: frozenset[int] = frozenset()
    uuids: Mapping[int, str] = field(default_factory=dict)
    spread: float = 0.0
    subjects: Mapping[int, str] = field(default_factory=dict)
    modes: tuple[Any, ...] = ("forward",)
    swept: bool = False
    quality: tuple[str, ...] = ()
    uncounted: str = "triton-registers"

    def shas(self) -> list[str]:
        """Return the commit hashes, oldest first."""
        if not isinstance(self.commits, int):
            return list(self.commits)
        names = (f"{self.seed}/{index}" for index in range(self.commits))
        return [hashlib.sha1(name.encode()).hexdigest() for name in names]


def build(data: Path, plan: Plan | None = None, **changes: Any) -> list[Path]:
    """Write one run a device and commit under `data/runs`, named as the store names them."""
    plan = plan or Plan(**changes)
    pairs = [(card, index) for index in range(len(plan.shas())) for card in plan.cards]
    return [write(data, list(run_records(plan, card, index))) for card, index in pairs]


def write(data: Path, records: Sequence[Any]) -> Path:
    """Write the records of one run to the file that the store would choose."""
    run = records[0]
    start = run.started_at.replace("-", "").replace(":", "")
    name = f"{start}-{(run.source.commit or 'nocommit')[:8]}-{run.run_id[:8]}.jsonl"
    path = data / "runs" / run.device.slug / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(r.dump(line) + "\n" for line in records), encoding="utf-8")
    return path


def run_records(plan: Plan, card: Card, index: int) -> Iterator[Any]:
    """Return all records of one run: the run line first, `end` last."""
    chance = random.Random(f"{plan.seed}/{card.slug}/{index}")
    yield run_line(plan, card, index)
    counts: dict[str, int] = {}
    for replicate in range(plan.replicates):
        yield from sentinels(plan, card, index, replicate, chance)
        for line in measurements(plan, card, index, replicate, chance):
            counts[line.status] = counts.get(line.status, 0) + 1
            yield line
    ended = FIRST_START + timedelta(days=index, minutes=9)
    yield r.End(ended_at=utc(ended), outcome="complete", counts=counts, seconds={"time": 540.0})


def run_line(plan: Plan, card: Card, index: int) -> r.Run:
    """Return the first line of a run."""
    shas = plan.shas()
    return r.Run(
        schema_version=1,
        run_id=hashlib.sha256(f"{plan.seed}/{card.slug}/{index}".encode()).hexdigest()[:16],
        started_at=utc(FIRST_START + timedelta(days=index)),
        purpose="measure",
        command=["python", "-m", "collector", "collect", "--replicates", str(plan.replicates)],
        device=device(card, plan.uuids.get(index, FIRST_UUID)),
        source=r.Source(
            commit=shas[index],
            dirty=index in plan.dirty,
            parents=shas[index - 1 : index] if index else [],
            subject=plan.subjects.get(index, f"Change number {index}"),
            committed_at=utc(FIRST_START + timedelta(days=index, hours=-1)),
        ),
        versions={"python": "3.12.3", "torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0"}
        | dict(plan.versions.get(index, {})),
        methods={method: {"timer": timer, "tick_ns": 32} for timer, method in GPU_METHOD.items()},
        ops=[OPS[name] for name in plan.ops],
        flags=[],
    )


def device(card: Card, uuid_hash: str) -> r.Device:
    """Return the device line of a card."""
    if card.kind == "cpu":
        return r.Device(
            slug=card.slug, kind="cpu", name="Two cores", multiprocessors=2,
            memory_bytes=8 * 2**30, l2_bytes=card.l2_bytes,
        )  # fmt: skip
    return r.Device(
        slug=card.slug, kind="cuda", name=card.slug.replace("-", " ").upper(),
        compute_capability="9.0", multiprocessors=132, memory_bytes=141 * 10**9,
        l2_bytes=card.l2_bytes, driver="580.159.04", uuid_hash=uuid_hash,
        power_limit_w=700.0, sm_clock_max_mhz=1980.0, memory_clock_max_mhz=3201.0, mig=False,
        other_processes=0,
    )  # fmt: skip


def sentinels(
    plan: Plan, card: Card, index: int, replicate: int, chance: random.Random
) -> Iterator[r.Sentinel]:
    """Return the device's own measurements before, between and after."""
    factor = plan.shift.get(index, 1.0)
    for phase in ("before", "between", "after"):
        for name, time_ns, moved, flops, special in sentinel_model(card):
            yield r.Sentinel(
                name=name, replicate=replicate, phase=phase, method_id=SENTINEL_METHOD,
                status="passed", at_s=1.0,
                latency=latency(time_ns * factor * offset(plan, index, name), plan, chance),
                bytes=moved, flops=flops,
                special_ops=special, telemetry=telemetry(card),
            )  # fmt: skip


def sentinel_model(card: Card) -> list[tuple[str, float, int, int, int]]:
    """Return (name, ns, bytes, flops, special_ops) of each sentinel of a card."""
    moved, flops = 512 * 2**20, 2 * 8192**3
    copy_ns = moved / card.bytes_per_s * 1e9
    rows = [("copy", copy_ns, moved, 0, 0), ("empty-call", card.floor_call_ns, 0, 0, 0)]
    if card.kind == "cpu":
        return [*rows, ("gemm-fp32", 2 * 1024**3 / card.flops_per_s * 1e9, 0, 2 * 1024**3, 0)]
    rows += [
        ("read", copy_ns * 1.03, moved, 0, 0),
        ("write", copy_ns * 0.92, moved, 0, 0),
        ("l2-copy", 2**24 / card.l2_bytes_per_s * 1e9, 2**24, 0, 0),
        ("fma-fp32", 10**10 / card.flops_per_s * 1e9, 0, 10**10, 0),
        ("special", 10**9 / card.special_per_s * 1e9, 0, 0, 10**9),
        ("empty", card.floor_graph_ns, 0, 0, 0),
        ("empty-submit", card.floor_call_ns * 0.6, 0, 0, 0),
    ]
    rates = {"bf16": 6.8e14, "fp16": 6.6e14, "tf32": 3.5e14}
    return rows + [
        (f"gemm-{pipe}", flops / rate * 1e9, 0, flops, 0) for pipe, rate in rates.items()
    ]


def measurements(
    plan: Plan, card: Card, index: int, replicate: int, chance: random.Random
) -> Iterator[r.Measurement]:
    """Return every case of every op in one replicate."""
    for op in plan.ops:
        for info in OPS[op].implementations:
            if card.kind == "cpu" and info.kind not in ("eager", "compiled"):
                continue
            for sizes, dtype in workloads(op, plan.sweep, plan.swept):
                for mode in plan.modes:
                    given = (card, index, replicate, chance, op, info, sizes, dtype, mode)
                    yield from cases(plan, *given)


def cases(
    plan: Plan, card: Card, index: int, replicate: int, chance: random.Random,
    op: str, info: r.ImplementationInfo, sizes: dict[str, int], dtype: str, mode: Any,
) -> Iterator[r.Measurement]:  # fmt: skip
    """Return one implementation at one workload: every timer and cache, details once."""
    status, reason = status_of(plan, op, info.name, sizes)
    work = cost(op, sizes, dtype)
    if plan.swept:
        moved = work.minimal_bytes * (1 if info.kind == "triton" else 22)
        modelled = {"traffic_bytes": moved, "launches": 2 if mode == "forward" else None}
        work = work.model_copy(update=modelled)
    factor = {"forward": 1.0, "backward": 1.6, "full": 2.5}[mode]
    timers = plan.timers if card.kind == "cuda" else ("call",)
    first = True
    for timer in timers:
        for cache in plan.caches:
            time_ns = model_ns(card, op, info.name, work, timer, cache)
            time_ns *= factor * effect(plan, index, op, info.name) * plan.shift.get(index, 1.0)
            time_ns *= offset(plan, index, f"{op} {info.name} {sizes} {dtype} {timer} {cache}")
            ran = status == "passed"
            sets = 8 if cache == "cold" else 1
            yield r.Measurement(
                case=r.Case(
                    op=op, implementation=info.name, mode=mode,
                    workload=r.WorkloadKey(sizes=sizes, dtype=dtype), timer=timer, cache=cache,
                ),
                workload_hash=r.identity(op, sizes, dtype), method_id=GPU_METHOD[timer],
                replicate=replicate, status=status, reason=reason, at_s=2.0,
                latency=latency(time_ns, plan, chance, sets) if ran else None,
                cost=work if first else None,
                correctness=correctness(status) if first else None,
                codegen=codegen(plan, index, op, info) if first and ran else None,
                telemetry=telemetry(card) if ran else None,
                peak_memory_bytes=work.minimal_bytes if first and ran else None,
                quality=quality(plan, sizes) if first and ran and op == "sinkhorn" else None,
                graph_nodes=nodes(plan, info) if first and ran else None,
                compile_seconds=0.8 if first and ran and info.kind != "eager" else None,
                flags=[],
            )  # fmt: skip
            first = False


def quality(plan: Plan, sizes: Mapping[str, int]) -> dict[str, float] | None:
    """Return figures that fall with the iterations."""
    return dict.fromkeys(plan.quality, 0.8 * 0.7 ** sizes["n_iter"]) or None


def nodes(plan: Plan, info: r.ImplementationInfo) -> int | None:
    """Return the launches of a call as counted."""
    if not plan.swept or info.name == plan.uncounted:
        return None
    return {"triton": 1, "compiled": 41}.get(info.kind, 83)


def workloads(op: str, sweep: int, swept: bool = False) -> list[tuple[dict[str, int], str]]:
    """Return (sizes, dtype) of an op; `sweep` bounds the length of its curve."""
    if op == "sinkhorn":
        sizes = [(4**k, 4, 20) for k in range(sweep)]
        if swept:
            sizes += [(4**10, 4, n_iter) for n_iter in (1, 5, 10, 50)]
            sizes += [(4**8, n, 20) for n in (2, 8, 16, 32)]
            sizes += [(4**12, 4, 1)]
        return [({"batch": b, "n": n, "n_iter": i}, "float32") for b, n, i in dict.fromkeys(sizes)]
    rows = [1, 4, 16, 64, 256, 1024, 4096, 16384][:sweep]
    curve = [({"rows": row, "hidden": 4096}, "float16") for row in rows]
    seeds = [(128, 1024), (512, 4096), (2048, 4096)]
    return curve + [({"rows": row, "hidden": hidden}, "bfloat16") for row, hidden in seeds]


def cost(op: str, sizes: Mapping[str, int], dtype: str) -> r.CostRecord:
    """Return the work of a workload, by the formulas of the two ops."""
    if op == "sinkhorn":
        batch, n, steps = sizes["batch"], sizes["n"], sizes["n_iter"]
        return r.CostRecord(
            flops=batch * ((4 * n * n + 2 * n) * steps + 2 * n * n),
            minimal_bytes=8 * n * n * batch,
            special_ops=batch * (n * n + 2 * n * steps),
            pipe="fp32",
        )
    rows, hidden = sizes["rows"], sizes["hidden"]
    return r.CostRecord(
        flops=4 * rows * hidden + 2 * rows,
        minimal_bytes=(2 * rows * hidden + hidden) * ELEMENT_BYTES[dtype],
        special_ops=rows,
        pipe="fp32",
    )


SLOWNESS = {
    ("rms_norm", "triton"): 1.05, ("rms_norm", "torch"): 2.4, ("rms_norm", "torch-native"): 1.5,
    ("rms_norm", "torch.compile"): 1.1, ("rms_norm", "liger"): 1.12, ("sinkhorn", "torch"): 400.0,
    ("sinkhorn", "torch.compile"): 350.0, ("sinkhorn", "triton-global"): 40.0,
    ("sinkhorn", "triton-registers"): 12.0, ("sinkhorn", "triton-packed"): 1.6,
}  # fmt: skip
HOST_NS = {"torch": 30_000.0, "torch-native": 12_000.0, "torch.compile": 10_000.0}


def model_ns(
    card: Card, op: str, implementation: str, work: r.CostRecord, timer: str, cache: str
) -> float:
    """Return the invented time: the longest of floor, memory and arithmetic, times a factor."""
    fits = cache == "hot" and work.minimal_bytes <= card.l2_bytes
    rate = card.l2_bytes_per_s if fits else card.bytes_per_s
    roof_ns = max(
        work.minimal_bytes / rate * 1e9,
        work.flops / card.flops_per_s * 1e9,
        work.special_ops / card.special_per_s * 1e9,
    )
    device_ns = 2.5 * card.floor_graph_ns + roof_ns * SLOWNESS[op, implementation]
    host_ns = card.floor_call_ns + HOST_NS.get(implementation, 0.0)
    if timer == "graph":
        return device_ns
    return max(device_ns, host_ns) if timer == "call" else 0.7 * host_ns


def effect(plan: Plan, index: int, op: str, implementation: str) -> float:
    """Return the product of all effects of this op and implementation up to a commit."""
    hits = (
        factor
        for (since, name, how), factor in plan.effects.items()
        if since <= index and (name, how) == (op, implementation)
    )
    return math.prod(hits)


def offset(plan: Plan, index: int, name: str) -> float:
    """Return how far off this very card is for one series or sentinel: the same at every commit."""
    chance = random.Random(f"{plan.seed}/{plan.uuids.get(index, FIRST_UUID)}/{name}")
    return math.exp(chance.uniform(-plan.spread, plan.spread))


def status_of(
    plan: Plan, op: str, implementation: str, sizes: Mapping[str, int]
) -> tuple[r.Status, str | None]:
    """Return the invented status and its reason."""
    if not plan.failures:
        return "passed", None
    if implementation == "liger":
        return "unavailable", "package liger_kernel is not installed"
    table: dict[tuple[str, str, int], tuple[r.Status, str]] = {
        ("sinkhorn", "torch", 4**12): ("oom", "out of memory: 32 GiB asked for"),
        ("sinkhorn", "triton-global", 4**12): ("timeout", "no result within 60 s"),
        ("sinkhorn", "triton-registers", 4**11): ("incorrect", "worst error 3.1 times its bound"),
        ("rms_norm", "torch-native", 16384): ("skipped", "budget ended before this case"),
        ("rms_norm", "torch", 1): ("error", "RuntimeError: device-side assert"),
    }
    size = sizes.get("batch", sizes.get("rows", 0))
    return table.get((op, implementation, size), ("passed", None))


def latency(time_ns: float, plan: Plan, chance: random.Random, sets: int = 1) -> r.Latency:
    """Return a summary of samples around a time: process noise, then sample noise."""
    calls = max(1, round(1e6 / time_ns))
    centre = time_ns * calls * math.exp(chance.gauss(0.0, plan.noise))
    raw = (centre * math.exp(abs(chance.gauss(0.0, plan.noise))) for _ in range(plan.samples))
    return summary([max(1, round(value)) for value in raw], calls, sets)


def summary(samples_ns: list[int], calls: int = 1, sets: int = 1) -> r.Latency:
    """Return the latency record of samples, as the collector would summarise them."""
    row = sorted(sample / calls for sample in samples_ns)
    n = len(row)
    half = 0.98 * math.sqrt(n)
    low, high = int(max(0, n / 2 - half)), int(min(n - 1, n / 2 + half))
    middle = (row[(n - 1) // 2] + row[n // 2]) / 2
    return r.Latency(
        median_ns=middle, q01_ns=row[n // 100], q25_ns=min(row[n // 4], middle),
        q75_ns=max(row[(3 * n) // 4], middle), q99_ns=row[(99 * n) // 100],
        min_ns=row[0], max_ns=row[-1], ci_low_ns=min(row[low], middle),
        ci_high_ns=max(row[high], middle), samples=n, calls=calls, sets=sets, stopped="settled",
        encoded=r.encode_samples(samples_ns),
    )  # fmt: skip


def correctness(status: r.Status) -> r.Correctness | None:
    """Return the check that belongs to a status."""
    if status == "passed":
        return r.Correctness(
            max_abs_error=2.6e-7, norm_error=1.1e-7, bound_ratio=0.12, checked="before-and-after"
        )
    if status == "incorrect":
        return r.Correctness(
            max_abs_error=3.1e-6, norm_error=2e-6, bound_ratio=3.1, checked="before"
        )
    return None


def codegen(
    plan: Plan, index: int, op: str, info: r.ImplementationInfo
) -> list[r.KernelCode] | None:
    """Return what the compiler made; the machine code changes where an effect begins."""
    if info.kind != "triton":
        return None
    texts = dict(plan.effects) | dict(plan.sass)
    since = [
        (commit, str(text))
        for (commit, name, how), text in texts.items()
        if commit <= index and (name, how) == (op, info.name)
    ]
    return [
        r.KernelCode(
            name=f"{op}_kernel", registers=40, spills=0, shared_bytes=512, num_warps=4,
            constants="BLOCK=256", sass_hash=r.identity(op, info.name, since),
            source_hash=r.identity(op, info.name, "source", since),
        )
    ]  # fmt: skip


def telemetry(card: Card) -> r.Telemetry | None:
    """Return the state of a card."""
    if card.kind == "cpu":
        return None
    return r.Telemetry(
        sm_clock_mhz=1980.0, memory_clock_mhz=3201.0, power_w=520.0, temperature_c=61.0,
        event_reasons=0,
    )  # fmt: skip


def utc(when: datetime) -> str:
    """Write a time as the record wants it."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def infos(rows: Iterable[tuple[str, str, str]]) -> list[r.ImplementationInfo]:
    """Return catalogue entries of implementations."""
    return [r.ImplementationInfo(name=n, kind=kind, summary=text) for n, kind, text in rows]


OPS = {
    "rms_norm": r.OpInfo(
        name="rms_norm", title="RMSNorm", axis="rows", baseline="torch.compile", regions=[],
        summary="Root-mean-square normalisation of rows.", inputs="standard normal, seed 0",
        formula="y = x * rsqrt(mean(x^2) + eps) * w",
        implementations=infos([
            ("triton", "triton", "One pass, rows in registers."),
            ("torch", "eager", "Eager formula."),
            ("torch-native", "eager", "torch.nn.functional.rms_norm."),
            ("torch.compile", "compiled", "The eager formula, compiled."),
            ("liger", "library", "Liger Kernel."),
        ]),
    ),
    "sinkhorn": r.OpInfo(
        name="sinkhorn", title="Sinkhorn", axis="batch", baseline="torch.compile", regions=[],
        summary="Doubly stochastic scaling of small matrices.", inputs="standard normal, seed 0",
        formula="u = 1 / (M v + eps); v = 1 / (M' u + eps); out = u M v'",
        implementations=infos([
            ("torch", "eager", "Eager loop."),
            ("torch.compile", "compiled", "The eager loop, compiled."),
            ("triton-global", "triton", "Scalers in registers, matrix in global memory."),
            ("triton-registers", "triton", "All in registers."),
            ("triton-packed", "triton", "Many matrices a program."),
        ]),
    ),
}  # fmt: skip
