import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ops.qk_dot import (
    OP,
    PAIRED_TILE,
    grouped_launch,
    grouped_qk_dot,
    oracle,
    paired_launch,
    qk_dot,
    reference,
)
from kernels.spec import Workload

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDTHS = (1, 17, 64, 80, 1000)
ROUNDING = 2.0**-24


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pairs(rows, hidden, dtype=torch.float32):
    return normal(rows, hidden, dtype=dtype), normal(rows, hidden, dtype=dtype, seed=1)


def groups(count, queries, keys, hidden, dtype=torch.float32):
    q = normal(count, queries, hidden, dtype=dtype)
    return q, normal(count, keys, hidden, dtype=dtype, seed=1)


def assert_close_to_the_truth(made, q, k):
    """Allow each of up to 64 sums in a row its rounding, of at most the sum of magnitudes."""
    truth = oracle({"q": q, "k": k})
    magnitude = oracle({"q": q.abs(), "k": k.abs()})
    assert made.dtype == torch.float32
    assert ((made.double() - truth).abs() <= 64 * ROUNDING * magnitude).all()


@pytest.mark.parametrize(
    ("rows", "shortest_us", "longest_us", "printed_gb_per_s"),
    [(512, 5.45, 5.55, 48.4), (2048, 7.75, 7.85, 135.9)],
)
def test_minimal_bytes_reproduce_published_bandwidths(
    rows, shortest_us, longest_us, printed_gb_per_s
):
    # Times were printed in units of 0.1 us, bandwidths from the time before that.
    cost = OP.cost(Workload({"rows": rows, "hidden": 128}, "float16"), "forward")
    bytes_per_ns = [cost.minimal_bytes / us / 1e3 for us in (longest_us, shortest_us)]
    assert bytes_per_ns[0] < printed_gb_per_s < bytes_per_ns[1]


def test_cost_counts_products_and_sums_of_pairs():
    rows, hidden = 3, 5
    products, sums = rows * hidden, rows * hidden
    cost = OP.cost(Workload({"rows": rows, "hidden": hidden}, "float16"), "forward")
    assert cost.flops == products + sums
    assert cost.minimal_bytes == 2 * (rows * hidden + rows * hidden) + 4 * rows
    assert cost.pipe == "fp32"


def test_cost_of_groups_reads_a_shared_key_once():
    count, queries, keys, hidden = 3, 8, 11, 5
    sizes = {"rows": count * keys, "hidden": hidden, "queries": queries, "keys": keys}
    cost = OP.cost(Workload(sizes, "bfloat16"), "forward")
    assert cost.flops == 2 * count * queries * keys * hidden
    read = 2 * count * (queries + keys) * hidden
    assert cost.minimal_bytes == read + 4 * count * queries * keys
    assert cost.pipe == "bf16"


def test_known_values():
    q = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]])
    k = torch.tensor([[4.0, -5.0, 6.0], [2.0, 9.0, 2.0]])
    assert qk_dot(q, k).tolist() == [12.0, -1.0]
    assert grouped_qk_dot(q[None], k[None]).tolist() == [[[12.0, 26.0], [-4.0, -1.0]]]


@settings(max_examples=15)
@given(st.integers(1, 40), st.integers(1, 200), st.sampled_from(DTYPES))
def test_scores_of_pairs_are_as_exact_as_float32_sums(rows, hidden, dtype):
    q, k = pairs(rows, hidden, dtype)
    assert_close_to_the_truth(qk_dot(q, k), q, k)


