"""What the regions of SIGReg, the whole and its module must keep."""

import math

import pytest
import torch

from kernels.registry import load_op
from kernels.sigreg import finish, gemm, pipeline, problem, projection, reference, small, trig
from kernels.sigreg.backward import pull
from kernels.sigreg.epilogue import epilogue_stats
from kernels.sigreg.function import SIGReg, integration_rule
from kernels.spec import Workload

KEY = torch.tensor([2**40 + 11, 2**35 + 5])


def drawn(*shape, seed=0, scale=1.0):
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(made, true, atol=1e-5, rtol=1e-5):
    torch.testing.assert_close(made.double(), true.double(), atol=atol, rtol=rtol)


def rule(points=17, clip="none", clip_value=0.0):
    return pipeline.Test(*reference.integration(points), True, clip, clip_value)


def true_stats(z, test):
    return reference.true_stats(
        *reference.true_means(z, test.t), test.phi, test.weights, z.shape[0]
    )


def true_loss(x, slices, test, key=KEY):
    """Test each view of [views, batch, dim], in float64."""
    a = reference.true_projection(key, x.shape[-1], slices)
    stats = torch.stack([true_stats(view.double() @ a, test) for view in x])
    if test.clip == "clamp":
        stats = stats.clamp(min=test.clip_value)
    if test.clip == "zero":
        stats = torch.where(stats < test.clip_value, 0.0, stats)
    return stats.mean()


def gradient(loss, x):
    (found,) = torch.autograd.grad(loss, x)
    return found


# Costs, as the text that the op comes from prints them.


def sizes(**named):
    return Workload(named, "bfloat16")


def test_epilogue_costs_what_the_published_table_implies():
    cost = problem.epilogue_cost(sizes(batch=32, slices=1024, points=17), "forward")
    assert (cost.minimal_bytes, cost.flops) == (73_864, 106_496)


def test_trig_reduction_costs_what_the_published_table_implies():
    cost = problem.trig_cost(sizes(batch=32, slices=1024, points=17), "forward")
    assert (cost.minimal_bytes, cost.flops) == (204_868, 1_705_984)


def steps(batch, dim, slices, points):
    """Operations and elements of the eight steps, one by one."""
    angles, table = batch * slices * points, slices * points
    return (
        (slices * (1 + 3 * dim), 3 * dim * slices),
        (2 * dim * batch * slices, batch * dim + dim * slices + batch * slices),
        (angles, angles + batch * slices + points),
        (0, 3 * angles),
        (2 * angles + 2 * table, 2 * angles + 2 * table),
        (4 * table, 3 * table + points),
        (2 * table + slices, table + points + slices),
        (slices + 1, slices + 1),
    )


@pytest.mark.parametrize("shape", [(32, 2048, 1024, 17), (7, 5, 3, 2), (16384, 512, 256, 33)])
def test_whole_costs_the_sum_of_its_steps(shape):
    workload = sizes(**dict(zip(("batch", "dim", "slices", "points"), shape, strict=True)))
    flops, elements = (sum(column) for column in zip(*steps(*shape), strict=True))
    assert problem.loss_cost(workload, "forward").flops == flops
    inputs_bytes = 20
    assert problem.loss_traffic(workload) == 2 * elements + inputs_bytes


def test_regions_cost_what_their_steps_cost():
    workload = sizes(batch=32, dim=2048, slices=1024, points=17)
    first, second, *trig_steps = steps(32, 2048, 1024, 17)[:5]
    assert problem.projection_cost(workload, "forward").flops == first[0]
    assert problem.gemm_cost(workload, "forward").flops == second[0]
    assert problem.gemm_cost(workload, "forward").minimal_bytes == 2 * second[1]
    assert problem.trig_cost(workload, "forward").flops == sum(flops for flops, _ in trig_steps)


# The generator.


def words(*counter_and_key):
    tensors = [torch.tensor([word]) for word in counter_and_key]
    return [int(w) for w in reference.philox(tensors[:4], tensors[4:])]


