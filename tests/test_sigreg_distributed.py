"""SIGReg over ranks: the loss and the gradients of one rank that holds all rows."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from kernels.sigreg.function import SIGReg

DIM, SLICES, POINTS = 6, 5, 5


def model():
    torch.manual_seed(3)
    return torch.nn.Linear(DIM, DIM)


def rows_of(sizes):
    return torch.randn(sum(sizes), DIM, generator=torch.Generator().manual_seed(1)).split(sizes)


def rank_main(rank, sizes, address, results):
    """Take a step of DistributedDataParallel and report loss and gradient."""
    dist.init_process_group(
        "gloo", init_method=f"file://{address}", rank=rank, world_size=len(sizes)
    )
    wrapped = torch.nn.parallel.DistributedDataParallel(model())
    test = SIGReg(SLICES, POINTS, clip="zero", clip_value=0.2)
    loss = test(wrapped(rows_of(sizes)[rank]))
    loss.backward()
    results[rank] = loss.detach(), wrapped.module.weight.grad.clone(), test.key.clone()
    dist.destroy_process_group()


@pytest.mark.parametrize("sizes", [(6, 6), (3, 8)])
def test_ranks_have_the_loss_and_gradient_of_one_rank_with_all_rows(sizes, tmp_path):
    results = mp.get_context("spawn").Manager().dict()
    arguments = (sizes, str(tmp_path / "ranks"), results)
    mp.start_processes(rank_main, arguments, nprocs=len(sizes), start_method="spawn")
    alone = model()
    test = SIGReg(SLICES, POINTS, clip="zero", clip_value=0.2)
    loss = test(alone(torch.cat(rows_of(sizes))))
    loss.backward()
    for found, grad, key in results.values():
        torch.testing.assert_close(found, loss.detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(grad, alone.weight.grad, atol=1e-6, rtol=1e-4)
        assert torch.equal(key, test.key)
