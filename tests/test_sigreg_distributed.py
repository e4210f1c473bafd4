"""SIGReg over ranks: the loss and the gradients of one rank that holds all rows."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from kernels import ranks
from kernels.numerics import compare
from kernels.ops import sigreg, sigreg_strong, sigreg_sync, sigreg_weak
from kernels.sigreg.function import SIGReg
from kernels.spec import Workload

DIM, SLICES, POINTS = 6, 5, 5
SIZES = {"ranks": 2, "dim": DIM, "slices": SLICES, "points": POINTS}
CASES = (
    (sigreg_strong.OP, Workload({**SIZES, "batch": 12}, "float32")),
    (sigreg_weak.OP, Workload({**SIZES, "rows_per_rank": 6}, "float32")),
    (sigreg_sync.OP, Workload({"ranks": 2, "slices": SLICES, "points": POINTS}, "float32")),
)


def model():
    torch.manual_seed(3)
    return torch.nn.Linear(DIM, DIM)


def rows_of(sizes):
    return torch.randn(sum(sizes), DIM, generator=torch.Generator().manual_seed(1)).split(sizes)


def drawn(op, mode, workload):
    return op.draw(mode, workload, torch.Generator().manual_seed(5), "cpu")


def over_ranks():
    """Run every op over ranks in every mode; returns what this rank holds, by case."""
    found = {}
    for op, workload in CASES:
        for implementation in op.implementations:
            for mode in ("forward", "backward", "full"):
                if builder := implementation.builder(mode):
                    made = builder(drawn(op, mode, workload))()
                    found[op.name, implementation.name, mode] = made
    return found


def rank_main(rank, sizes, address, results):
    """Take a step of DistributedDataParallel and report loss and gradient."""
    dist.init_process_group(
        "gloo", init_method=f"file://{address}", rank=rank, world_size=len(sizes)
    )
    wrapped = torch.nn.parallel.DistributedDataParallel(model())
    test = SIGReg(SLICES, POINTS, clip="zero", clip_value=0.2)
    loss = test(wrapped(rows_of(sizes)[rank]))
    loss.backward()
    cases = over_ranks() if len(set(sizes)) == 1 else {}
    results[rank] = loss.detach(), wrapped.module.weight.grad.clone(), test.key.clone(), cases
    dist.destroy_process_group()


def results_of(sizes, folder):
    results = mp.get_context("spawn").Manager().dict()
    arguments = (sizes, str(folder / "ranks"), results)
    mp.start_processes(rank_main, arguments, nprocs=len(sizes), start_method="spawn")
    return [results[rank] for rank in range(len(sizes))]


@pytest.fixture(scope="module")
def evenly(tmp_path_factory):
    return results_of((6, 6), tmp_path_factory.mktemp("evenly"))


@pytest.fixture(scope="module")
def unevenly(tmp_path_factory):
    return results_of((3, 8), tmp_path_factory.mktemp("unevenly"))


@pytest.mark.parametrize(("shared", "sizes"), [("evenly", (6, 6)), ("unevenly", (3, 8))])
def test_ranks_have_the_loss_and_gradient_of_one_rank_with_all_rows(shared, sizes, request):
    alone = model()
    test = SIGReg(SLICES, POINTS, clip="zero", clip_value=0.2)
    loss = test(alone(torch.cat(rows_of(sizes))))
    loss.backward()
    for found, grad, key, _ in request.getfixturevalue(shared):
        torch.testing.assert_close(found, loss.detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(grad, alone.weight.grad, atol=1e-6, rtol=1e-4)
        assert torch.equal(key, test.key)


def test_losses_that_are_timed_over_ranks_are_those_of_one_rank_with_all_rows(evenly):
    alone = sigreg.OP.implementation("torch")
    for op, workload in CASES[:2]:
        loss = alone.build(drawn(op, "forward", workload))()
        pulled = alone.full(drawn(op, "full", workload))().split(6)
        for rank, (*_, cases) in enumerate(evenly):
            for implementation in op.implementations:
                made = [cases[op.name, implementation.name, mode] for mode in op_modes(op)]
                torch.testing.assert_close(made[0], loss, atol=1e-6, rtol=2e-5)
                # The mean over ranks of these is the gradient of the global loss.
                for gradient in made[1:]:
                    torch.testing.assert_close(gradient / 2, pulled[rank], atol=1e-4, rtol=1e-4)


def op_modes(op):
    return ("forward", "backward", "full") if op.gradient else ("forward",)


def test_sums_and_gradients_over_ranks_are_within_the_bounds_of_the_oracle(evenly, monkeypatch):
    monkeypatch.setattr(ranks, "count", lambda: 2)
    for op, workload in CASES:
        for rank, (*_, cases) in enumerate(evenly):
            monkeypatch.setattr(ranks, "own", lambda rank=rank: rank)
            for implementation in op.implementations:
                for mode in op_modes(op):
                    truth = op.truth(mode, drawn(op, mode, workload))
                    made = cases[op.name, implementation.name, mode]
                    assert compare(made, truth, op.bounds(mode, "float32")).bound_ratio <= 1