def test_generator_gives_the_known_answers_of_philox():
    # The vectors that its authors publish with Random123.
    assert words(0, 0, 0, 0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = [0xFFFFFFFF] * 6
    assert words(*ones) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    assert words(*pi) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_directions_are_of_length_one_and_isotropic():
    a = projection.projection(KEY, 64, 512).double()
    assert (a.square().sum(dim=0) - 1).abs().max() < 1e-6
    # Each has mean 0 and variance 1/64; those of 512 columns err by 1/sqrt(512) of that.
    assert a.mean(dim=1).abs().max() < 5 * (64 * 512) ** -0.5
    assert (a @ a.T * 64 / 512 - torch.eye(64)).abs().max() < 5 * 512**-0.5
    cosines = (a.T @ a)[~torch.eye(512, dtype=torch.bool)]
    assert abs(cosines.std() * 8 - 1) < 0.02


def test_numbers_behind_directions_are_normal():
    n = reference.normals(KEY, *reference.counters(256, 400, "cpu"), 256, torch.float64)
    count = n.numel()
    assert abs(n.mean()) < 4 / count**0.5
    assert abs(n.square().mean() - 1) < 4 * (2 / count) ** 0.5
    assert abs(n.pow(4).mean() - 3) < 4 * (96 / count) ** 0.5
    ranks = torch.special.ndtr(n.flatten()).sort().values
    distance = (ranks - torch.arange(count) / count).abs().max()
    assert distance < 1.95 / count**0.5


def test_a_direction_depends_on_seed_step_and_place_alone():
    many, few = (projection.projection(KEY, 20, slices) for slices in (50, 7))
    assert torch.equal(many[:, :7], few)
    for other in (KEY + torch.tensor([1, 0]), KEY + torch.tensor([0, 1]), KEY + 2**33):
        assert (projection.projection(other, 20, 7) - few).abs().min() > 0


def test_columns_that_are_drawn_twice_are_the_same(monkeypatch):
    whole = projection.projection(KEY, 100, 3)
    monkeypatch.setattr(projection, "WIDEST_AT_ONCE", 16)
    close(projection.projection(KEY, 100, 3), whole, atol=1e-7)


# Means.


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e4])
def test_means_are_right_for_small_and_large_projections(even, scale):
    x, t = drawn(40, 3, scale=scale), reference.integration(9)[0]
    for made, true in zip(trig.trig_means(x, t, even), reference.true_means(x, t), strict=True):
        # In float32 an angle of 3e4 is known to 1e-3.
        close(made, true, atol=max(1e-5, scale * 4e-7))


def test_points_anywhere_have_right_means():
    x, t = drawn(11, 5), torch.tensor([-5.0, -0.3, 0.0, 0.31, 2.0, 7.7])
    for made, true in zip(trig.trig_means(x, t), reference.true_means(x, t), strict=True):
        close(made, true)


def test_mean_at_zero_is_exactly_one_and_zero():
    cos_mean, sin_mean = trig.trig_means(drawn(9, 4), reference.integration(5)[0], even=True)
    assert (cos_mean[:, 0] == 1).all() and (sin_mean[:, 0] == 0).all()


@pytest.mark.parametrize("even", [True, False])
def test_not_a_number_spoils_its_slice_alone_and_an_empty_batch_all(even):
    x, t = drawn(6, 3), reference.integration(5)[0]
    x[2, 1] = math.nan
    for mean in trig.trig_means(x, t, even):
        assert mean[1, 1:].isnan().all() and mean[::2].isfinite().all()
    assert all(mean.isnan().all() for mean in trig.trig_means(x[:0], t, even))


@pytest.mark.parametrize("even", [True, False])
def test_strided_projections_have_the_means_of_their_copy(even):
    whole, t = drawn(12, 10), reference.integration(5)[0]
    for x in (whole[::3], whole[:, 2:7], whole[:, ::2], whole.T):
        for made, true in zip(
            trig.trig_means(x, t, even), trig.trig_means(x.contiguous(), t, even), strict=True
        ):
            assert torch.equal(made, true)


@pytest.mark.parametrize("batch", [1, 15, 16, 17, 64, 100])
def test_sums_do_not_depend_on_how_rows_are_shared_out(batch):
    x, test = drawn(1, batch, 3), rule(5)
    one = trig.sums_of(x, test.t, True, trig.Launch(16, 2, 1, batch, 1)).sum(dim=0)
    for rows in (8, 24):
        launch = trig.Launch(16, 2, 2, rows, math.ceil(batch / rows))
        close(trig.sums_of(x, test.t, True, launch).sum(dim=0), one, atol=1e-4)


def test_reference_means_are_those_of_the_truth():
    x, t = drawn(20, 4), reference.integration(17)[0]
    for made, true in zip(reference.trig_means(x, t), reference.true_means(x, t), strict=True):
        close(made, true, atol=1e-6)


# Statistics and the loss.


def test_integration_is_that_of_the_half_line_with_double_weights():
    t, phi, weights = (x.double() for x in reference.integration(17))
    dt = 3 / 16
    close(t, torch.arange(17) * dt, atol=0)
    expected = [dt * (1 if k in (0, 16) else 2) * math.exp(-((k * dt) ** 2) / 2) for k in range(17)]
    close(weights, torch.tensor(expected), atol=1e-7)
    close(phi, torch.tensor([math.exp(-((k * dt) ** 2) / 2) for k in range(17)]), atol=1e-7)


