from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.plan import CollectOptions, PlanError, ordered, plan, to_build, workload_hash
from kernels.registry import load_ops
from kernels.spec import Workload

OPS = load_ops()


def test_a_gpu_times_default_workloads_under_graph_and_call():
    jobs = plan(OPS, CollectOptions(), "cuda")
    assert {series for job in jobs for series in job.series} == {
        ("graph", "cold"), ("graph", "hot"), ("call", "hot"),
    }  # fmt: skip
    assert all("default" in job.workload.tags and not job.check for job in jobs)


def test_the_time_to_enqueue_is_measured_where_it_is_named():
    jobs = plan(OPS, CollectOptions(timers=("submit",)), "cuda")
    assert {job.series for job in jobs} == {(("submit", "hot"),)}


def test_backward_passes_are_measured_where_they_or_their_sizes_are_asked_for():
    def modes(**chosen):
        return {job.mode for job in plan(OPS, CollectOptions(ops=("sinkhorn",), **chosen), "cuda")}

    assert modes() == {"forward"}
    assert modes(workloads=("full",)) == {"forward", "backward", "full"}
    assert modes(modes=("backward",)) == {"backward"}


def test_only_implementations_that_have_a_mode_are_planned_in_it():
    jobs = plan(OPS, CollectOptions(ops=("sinkhorn",), modes=("backward",)), "cuda")
    op = OPS["sinkhorn"]
    assert {job.implementation for job in jobs} == {
        i.name for i in op.implementations if i.backward
    }


def test_a_cpu_times_torch_and_checks_triton_on_smoke_workloads():
    for job in plan(OPS, CollectOptions(), "cpu"):
        kind = OPS[job.op].implementation(job.implementation).kind
        assert job.check == (kind in ("triton", "library"))
        assert ("smoke" if job.check else "cpu") in job.workload.tags
        assert job.series == (("call", "hot"),)


def test_every_implementation_of_a_workload_is_planned_together():
    jobs = ordered(plan(OPS, CollectOptions(), "cuda"), 1)
    seen: list[tuple[str, str]] = []
    for job in jobs:
        key = (job.op, job.workload.key)
        if key not in seen:
            seen.append(key)
        assert seen[-1] == key


@given(st.integers(0, 20))
def test_a_replicate_runs_the_same_jobs_in_another_order(replicate):
    jobs = plan(OPS, CollectOptions(ops=("sinkhorn",)), "cuda")
    again = ordered(jobs, replicate + 1)
    assert Counter(again) == Counter(jobs)
    assert again != ordered(jobs, replicate)


def test_no_implementation_is_always_first():
    jobs = plan(OPS, CollectOptions(ops=("sinkhorn",)), "cuda")
    firsts = Counter()
    for replicate in range(6):
        seen = set()
        for job in ordered(jobs, replicate):
            if job.workload.key not in seen:
                seen.add(job.workload.key)
                firsts[job.implementation] += 1
    assert set(firsts) == {i.name for i in OPS["sinkhorn"].implementations}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ops": ("rmsnorm",)}, "unknown op 'rmsnorm'; there are: "),
        ({"implementations": ("cuda",)}, "unknown implementation 'cuda'; there are: "),
        ({"modes": ("reverse",)}, "unknown mode 'reverse'; there are: forward, backward, full"),
        ({"dtypes": ("fp16",)}, "unknown dtype 'fp16'; there are: "),
        ({"timers": ("cpu",)}, "unknown timer 'cpu'; there are: "),
        ({"caches": ("warm",)}, "unknown cache 'warm'; there are: "),
        ({"workloads": ("big",)}, "give a tag"),
        ({"workloads": ("rows=x",)}, "give a tag"),
        ({"workloads": ("raws=1",)}, "unknown size 'raws'"),
        ({"workloads": ("batch=19",)}, "no workload of"),
        ({"replicates": 0}, "at least 1"),
        ({"ops": ("sinkhorn",), "dtypes": ("float64",)}, "unknown dtype"),
    ],
)
def test_a_selection_that_does_not_exist_is_refused_with_what_does(options, told):
    with pytest.raises(PlanError, match=told):
        plan(OPS, CollectOptions(**options), "cuda")


def test_a_workload_is_chosen_by_its_sizes():
    jobs = plan(OPS, CollectOptions(workloads=("batch=1024,n_iter=20",)), "cuda")
    assert {job.workload["batch"] for job in jobs} == {1024}
    assert {job.op for job in jobs} >= {"sinkhorn"}


def test_full_takes_in_default():
    default = set(plan(OPS, CollectOptions(workloads=("default",)), "cuda"))
    assert default < set(plan(OPS, CollectOptions(workloads=("full",)), "cuda"))


def test_the_workload_hash_covers_what_moves_a_number_and_not_its_tags():
    op, other = OPS["rms_norm"], OPS["sinkhorn"]
    workload = Workload({"rows": 8, "hidden": 64}, "float16")
    same = workload_hash(op, replace(workload, tags=frozenset({"smoke"})))
    changed = {
        workload_hash(op, replace(workload, dtype="bfloat16")),
        workload_hash(op, Workload({"rows": 9, "hidden": 64}, "float16")),
        workload_hash(replace(op, inputs="zeros"), workload),
        workload_hash(replace(op, params={"eps": 1.0}), workload),
        workload_hash(other, workload),
    }
    assert workload_hash(op, workload) == same
    assert len(changed) == 5
    assert same not in changed


def test_all_that_compiles_without_timing_is_built_once():
    jobs = plan(OPS, CollectOptions(), "cuda")
    built = to_build(OPS, [*jobs, *jobs])
    wanted_jobs = {
        job
        for job in jobs
        if OPS[job.op].implementation(job.implementation).kind in ("triton", "library")
        and OPS[job.op].implementation(job.implementation).unsupported(job.workload) is None
    }
    assert Counter(built) == Counter(wanted_jobs)


def test_the_first_jobs_to_be_built_are_of_different_implementations():
    built = to_build(OPS, plan(OPS, CollectOptions(), "cuda"))
    assert len({(job.op, job.implementation) for job in built[:8]}) == 8
