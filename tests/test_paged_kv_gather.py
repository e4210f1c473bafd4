import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.ops.paged_kv_gather import (
    OP,
    gather_pages,
    gather_rows,
    launch_for,
    pages_held,
    reference,
    selected,
)
from kernels.spec import Workload

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def normal(*shape, dtype=torch.float16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def workload(rows, hidden, page_size=1, caches=1, dtype="float16"):
    sizes = {"rows": rows, "hidden": hidden, "page_size": page_size, "caches": caches}
    return Workload(sizes, dtype)


def expected_rows(cache, table, rows):
    """Copy row by row; rows of pages that do not exist stay zero."""
    caches, pages, page_size, hidden = cache.shape
    out = torch.zeros(caches, rows, hidden, dtype=cache.dtype)
    for row in range(rows):
        page = int(table[row // page_size])
        if 0 <= page < pages:
            out[:, row] = cache[:, page, row % page_size]
    return out


def bits(x):
    return x.contiguous().view(torch.int16)


def test_minimal_bytes_reproduce_the_published_bandwidth():
    cost = OP.cost(workload(512, 128), "forward")
    assert cost.minimal_bytes == 264_192
    # Printed to four decimals of a ms, 5.7 us is 5.65 to 5.75.
    assert cost.minimal_bytes / 5.75e-6 / 1e9 < 46.4 < cost.minimal_bytes / 5.65e-6 / 1e9


def test_minimal_bytes_of_pages_count_one_number_a_page_and_both_caches():
    cost = OP.cost(workload(33, 80, page_size=16, caches=2, dtype="float32"), "forward")
    assert cost.minimal_bytes == 2 * 2 * 33 * 80 * 4 + 3 * 4
    assert cost.flops == 0


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_a_quarter_of_the_cache_is_gathered_and_no_page_twice(rows):
    made = OP.make_inputs(workload(rows, 8, 2), torch.Generator().manual_seed(0), "cpu")
    gathered = math.ceil(rows / 2)
    assert made["cache"].shape[1] == pages_held(workload(rows, 8, 2)) == max(4 * gathered, 2)
    assert made["table"].unique().numel() == made["table"].numel() == gathered


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_page_numbers_of_both_widths_give_the_same_rows(dtype):
    cache, table = normal(2, 6, 4, 24), torch.tensor([5, 0, 3], dtype=dtype)
    out = gather_pages(cache, table, 11)
    assert torch.equal(out, expected_rows(cache, table, 11))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("caches", [1, 2, 3])
def test_every_row_is_that_of_its_page_and_slot(page_size, caches, dtype):
    cache = normal(caches, 9, page_size, 40, dtype=dtype)
    table = torch.tensor([8, 2, 0, 7, 5], dtype=torch.int32)
    rows = 5 * page_size - page_size // 2
    out = gather_pages(cache, table, rows)
    assert torch.equal(out, expected_rows(cache, table, rows))
    assert torch.equal(out, reference(cache, table, rows))
    assert torch.equal(out, selected(cache, table, rows))


def test_bits_are_copied_those_of_nan_included():
    pattern = torch.arange(-(2**15), 2**15, 7, dtype=torch.int32).to(torch.int16)
    cache = pattern[: 9 * 1024].reshape(9, 1024).view(torch.float16)
    rows = torch.tensor([4, 0, 8], dtype=torch.int32)
    assert cache.isnan().any()
    assert torch.equal(bits(gather_rows(cache, rows)), bits(cache)[rows.long()])


def test_page_used_twice_is_gathered_twice():
    source = normal(4, 32)
    rows = torch.tensor([3, 3, 0, 3], dtype=torch.int32)
    assert torch.equal(gather_rows(source, rows), source[rows.long()])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_pages_that_do_not_exist_give_zeros_and_leave_the_others(dtype):
    beyond = [-1, -(2**31), 7, 2**31 - 1]
    cache = normal(2, 7, 4, 16)
    table = torch.tensor([2, *beyond, 6, *beyond, 0], dtype=dtype)
    rows = 4 * len(table) - 1
    assert torch.equal(gather_pages(cache, table, rows), expected_rows(cache, table, rows))


def test_wide_page_numbers_are_not_cut_to_32_bits():
    table = torch.tensor([2**32 + 1, 1, -(2**32)])
    out = gather_rows(normal(3, 16), table)
    assert torch.equal(out[[0, 2]], torch.zeros(2, 16, dtype=torch.float16))
    assert out[1].count_nonzero()


def test_nothing_is_read_beside_the_named_pages():
    cache = torch.full((1, 5, 2, 16), math.nan, dtype=torch.float16)
    cache[:, [1, 3]] = 1.0
    out = gather_pages(cache, torch.tensor([3, 1, -1], dtype=torch.int32), 6)
    assert out.flatten(2)[0, :4].eq(1).all()
    assert out[0, 4:].eq(0).all()


LAYOUTS = {
    "keys and values of a page side by side": lambda: normal(9, 2, 4, 24).transpose(0, 1),
    "heads before slots": lambda: normal(2, 9, 24, 4).transpose(2, 3),
    "one head of many": lambda: normal(2, 9, 4, 5, 24)[:, :, :, 3],
    "shifted by one element": lambda: normal(2, 9, 4, 25)[..., 1:],
    "every other element": lambda: normal(2, 9, 4, 48)[..., ::2],
    "one page repeated": lambda: normal(2, 1, 4, 24).expand(-1, 9, -1, -1),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_of_the_cache_does_not_matter(make):
    cache, table = make(), torch.tensor([8, 0, 5], dtype=torch.int32)
    assert torch.equal(gather_pages(cache, table, 12), expected_rows(cache, table, 12))


def test_strided_table_is_read_in_its_order():
    source, rows = normal(6, 16), torch.tensor([5, 0, 2, 1, 4, 3], dtype=torch.int32)[::2]
    assert torch.equal(gather_rows(source, rows), source[rows.long()])


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_offsets_beyond_32_bits_are_reached(dimension):
    far = 2**31 + 16
    strides, shape = [192, 64, 32, 1], [1, 1, 1, 32]
    strides[dimension], shape[dimension] = far, 2
    # Pages that nobody touches cost nothing.
    cache = torch.empty(far + 512, dtype=torch.float16).as_strided(shape, strides)
    cache.copy_(normal(*shape))
    table = torch.arange(shape[1] - 1, -1, -1, dtype=torch.int32)
    rows = table.numel() * shape[2]
    assert torch.equal(gather_pages(cache, table, rows), expected_rows(cache, table, rows))


def test_page_offset_beyond_32_bits_is_reached_by_page_number():
    page_elements = 2**20
    cache = torch.empty(2**31 + 2**21, dtype=torch.float16).as_strided(
        (1, 2**11 + 2, 1, 64), (0, page_elements, 64, 1)
    )
    cache[0, 2**11 + 1] = 3.0
    out = gather_pages(cache, torch.tensor([2**11 + 1], dtype=torch.int32), 1)
    assert out.eq(3).all()


@pytest.mark.parametrize("shape", [(1, 3, 2, 8), (2, 3, 2, 0), (0, 3, 2, 8)])
def test_empty_problem_gives_an_empty_result(shape):
    rows = 0 if shape[0] == 1 else 2
    table = torch.zeros(rows, dtype=torch.int32)
    assert gather_pages(torch.empty(shape), table, rows).shape == (shape[0], rows, shape[3])


def test_cache_without_pages_gives_zeros():
    out = gather_pages(torch.empty(2, 0, 4, 8), torch.tensor([0], dtype=torch.int32), 3)
    assert torch.equal(out, torch.zeros(2, 3, 8))


def test_table_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="2 pages of 4 rows do not hold 9 rows"):
        gather_pages(normal(1, 3, 4, 8), torch.tensor([0, 1], dtype=torch.int32), 9)


@given(st.integers(1, 100_000), st.sampled_from([2, 4]))
def test_launch_is_a_power_of_two_with_few_bytes_a_thread(hidden, element_bytes):
    launch = launch_for(hidden, element_bytes)
    assert all(size & (size - 1) == 0 for size in launch)
    assert launch.block_rows * launch.block_hidden * element_bytes <= 64 * 32 * launch.num_warps
    assert launch.num_warps <= 8
