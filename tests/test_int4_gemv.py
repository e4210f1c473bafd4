import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.ops.int4_gemv import OP, fits_tensor_cores, int4_gemv, launch_for, reference, unpacked
from kernels.spec import Workload

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# Sums of float32 in any order: 2^-24 a step, of the sum of the magnitudes.
ROUNDING = 2.0**-24


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=dtype)


def packed(weights):
    """Pack signed integers, the even column into the low nibble."""
    low, high = weights[:, ::2] & 15, weights[:, 1::2] & 15
    return (low | (high << 4)).to(torch.uint8)


def problem(n, k, group, m, dtype=torch.bfloat16, seed=0):
    """Draw a problem and return its integer weights with it."""
    weights = torch.randint(-8, 8, (n, k), generator=generator(seed))
    groups = math.ceil(k / group)
    scale = (0.5 + torch.rand((n, groups), generator=generator(seed + 1))).to(dtype)
    return weights, packed(weights), scale, normal(m, k, dtype=dtype, seed=seed + 2)


def truth(weights, scale, x, group):
    """Return the exact result and the sum of the magnitudes, in float64."""
    terms = weights.double() * scale.double().repeat_interleave(group, 1)[:, : weights.shape[1]]
    return x.double() @ terms.T, x.double().abs() @ terms.abs().T


def workload(n, k, group, m=1, dtype="bfloat16"):
    return Workload({"n": n, "k": k, "group": group, "m": m}, dtype)


@pytest.mark.parametrize(
    ("n", "shown_bytes", "milliseconds", "printed_gb_per_s"),
    [(1536, 1_195_008, 0.0077, 154.6), (8960, 6_956_032, 0.0205, 339.4)],
)
def test_minimal_bytes_reproduce_published_bandwidths(
    n, shown_bytes, milliseconds, printed_gb_per_s
):
    cost = OP.cost(workload(n, 1536, 1536), "forward")
    assert cost.minimal_bytes == shown_bytes
    assert cost.flops == 2 * n * 1536
    # The time is printed to four decimals of a ms.
    slow, fast = (shown_bytes / (milliseconds + d) / 1e6 for d in (5e-5, -5e-5))
    assert slow < printed_gb_per_s < fast


def test_minimal_bytes_of_groups_count_scales_in_the_dtype_of_x():
    cost = OP.cost(workload(24, 320, 128, m=3, dtype="float16"), "forward")
    assert cost.minimal_bytes == 24 * 160 + 24 * 3 * 2 + 3 * 320 * 2 + 4 * 3 * 24


def test_every_byte_unpacks_to_its_two_nibbles_in_twos_complement():
    weights = torch.tensor([(low, high) for high in range(-8, 8) for low in range(-8, 8)])
    assert torch.equal(unpacked(packed(weights)), weights.to(torch.int8))


def test_low_nibble_is_the_even_column():
    assert unpacked(torch.tensor([[0x7F, 0x80]], dtype=torch.uint8)).tolist() == [[-1, 7, 0, -8]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [32, 34])
def test_each_column_is_multiplied_by_its_own_weight(k, dtype):
    weights = torch.randint(-8, 8, (16, k), generator=generator())
    out = int4_gemv(packed(weights), torch.ones(16, 1), torch.eye(k, dtype=dtype), k)
    assert torch.equal(out.T, weights.float())


def test_neighbouring_nibbles_do_not_borrow():
    weights = torch.tensor([[-6, 2, 3, -2, 7, -8, 0, 1] * 4]).repeat(16, 1)
    weights[:, 5::8] = torch.arange(-8, 8).unsqueeze(1)
    out = int4_gemv(packed(weights), torch.ones(16, 1), torch.eye(32), 32)
    assert torch.equal(out.T, weights.float())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "k", "group", "m"),
    [
        (24, 512, 128, 1),
        (9, 1568, 128, 2),
        (16, 2176, 256, 5),
        (17, 96, 96, 3),
        (40, 640, 10_000, 1),
        (16, 128, 128, 19),
        (5, 70, 32, 2),
        (3, 64, 64, 1),
        (6, 30, 7, 2),
        (1, 2, 2, 1),
    ],
)
def test_error_is_that_of_sums_in_float32(n, k, group, m, dtype):
    weights, w, scale, x = problem(n, k, group, m, dtype)
    exact, magnitude = truth(weights, scale, x, group)
    out = int4_gemv(w, scale, x, group)
    assert out.dtype == torch.float32
    # Of k sums in a row, those of one lane, tile and group are the longest.
    steps = min(k, 128) + math.ceil(k / 128) + 8
    assert ((out.double() - exact).abs() <= steps * ROUNDING * magnitude).all()


def test_groups_have_scales_of_their_own():
    weights = torch.ones(8, 384, dtype=torch.int64)
    scale = torch.tensor([[1.0, 10.0, 100.0]]).repeat(8, 1)
    x = torch.zeros(3, 384)
    x[0, 127] = x[1, 128] = x[2, 383] = 1.0
    out = int4_gemv(packed(weights), scale, x, 128)
    assert out.tolist() == [[1.0] * 8, [10.0] * 8, [100.0] * 8]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_large_values_of_wide_range_do_not_overflow(dtype):
    x = torch.full((1, 128), 1e30, dtype=dtype)
    weights = torch.ones(8, 128, dtype=torch.int64)
    out = int4_gemv(packed(weights), torch.ones(8, 1), x, 128)
    torch.testing.assert_close(out, torch.full((1, 8), 128e30), rtol=5e-3, atol=0)


