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
SHARES = {"evenly": (6, 6), "unevenly": (3, 8)}


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


def rank_main(rank, folder):
    """Take a step for each way to share rows out, and every case; write what came out."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    made = [step(rank, sizes) for sizes in SHARES.values()]
    torch.save((made, over_ranks()), folder / f"{rank}.pt")
    dist.destroy_process_group()


def step(rank, sizes):
    """Take a step of DistributedDataParallel; return loss, gradient and key."""
    wrapped = torch.nn.parallel.DistributedDataParallel(model())
    test = SIGReg(SLICES, POINTS, clip="zero", clip_value=0.2)
    loss = test(wrapped(rows_of(sizes)[rank]))
    loss.backward()
    return loss.detach(), wrapped.module.weight.grad.clone(), test.key.clone()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return what each rank made: its steps, and its cases."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.start_processes(rank_main, (folder,), nprocs=2, start_method="spawn")
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("shared", SHARES)
def test_ranks_have_the_loss_and_gradient_of_one_rank_with_all_rows(made, shared):
    alone = model()
    test = SIGReg(SLICES, POINTS, clip="zero", clip_value=0.2)
    loss = test(alone(torch.cat(rows_of(SHARES[shared]))))
    loss.backward()
    place = list(SHARES).index(shared)
    for found, grad, key in (steps[place] for steps, _ in made):
        torch.testing.assert_close(found, loss.detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(grad, alone.weight.grad, atol=1e-6, rtol=1e-4)
        assert torch.equal(key, test.key)


def test_losses_that_are_timed_over_ranks_are_those_of_one_rank_with_all_rows(made):
    alone = sigreg.OP.implementation("torch")
    for op, workload in CASES[:2]:
        loss = alone.build(drawn(op, "forward", workload))()
        pulled = alone.full(drawn(op, "full", workload))().split(6)
        for rank, (_, cases) in enumerate(made):
            for implementation in op.implementations:
                found = [cases[op.name, implementation.name, mode] for mode in op_modes(op)]
                torch.testing.assert_close(found[0], loss, atol=1e-6, rtol=2e-5)
                # The mean over ranks of these is the gradient of the global loss.
                for gradient in found[1:]:
                    torch.testing.assert_close(gradient / 2, pulled[rank], atol=1e-4, rtol=1e-4)


def op_modes(op):
    return ("forward", "backward", "full") if op.gradient else ("forward",)


def test_sums_and_gradients_over_ranks_are_within_the_bounds_of_the_oracle(made, monkeypatch):
    monkeypatch.setattr(ranks, "count", lambda: 2)
    for op, workload in CASES:
        for rank, (_, cases) in enumerate(made):
            monkeypatch.setattr(ranks, "own", lambda rank=rank: rank)
            for implementation in op.implementations:
                for mode in op_modes(op):
                    truth = op.truth(mode, drawn(op, mode, workload))
                    found = cases[op.name, implementation.name, mode]
                    assert compare(found, truth, op.bounds(mode, "float32")).bound_ratio <= 1
