import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.ops.selected_attention import (
    BLOCK,
    OP,
    launch_for,
    reference,
    selected_attention,
    with_sdpa,
)
from kernels.spec import Workload

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# Few heads and many positions: split, and combined by a second kernel.
SPLIT = 700


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def problem(sequences=1, kv_heads=2, queries=3, selected=40, head_dim=32, dtype=torch.float32):
    """Draw queries, keys, values and positions of a context twice as long."""
    q = normal(sequences, kv_heads, queries, head_dim, dtype=dtype)
    k, v = (
        normal(sequences, kv_heads, 2 * selected, head_dim, dtype=dtype, seed=s) for s in (1, 2)
    )
    order = torch.rand(k.shape[:3], generator=torch.Generator().manual_seed(3)).argsort(dim=2)
    return q, k, v, order[:, :, :selected].to(torch.int32)


def one_by_one(q, k, v, positions):
    """Attend query by query over the positions that exist, in float64."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for s, h, i in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        at = positions[s, h].long()
        at = at[(at >= 0) & (at < k.shape[2])]
        if len(at):
            scores = k[s, h, at].double() @ q[s, h, i].double() / math.sqrt(q.shape[3])
            out[s, h, i] = torch.softmax(scores, dim=0) @ v[s, h, at].double()
    return out


def assert_close(out, exact, atol=2e-6):
    torch.testing.assert_close(out.double(), exact.double(), atol=atol, rtol=1e-5)


def workload(sequences, kv_heads, queries, selected, head_dim, dtype="bfloat16"):
    names = ("sequences", "kv_heads", "queries", "selected", "head_dim")
    sizes = (sequences, kv_heads, queries, selected, head_dim)
    return Workload(dict(zip(names, sizes, strict=True)), dtype)


@pytest.mark.parametrize(
    ("selected", "shown_bytes", "milliseconds", "printed_gb_per_s"),
    [(64, 33_536, 0.0064, 5.3), (256, 132_608, 0.0115, 11.5)],
)
def test_minimal_bytes_reproduce_published_bandwidths(
    selected, shown_bytes, milliseconds, printed_gb_per_s
):
    cost = OP.cost(workload(1, 1, 1, selected, 128), "forward")
    assert cost.minimal_bytes == shown_bytes
    assert cost.flops == 4 * selected * 128 + 5 * selected
    # Time and bandwidth are printed rounded.
    slow, fast = (shown_bytes / (milliseconds + d) / 1e6 for d in (5e-5, -5e-5))
    assert slow - 0.05 < printed_gb_per_s < fast + 0.05


def test_minimal_bytes_count_keys_and_values_once_for_all_queries_of_a_head():
    cost = OP.cost(workload(2, 3, 8, 100, 64, dtype="float32"), "forward")
    assert cost.minimal_bytes == 2 * 3 * (2 * 100 * 64 * 4 + 100 * 4 + 2 * 8 * 64 * 4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("selected", [1, 63, 64, 65, SPLIT])
def test_result_is_softmax_over_the_selected_positions(selected, dtype):
    q, k, v, positions = problem(selected=selected)
    out = selected_attention(q, k, v, positions.to(dtype))
    assert_close(out, one_by_one(q, k, v, positions))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [reference, with_sdpa])
def test_baselines_compute_the_same(function, dtype):
    inputs = problem(dtype=dtype)
    atol = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-6}[dtype]
    assert_close(function(*inputs), one_by_one(*inputs), atol)


@pytest.mark.parametrize("selected", [40, SPLIT])
@pytest.mark.parametrize("head_dim", [1, 17, 80, 128])
def test_any_head_dimension_is_taken(head_dim, selected):
    inputs = problem(selected=selected, head_dim=head_dim)
    assert_close(selected_attention(*inputs), one_by_one(*inputs))


@pytest.mark.parametrize("queries", [1, 16, 17])
def test_queries_of_a_head_share_its_positions(queries):
    q, k, v, positions = problem(queries=queries, selected=70)
    out = selected_attention(q, k, v, positions)
    assert_close(out, one_by_one(q, k, v, positions))
    alone = [selected_attention(q[:, :, i : i + 1], k, v, positions) for i in range(queries)]
    assert_close(out, torch.cat(alone, dim=2))


def test_order_of_the_positions_does_not_matter_beyond_rounding():
    q, k, v, positions = problem(selected=130)
    assert_close(
        selected_attention(q, k, v, positions), selected_attention(q, k, v, positions.flip(2))
    )


def test_position_named_twice_counts_twice():
    q, k, v, positions = problem(selected=8)
    positions[:, :, 3] = positions[:, :, 5]
    assert_close(selected_attention(q, k, v, positions), one_by_one(q, k, v, positions))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("selected", [40, SPLIT])
def test_positions_that_do_not_exist_have_no_weight(selected, dtype):
    q, k, v, positions = problem(selected=selected)
    positions = positions.to(dtype)
    beyond = torch.tensor([-1, -(2**31), 2 * selected, 2**31 - 1], dtype=dtype)
    positions[0, 0, :4] = positions[0, 1, -4:] = beyond
    assert_close(selected_attention(q, k, v, positions), one_by_one(q, k, v, positions))


@pytest.mark.parametrize("selected", [40, SPLIT])
@pytest.mark.parametrize("left", [0, 1])
def test_head_with_at_most_one_position_gives_zero_or_its_value(left, selected):
    q, k, v, positions = problem(selected=selected)
    last = positions[0, 1, -1].item()
    positions[0, 1] = -1
    positions[0, 1, selected - left :] = last
    out = selected_attention(q, k, v, positions)
    expected = v[0, 1, last] if left else torch.zeros(32)
    assert torch.equal(out[0, 1], expected.expand(3, -1))
    assert_close(out, one_by_one(q, k, v, positions))


@pytest.mark.parametrize("selected", [40, SPLIT])
def test_what_is_not_selected_is_not_read(selected):
    q, k, v, positions = problem(selected=selected)
    expected = selected_attention(q, k, v, positions)
    unread = torch.ones(k.shape[:3], dtype=torch.bool).scatter(2, positions.long(), False)
    k[unread] = v[unread] = math.nan
    assert torch.equal(selected_attention(q, k, v, positions), expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("selected", [40, SPLIT])
def test_nan_spoils_its_own_head_alone(selected):
    q, k, v, positions = problem(selected=selected)
    k[0, 1, positions[0, 1, selected // 2].item(), 7] = math.nan
    out = selected_attention(q, k, v, positions)
    assert out[0, 1].isnan().all()
    assert out[0, 0].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("selected", [40, SPLIT])
def test_one_huge_score_takes_all_the_weight(selected, dtype):
    q, k, v, positions = problem(selected=selected, dtype=dtype)
    top = positions[0, 0, selected - 2].item()
    q[0, 0], k[0, 0, top] = 200.0, 200.0
    out = selected_attention(q, k, v, positions)
    assert torch.equal(out[0, 0], v[0, 0, top].expand(3, -1))


def test_scores_of_any_size_neither_overflow_nor_vanish():
    q, k, v, positions = problem(selected=SPLIT)
    for shift in (-3e4, 3e4):
        moved = torch.cat([k, torch.full_like(k[..., :1], shift)], dim=3)
        ones = torch.ones_like(q[..., :1])
        out = selected_attention(torch.cat([q, ones], dim=3), moved, v_wide(v), positions)
        assert out.isfinite().all()
        assert out.abs().max() < 5


def v_wide(v):
    return torch.cat([v, v[..., :1]], dim=3)


LAYOUTS = {
    "heads beside positions": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "shifted by one element": lambda x: torch.cat([x[..., :1], x], dim=3)[..., 1:],
    "every other element": lambda x: x.repeat_interleave(2, dim=3)[..., ::2],
    "one buffer of both": lambda x: torch.stack([x, -x], dim=2)[:, :, 0],
    "one head for all": lambda x: x[:, :1].expand(-1, 2, -1, -1),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_of_keys_and_values_does_not_matter(layout):
    q, k, v, positions = problem(sequences=2)
    for views in ((layout(k), v), (k, layout(v))):
        expected = selected_attention(q, *(t.contiguous() for t in views), positions)
        assert torch.equal(selected_attention(q, *views, positions), expected)


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_offsets_beyond_32_bits_are_reached(dimension):
    far = 2**31 + 16
    shape, strides = [1, 1, 1, 32], [96, 64, 32, 1]
    shape[dimension], strides[dimension] = 2, far
    q, positions = normal(*shape[:2], 1, 32), torch.full((*shape[:2], 1), shape[2] - 1)
    # Pages that nobody touches cost nothing.
    k, v = (torch.empty(far + 256).as_strided(shape, strides) for _ in range(2))
    for tensor, seed in ((k, 1), (v, 2)):
        tensor.copy_(normal(*shape, seed=seed))
    out = selected_attention(q, k, v, positions)
    assert torch.equal(out, v[:, :, -1:])


@pytest.mark.parametrize(
    "shape", [(0, 2, 1, 32), (2, 0, 1, 32), (2, 2, 0, 32), (2, 2, 1, 0)], ids=str
)
def test_empty_problem_gives_an_empty_result(shape):
    cache = torch.empty(shape[0], shape[1], 5, shape[3])
    positions = torch.zeros(shape[0], shape[1], 3, dtype=torch.int32)
    assert selected_attention(torch.empty(shape), cache, cache, positions).shape == shape


@pytest.mark.parametrize("context", [0, 7])
def test_no_positions_give_zeros(context):
    q, cache = normal(1, 2, 3, 32), normal(1, 2, context, 32)
    out = selected_attention(q, cache, cache, torch.empty(1, 2, 0, dtype=torch.int32))
    assert torch.equal(out, torch.zeros_like(q))


@given(st.integers(1, 10_000), st.integers(0, 100_000))
def test_splits_cover_the_positions_in_whole_blocks(heads, selected):
    splits, a_split = launch_for(heads, selected)
    assert a_split % BLOCK == 0
    assert (splits - 1) * a_split < max(selected, 1) <= splits * a_split
    assert splits == 1 or heads * splits <= 2 * 264


def test_many_heads_are_not_split():
    assert launch_for(512, 2048).splits == 1
    assert launch_for(8, 2048).splits == 8