@settings(max_examples=15)
@given(
    st.integers(1, 2), st.integers(1, 20), st.integers(1, 70), st.integers(1, 40),
    st.sampled_from(DTYPES),
)  # fmt: skip
def test_scores_of_groups_are_as_exact_as_float32_sums(count, queries, keys, hidden, dtype):
    q, k = groups(count, queries, keys, hidden, dtype)
    assert_close_to_the_truth(grouped_qk_dot(q, k), q, k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_inputs_are_multiplied_exactly(dtype):
    # In half precision the first would overflow, and the second lose its last bit.
    large, fine = 200.0, 1 + 2.0**-7
    q = torch.tensor([[large, large], [fine, 0.0]], dtype=dtype)
    assert qk_dot(q, q).tolist() == [2 * large**2, fine**2]
    scores = grouped_qk_dot(q[None], q[None])[0]
    assert scores.diagonal().tolist() == [2 * large**2, fine**2]


@pytest.mark.parametrize("hidden", [64, PAIRED_TILE + 8])
def test_unit_vectors_pick_single_elements(hidden):
    k = normal(3, hidden, dtype=torch.bfloat16)
    at = torch.tensor([0, hidden // 2, hidden - 1])
    q = torch.nn.functional.one_hot(at, hidden).to(torch.bfloat16)
    picked = k.float().gather(1, at[:, None])[:, 0]
    assert torch.equal(qk_dot(q, k), picked)
    assert torch.equal(grouped_qk_dot(q[None], k[None])[0], k.float()[:, at].T)


@pytest.mark.parametrize("hidden", WIDTHS)
def test_query_and_key_play_the_same_part(hidden):
    q, k = pairs(9, hidden)
    assert torch.equal(qk_dot(q, k), qk_dot(k, q))


@pytest.mark.parametrize("hidden", WIDTHS)
def test_pairs_do_not_know_each_other(hidden):
    q, k = pairs(70, hidden)
    some = [0, 1, 35, 69]
    alone = torch.cat([qk_dot(q[i : i + 1], k[i : i + 1]) for i in some])
    assert torch.equal(qk_dot(q, k)[some], alone)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_groups_do_not_know_each_other(dtype):
    q, k = groups(3, 5, 70, 32, dtype)
    alone = torch.cat([grouped_qk_dot(q[i : i + 1], k[i : i + 1]) for i in range(3)])
    assert torch.equal(grouped_qk_dot(q, k), alone)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_non_finite_element_spoils_the_score_of_its_pair_alone(value):
    q, k = pairs(20, 80)
    k[7, 3] = value
    made = qk_dot(q, k)
    torch.testing.assert_close(made, reference(q, k), equal_nan=True)
    assert made.isfinite().logical_not().nonzero().tolist() == [[7]]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_non_finite_element_spoils_the_scores_of_its_key_alone(value, dtype):
    q, k = groups(2, 3, 70, 40, dtype)
    k[1, 66, 39] = value
    made = grouped_qk_dot(q, k)
    spoilt = made.isfinite().logical_not()
    assert spoilt[1, :, 66].all() and spoilt.sum() == 3


def test_views_of_one_buffer_are_read_where_they_lie():
    hidden = 64
    qkv = normal(10, 3 * hidden, dtype=torch.float16)
    q, k, _ = qkv.split(hidden, dim=1)
    assert not k.is_contiguous()
    assert torch.equal(qk_dot(q, k), qk_dot(q.contiguous(), k.contiguous()))


LAYOUTS = {
    "every other column": lambda x: x[:, ::2],
    "shifted by one element": lambda x: x[:, 1:],
    "columns side by side": lambda x: x.t().contiguous().t(),
    "every other row": lambda x: x[::2],
    "one row repeated": lambda x: x[:1].expand(5, -1),
}


@pytest.mark.parametrize("hidden", [24, PAIRED_TILE + 8])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_of_pairs_does_not_matter(layout, hidden):
    q = layout(normal(6, hidden, dtype=torch.float16))
    k = normal(*q.shape, dtype=torch.float16, seed=1)
    expected = qk_dot(q.contiguous(), k)
    assert torch.equal(qk_dot(q, k), expected)
    assert torch.equal(qk_dot(k, q), expected)


def test_heads_of_a_cache_may_lie_side_by_side_or_apart():
    # A cache of [batch, keys, heads, hidden] seen as [batch, heads, keys, hidden], and a fused
    # projection that holds the queries of all heads.
    batch, heads, queries, keys, hidden = 2, 3, 4, 70, 16
    cache = normal(batch, keys, heads, hidden, dtype=torch.bfloat16)
    fused = normal(batch, heads * queries * hidden + 40, dtype=torch.bfloat16, seed=1)
    q = fused[:, : heads * queries * hidden].view(batch, heads, queries, hidden)
    made = grouped_qk_dot(q, cache.transpose(1, 2))
    k = cache.transpose(1, 2).contiguous()
    assert torch.equal(made, grouped_qk_dot(q.contiguous(), k))
    one = grouped_qk_dot(q[1, 2][None].contiguous(), k[1, 2][None])
    assert torch.equal(made[1, 2], one[0])


def test_row_offsets_beyond_32_bits_are_reached():
    stride = 2**30 + 8
    # Pages that nobody touches cost nothing.
    storage = torch.empty(2 * stride + 64, dtype=torch.float16)
    far = storage.as_strided((3, 64), (stride, 1))
    q, k = pairs(3, 64, torch.float16)
    far.copy_(k)
    assert torch.equal(qk_dot(q, far), qk_dot(q, k))
    assert torch.equal(qk_dot(far, q), qk_dot(k, q))
    assert torch.equal(grouped_qk_dot(q[None], far[None]), grouped_qk_dot(q[None], k[None]))
    apart = far[:, None], k[:, None]
    expected = grouped_qk_dot(q[:, None], apart[1])
    assert torch.equal(grouped_qk_dot(q[:, None], apart[0]), expected)


@pytest.mark.parametrize("shape", [(0, 64), (3, 0)])
def test_empty_pairs_give_sums_of_nothing(shape):
    assert qk_dot(torch.empty(shape), torch.empty(shape)).tolist() == [0.0] * shape[0]


@pytest.mark.parametrize("sizes", [(0, 4, 8, 16), (2, 0, 8, 16), (2, 4, 0, 16), (2, 4, 8, 0)])
def test_empty_groups_give_sums_of_nothing(sizes):
    count, queries, keys, hidden = sizes
    made = grouped_qk_dot(torch.empty(count, queries, hidden), torch.empty(count, keys, hidden))
    assert torch.equal(made, torch.zeros(count, queries, keys))


@given(st.integers(1, 200_000))
def test_pairs_leave_at_most_16_elements_of_a_side_to_a_thread(hidden):
    launch = paired_launch(hidden)
    assert launch.block_rows * launch.block_hidden <= 16 * 32 * launch.num_warps
    assert launch.block_rows & (launch.block_rows - 1) == 0
    assert launch.block_hidden == PAIRED_TILE or hidden <= launch.block_hidden < 2 * hidden


@given(st.integers(1, 300), st.integers(1, 1000), st.sampled_from(DTYPES))
def test_groups_leave_at_most_32_scores_to_a_thread(queries, hidden, dtype):
    launch = grouped_launch(queries, hidden, dtype)
    assert launch.block_queries * launch.block_keys <= 32 * 32 * launch.num_warps
    assert min(launch[:3]) >= 16