def test_expected_statistic_of_a_normal_sample_is_the_one_by_hand():
    # E |mean exp(itx) - phi|^2 = (1 - phi^2) / n for every n: 1.05246 for 17 points on [0, 3].
    test = rule()
    expected = float((test.weights.double() * (1 - test.phi.double() ** 2)).sum())
    assert expected == pytest.approx(1.05246, abs=5e-6)
    loss, _ = pipeline.loss(drawn(1, 50, 30), KEY, 300, test)
    # Statistics of one sample hang together: what differs from 1.05 is that sample, not slices.
    samples = [pipeline.loss(drawn(1, 50, 30, seed=s), KEY, 16, test)[0] for s in range(12)]
    assert float(torch.stack(samples).mean()) == pytest.approx(expected, abs=0.1)
    assert float(loss) == pytest.approx(expected, abs=0.35)


@pytest.mark.parametrize("zero", [False, True])
def test_clip_raises_small_statistics_or_drops_them(zero):
    means = drawn(30, 5, scale=0.3), drawn(30, 5, seed=1, scale=0.3)
    _, phi, weights = reference.integration(5)
    plain = epilogue_stats(*means, phi, weights, 3)
    clip = float(plain.median())
    made = epilogue_stats(*means, phi, weights, 3, True, clip, zero)
    assert torch.equal(made, torch.where(plain < clip, 0.0 if zero else clip, plain))
    if not zero:
        assert torch.equal(
            reference.epilogue_stats(*means, phi, weights, 3, True, 1e9), made * 0 + 1e9
        )


@pytest.mark.parametrize("clip", ["none", "clamp", "zero"])
def test_small_batches_in_two_launches_give_the_loss(clip):
    test, x = rule(9, clip, 0.4), drawn(1, 13, 70)
    loss = small.small_loss(x[0], KEY, 21, test.t, test.phi, test.weights, clip, 0.4)
    close(loss, true_loss(x, 21, test))


@pytest.mark.parametrize("shape", [(1, 3), (5, 16), (70, 33)])
def test_products_that_are_never_written_give_the_same_sums(shape):
    batch, dim = shape
    test, ticket = rule(9), torch.empty(1, dtype=torch.int32)
    x, a = drawn(batch, dim), projection.projection(KEY, dim, 37)
    launch = gemm.FusedLaunch(16, 32, 16, 4, 2, 6)
    made = gemm.gemm_sums(x, a, test.t, ticket, launch=launch).sum(dim=0) / batch
    true = reference.true_means(x.double() @ a.double(), test.t)
    for half in range(2):
        close(made[half].T, true[half][:, 1:])
    assert int(ticket) == 0


@pytest.mark.parametrize("programs", [1, 3])
def test_loss_is_the_mean_however_many_programs_add_up(programs):
    test, sums = rule(5), drawn(2, 2, 4, 20, scale=3.0)
    ticket = torch.zeros(1, dtype=torch.int32)
    block = 32 if programs == 1 else 8
    loss, total = finish.finish(
        sums, 7, test.phi, test.weights, ticket, keep=True, block_columns=block
    )
    close(total, sums.sum(dim=0), atol=1e-6)
    means = sums.double().sum(dim=0) / 7
    true = reference.true_stats(means[0].T, means[1].T, test.phi[1:], test.weights[1:], 7)
    close(loss, true.mean())


# Gradients.


@pytest.mark.parametrize("points", [2, 4, 6, 17])
def test_gradient_of_sums_is_that_of_autograd(points):
    x, t = drawn(2, 7, 5), reference.integration(points)[0]
    grad = drawn(2, points - 1, 10, seed=1)
    leaf = x.double().requires_grad_()
    angles = leaf.unsqueeze(-1) * t[1:].double()
    both = torch.stack([angles.cos().sum(dim=1), angles.sin().sum(dim=1)])
    sums = both.permute(0, 3, 1, 2).reshape(grad.shape)
    true = gradient((sums * grad.double()).sum(), leaf)
    close(pull(x, t, grad, even=True), true, atol=1e-4)
    close(pull(x, t[1:], grad, even=False), true, atol=1e-4)
    in_place = x.clone()
    close(pull(in_place, t, grad, even=True, out=in_place), true, atol=1e-4)
    close(trig.sums_of(x, t, even=True).sum(dim=0), sums, atol=1e-4)


def test_gradient_of_the_oracle_is_that_of_finite_differences():
    x = drawn(1, 4, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: true_loss(x, 5, rule(5)), (x,))