def test_float32_keeps_all_its_digits():
    x = torch.zeros(1, 128)
    x[0, 5] = 1 + 2.0**-23
    weights = torch.full((8, 128), -7)
    out = int4_gemv(packed(weights), torch.ones(8, 1), x, 128)
    assert torch.equal(out, torch.full((1, 8), -7 * (1 + 2.0**-23)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("group", [128, 33])
def test_non_finite_value_acts_as_in_torch(value, dtype, group):
    _, w, scale, x = problem(16, 256, group, 3, dtype)
    x[1, 77] = value
    out, expected = int4_gemv(w, scale, x, group), reference(w, scale, x, group)
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=1e-4, atol=1e-3)
    assert out[[0, 2]].isfinite().all()
    assert not out[1].isfinite().any()


@pytest.mark.parametrize("k", [256, 30])
def test_rows_and_vectors_do_not_know_each_other(k):
    _, w, scale, x = problem(21, k, 128, 3)
    whole = int4_gemv(w, scale, x, 128)
    assert torch.equal(whole[1:2], int4_gemv(w, scale, x[1:2], 128))
    assert torch.equal(whole[:, 3:7], int4_gemv(w[3:7], scale[3:7], x, 128))


LAYOUTS = {
    "every other row": lambda w, s, x: (w[::2], s[::2], x),
    "columns of a wider matrix": lambda w, s, x: (w[:, 16:80], s[:, :1], x[:, :128]),
    "columns from an odd byte on": lambda w, s, x: (w[:, 3:67], s[:, :1], x[:, :128]),
    "every other vector": lambda w, s, x: (w, s, x[::2]),
    "every other scale": lambda w, s, x: (w[:, :64], s[:, ::2][:, :1], x[:, :128]),
    "vectors side by side": lambda w, s, x: (w, s, x.T.contiguous().T),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_of_the_inputs_does_not_matter(layout):
    _, w, scale, x = problem(16, 256, 128, 4)
    views = layout(w, scale, x)
    out = int4_gemv(*views, 128)
    torch.testing.assert_close(out, int4_gemv(*(t.contiguous() for t in views), 128))


@pytest.mark.parametrize("k", [64, 30])
def test_offsets_beyond_32_bits_are_reached(k):
    stride = 2**31 + 64
    # Pages that nobody touches cost nothing.
    w = torch.empty(stride + 64, dtype=torch.uint8).as_strided((2, k // 2), (stride, 1))
    _, dense, scale, x = problem(2, k, k, 1)
    w.copy_(dense)
    assert torch.equal(int4_gemv(w, scale, x, k), int4_gemv(dense, scale, x, k))


@pytest.mark.parametrize(("stride", "early"), [(1, True), (2, False)])
def test_scales_that_are_copied_first_are_waited_for(stride, early, monkeypatch):
    launches = []
    monkeypatch.setattr(
        "kernels.ops.int4_gemv._launch_tensor_cores", lambda *arguments: launches.append(arguments)
    )
    _, w, scale, x = problem(8, 512, 128, 1)
    int4_gemv(w, scale.repeat_interleave(stride, 1)[:, ::stride], x, 128, pdl=True)
    assert launches[0][-1] is early


@pytest.mark.parametrize(("n", "k", "m"), [(0, 64, 1), (4, 64, 0), (4, 0, 2)])
def test_empty_problem_gives_zeros(n, k, m):
    w, x = torch.empty(n, k // 2, dtype=torch.uint8), torch.empty(m, k)
    out = int4_gemv(w, torch.empty(n, math.ceil(k / 32)), x, 32)
    assert torch.equal(out, torch.zeros(m, n))


@pytest.mark.parametrize(
    ("k", "groups", "message"), [(66, 1, "do not fit"), (64, 3, r"expected \(4, 2\)")]
)
def test_shapes_that_do_not_fit_are_refused(k, groups, message):
    w = torch.zeros(4, 32, dtype=torch.uint8)
    with pytest.raises(ValueError, match=message):
        int4_gemv(w, torch.ones(4, groups), torch.ones(1, k), 32)


@pytest.mark.parametrize(
    ("k", "group", "fits"),
    [(8192, 128, True), (1536, 1536, True), (96, 96, True), (4304, 128, False), (256, 64, False)],
)
def test_tensor_cores_are_used_where_rows_and_groups_are_whole(k, group, fits):
    w = torch.empty(4, k // 2, dtype=torch.uint8)
    assert fits_tensor_cores(w, group, k) is fits


@given(
    st.integers(1, 6000).map(lambda quarter: 32 * quarter), st.sampled_from([1, 2, 4, 8, 16, 32])
)
def test_launch_covers_k_in_as_few_steps_as_its_tiles_allow(k, columns):
    launch = launch_for(k, columns)
    a_step = 128 * launch.slices * launch.tiles
    assert all(size & (size - 1) == 0 for size in (launch.slices, launch.octets, launch.tiles))
    assert launch.slices * columns <= max(8, columns)
    assert (launch.steps - 1) * a_step < k <= launch.steps * a_step
    assert 1 <= launch.unroll <= launch.steps


@pytest.mark.parametrize(("name", "whole_rows"), [("torch-int4pack", True), ("gemlite", False)])
def test_peers_refuse_what_they_cannot_take(name, whole_rows):
    refusal = OP.implementation(name).unsupported
    assert refusal(workload(8192, 8192, 128)) is None
    assert (refusal(workload(1536, 1536, 1536)) is None) is whole_rows
    assert refusal(workload(8192, 8192, 128, dtype="float16"))
    assert refusal(workload(8192, 8200, 128))
    assert refusal(workload(0, 8192, 128))