@pytest.mark.parametrize("clip", ["none", "clamp", "zero"])
@pytest.mark.parametrize("views", ["apart", "pooled"])
@pytest.mark.parametrize("points", [9, 10])
def test_module_has_the_oracles_loss_and_gradient(clip, views, points):
    # Nine points of [-3, 3] hold zero, ten do not: multiples of one angle, and points apart.
    module = SIGReg(6, points, (-3, 3), clip=clip, clip_value=0.6, views=views, seed=5)
    x = drawn(2, 3, 4, 12).requires_grad_()
    loss = module(x)
    loss.backward()
    test = integration_rule(points, (-3, 3))._replace(clip=clip, clip_value=0.6)
    leaf = x.detach().double().requires_grad_()
    flat = leaf.reshape(1, 24, 12) if views == "pooled" else leaf.reshape(6, 4, 12)
    true = true_loss(flat, 6, test, torch.tensor([5, 0]))
    close(loss.detach(), true.detach())
    close(x.grad, gradient(true, leaf))


def test_both_halves_of_the_line_count_once_on_either_range():
    half, whole = integration_rule(17, (0, 3)), integration_rule(33, (-3, 3))
    for one, other in zip(half[:3], whole[:3], strict=True):
        close(one[1:], other[1:], atol=1e-7)
    apart = integration_rule(16, (-3, 3))
    z = drawn(50, 1)
    t = torch.linspace(-3, 3, 16, dtype=torch.float64)
    full = torch.full_like(t, 0.4) * torch.exp(-t.square() / 2)
    full[[0, -1]] /= 2
    means = reference.true_means(z, t)
    true = reference.true_stats(*means, torch.exp(-t.square() / 2), full, 50)
    close(true_stats(z, apart), true, atol=1e-5)


def test_directions_change_with_each_training_step_and_stay_in_evaluation():
    module, x = SIGReg(8, 5, refresh=2), drawn(10, 6)
    losses = [float(module(x)) for _ in range(5)]
    assert losses[0] == losses[1] != losses[2] == losses[3] != losses[4]
    module.eval()
    assert float(module(x)) == float(module(x))
    assert module.key.tolist() == [0, 5]


def test_gradient_is_that_of_the_step_it_belongs_to():
    module, x = SIGReg(8, 5), drawn(10, 6).requires_grad_()
    first, second = module(x), module(x)
    key = torch.tensor([0, 0])
    for loss, step in ((second, 1), (first, 0)):
        leaf = x.detach().double().unsqueeze(0).requires_grad_()
        key[1] = step
        true = true_loss(leaf, 8, integration_rule(5), key)
        close(gradient(loss, x), gradient(true, leaf)[0])


def test_module_keeps_the_products_out_of_memory_or_not():
    x = drawn(70, 10)
    close(SIGReg(8, 9, fused=True)(x), SIGReg(8, 9)(x))


def test_own_weights_replace_those_of_the_rule():
    x, weights = drawn(10, 6), torch.linspace(1, 2, 5)
    loss = SIGReg(4, 5, weights=weights)(x)
    test = integration_rule(5)._replace(weights=weights)
    close(loss, true_loss(x.unsqueeze(0), 4, test, torch.tensor([0, 0])))
    uniform = SIGReg(4, 5, window="uniform").weights
    close(uniform, torch.tensor([0.75, 1.5, 1.5, 1.5, 0.75]), atol=1e-7)


@pytest.mark.parametrize(
    ("options", "shape"),
    [({"clip": "floor"}, (4, 4)), ({"points": 1}, (4, 4)), ({"t_range": (3, 3)}, (4, 4)),
     ({"refresh": 0}, (4, 4)), ({"weights": torch.ones(3)}, (4, 4)), ({}, (4,))],
)  # fmt: skip
def test_module_refuses_what_it_cannot_do(options, shape):
    with pytest.raises(ValueError, match=r"must be|needs"):
        SIGReg(**options)(drawn(*shape))


def test_operators_pass_the_checks_of_custom_operators():
    x, test = drawn(1, 5, 6).requires_grad_(), rule(5)
    ops = torch.ops.kernel_almanac
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    arguments = (x, KEY, 4, *test[:3], True)
    loss = (*arguments, "none", 0.0, False, True)
    torch.library.opcheck(ops.sigreg_loss, loss, test_utils=checks)
    torch.library.opcheck(ops.sigreg_sums, (*arguments, False), test_utils=checks)
    sums = drawn(2, 4, 4).requires_grad_()
    rest = (torch.full((1,), 5.0), *test[1:3], "zero", 0.1)
    torch.library.opcheck(ops.sigreg_statistic, (sums, *rest), test_utils=checks)


def test_whole_names_its_regions():
    for name in load_op("sigreg").regions:
        assert load_op(name).name == name
        params = load_op(name).params
        assert params.get("t_max", problem.T_MAX) == load_op("sigreg").params["t_max"]
