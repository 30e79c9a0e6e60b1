"""Where samples coincide, up to the order of rows or of sums, value and gradient are zero and not noise."""

import math

import numpy as np
import pytest
import torch
import torch.distributed as dist

import momentalign as ma
from momentalign.discrepancies._cpu import CPUBackend
from momentalign.discrepancies.central_moment import stacked_terms
from momentalign.moments.loops import compiled
from momentalign.moments.sample import guarded_norm, guarded_root
from momentalign.training.distance_loops import COMPARED, OBJECTIVE, Compared, Objective, cmd, marginal_loops
from momentalign.training.kernels import entry_point

DTYPES = [torch.float32, torch.float64]
CROSS = [1, 2, 3]
SAME = {
    "itself": lambda x, rng: x,
    "copied": lambda x, rng: x.clone(),
    "permuted": lambda x, rng: x[rng.permutation(len(x))],
    "reversed": lambda x, rng: x.flip(0),
    "duplicated": lambda x, rng: x.repeat(3, 1),
    "interleaved": lambda x, rng: x.repeat_interleave(2, 0)[rng.permutation(2 * len(x))],
}


def _gradient(source, target, **settings):
    source = source.detach().clone().requires_grad_()
    value = ma.cmd(source, target.detach(), **settings)
    value.backward()
    return value.detach(), source.grad


@pytest.mark.parametrize("cross", CROSS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("same", SAME)
@pytest.mark.parametrize("rows", [1, 2, 17, 40])
def test_the_same_rows_have_no_distance_and_no_gradient(rng, rows, same, dtype, cross):
    sample = torch.tensor(rng.random((rows, 4)), dtype=dtype)
    value, gradient = _gradient(sample, SAME[same](sample, rng), cross=cross)
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("same", SAME)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_rows_far_from_zero_have_no_gradient(rng, same, dtype):
    sample = torch.tensor(1e4 + rng.random((100, 4)), dtype=dtype)
    value, gradient = _gradient(sample, SAME[same](sample, rng))
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_rows_far_from_zero_have_no_gradient_on_any_interval(rng, dtype):
    samples = [torch.tensor(1e4 + rng.random((100, 4)), dtype=dtype) for _ in range(20)]
    pairs = [(sample, sample[rng.permutation(100)]) for sample in samples]
    assert not any(_gradient(*pair, interval=(9_999, 10_002))[1].any() for pair in pairs)


@pytest.mark.parametrize("cross", CROSS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_computed_in_another_order_have_no_gradient(rng, dtype, cross):
    inputs, weights = (torch.tensor(rng.normal(size=shape), dtype=dtype) for shape in ((50, 30), (30, 4)))
    forward, backward = torch.sigmoid(inputs @ weights), torch.sigmoid(inputs.flip(1) @ weights.flip(0))
    assert not torch.equal(forward, backward)
    value, gradient = _gradient(forward, backward, cross=cross)
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("cross", CROSS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_difference_above_rounding_keeps_its_gradient(rng, dtype, cross):
    sample = torch.tensor(rng.random((40, 4)), dtype=dtype)
    value, gradient = _gradient(sample, sample + 1000 * torch.finfo(dtype).eps, cross=cross, n_moments=cross)
    assert value > 0
    torch.testing.assert_close(gradient, torch.full_like(gradient, -1 / 80), rtol=0.05, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [(3, 1), (3, 7), (10, 1)])
def test_constant_rows_coincide(rows, dtype):
    value, gradient = _gradient(*(torch.full((n, 2), 0.1, dtype=dtype) for n in rows))
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [(1, 7), (7, 3), (1000, 999)])
@pytest.mark.parametrize("interval", [(0, 0.75), (0, 3), (-1, 1)])
def test_constant_rows_have_no_gradient_of_ordinary_size_on_any_interval(rows, dtype, interval):
    for level in (0.02717666, 0.1, 0.7, 1e4 / 3):
        value, gradient = _gradient(*(torch.full((n, 3), level, dtype=dtype) for n in rows), interval=interval)
        assert value < 1e-10
        assert gradient.abs().max() < 1e-10


def _rare_values(dtype):
    """Pairs of equal distributions in which one row of many differs from all others."""
    for rows in (30, 100, 300, 1000, 5000):
        sample = torch.full((rows, 3), 0.1, dtype=dtype)
        sample[0] += 1e-3
        yield sample, sample.flip(0)
        yield sample, sample.repeat(3, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_moments", [2, 3, 4, 5])
def test_one_rare_value_is_no_distance_in_plain_torch(n_moments, dtype):
    assert not any(stacked_terms(*pair, n_moments).any() for pair in _rare_values(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_moments", [3, 4, 5])
def test_one_rare_value_makes_no_gradient(n_moments, dtype):
    assert not any(_gradient(*pair, n_moments=n_moments)[1].any() for pair in _rare_values(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_make_no_gradient_of_the_cross_variances(rng, dtype):
    noisy = 0
    for rows in (300, 1000, 5000):
        sample = torch.tensor(0.7 * (rng.random((rows, 1)) < 0.02), dtype=dtype)
        noisy += _gradient(sample, sample.repeat(3, 1), n_moments=2, cross=2)[1].any().item()
    assert noisy == 0


LEVELS = [
    # Rows -1 and 1 against the same moved by d: the means differ by d, and both have the size 1.
    (lambda rows, d: rows + d, 1, 1, 64),
    # Against (1 + d) times the same: variances differ by 2 d, fourth moments by 4 d, and all have the size 1.
    (lambda rows, d: rows * (1 + d), 2, 1, 32),
    (lambda rows, d: rows * (1 + d), 4, 1, 16),
    # Of two equal columns the four covariances differ by 2 d, the two off the diagonal count once; the size is 4.
    (lambda rows, d: rows * (1 + d), 2, 2, 64 / math.sqrt(3)),
]


@pytest.mark.parametrize(("rows", "growth"), [(2, 1.0), (1600, 10.0)])
@pytest.mark.parametrize(("other", "order", "cross", "digits"), LEVELS)
def test_a_term_is_noise_up_to_32_last_digits_of_its_size(other, order, cross, digits, rows, growth):
    """Where products of matrices add the rows, their noise grows with a quarter of the root of the rows."""
    sample = torch.tensor([[-1.0], [1.0]]).double().repeat(rows // 2, cross)
    level = digits * torch.finfo(sample.dtype).eps * (growth if cross == 2 else 1.0)
    for share, is_noise in ((0.85, True), (1.15, False)):
        terms = stacked_terms(sample, other(sample[:2], share * level), order, cross=cross)
        assert (terms[order - 1] == 0) == is_noise


def _joined(source, target):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return ma.CMDLoss(process_group=dist.group.WORLD).orders(source, target).detach().numpy()
    finally:
        dist.destroy_process_group()


def _trained(source, target):
    hidden = torch.cat([source, target]).float().numpy()
    loops = [part.compiled for part in marginal_loops(5)]
    objective, unused = Objective(1.0, 5, 1.0, 1.0, 0, 0, np.zeros(0), *loops), np.zeros(2, np.float32)
    compared = Compared(hidden, np.empty_like(hidden), len(source), 2, np.zeros(1, int), 1, *[unused] * 4)
    return entry_point(_cmd, OBJECTIVE, COMPARED)(objective, compared)


@compiled
def _cmd(objective, compared):
    return cmd(objective, compared)


PATHS = {
    "plain torch": lambda s, t: ma.cmd_terms(s, t).numpy(),
    "arrays": lambda s, t: ma.cmd_terms(s.numpy(), t.numpy()),
    "all cross-moments": lambda s, t: ma.cmd_terms(s[:, :1], t[:, :1], cross=5).numpy(),
    "compiled": lambda s, t: CPUBackend().terms(s, t, 5, 1.0)[0].numpy()[:5],
    "streaming": lambda s, t: ma.Moments().update(s).cmd_terms(ma.Moments().update(t)),
    "ranks": _joined,
    "several domains": lambda s, t: ma.multi_domain_cmd([s], [t]).item(),
    "training": _trained,
}
# Decades of the values, as powers of two: a scale that is exact.
DECADES = {torch.float32: range(-20, 21, 4), torch.float64: range(-100, 180, 20)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("path", PATHS)
def test_terms_are_exact_over_many_decades(rng, oracle, path, dtype):
    """A level that overflows makes no noise of a term, nor of its gradient."""
    samples = [torch.tensor(rng.normal(size=(30, 2)) ** power + 2.0, dtype=dtype) for power in (1, 2)]
    columns = 1 if path == "all cross-moments" else 2
    expected = np.array(oracle.cmd_terms(*(oracle.exact(sample[:, :columns].tolist()) for sample in samples), 5))
    for power in DECADES[dtype] if path != "training" else DECADES[torch.float32]:
        terms = expected * 2.0 ** (power * np.arange(1, 6))
        found = PATHS[path](*(sample * 2.0**power for sample in samples))
        tolerance = 1e-4 if dtype == torch.float32 or path == "training" else 1e-9
        np.testing.assert_allclose(found, terms if np.ndim(found) else terms.sum(), rtol=tolerance)


@pytest.mark.parametrize(("deviation", "dtype"), [(5e3, torch.float32), (1e35, torch.float64), (1e60, torch.float64)])
def test_large_values_of_a_small_sample_have_their_terms_and_gradients(rng, deviation, dtype):
    source, target = (torch.tensor(rng.normal(size=(200, 3)) ** power, dtype=dtype) for power in (1, 3))
    expected = ma.cmd_terms(source, target).double() * deviation ** torch.arange(1, 6).double()
    found = ma.cmd_terms(deviation * source, deviation * target).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0.0)
    _, gradient = _gradient(deviation * source, deviation * target)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > deviation**4


def test_a_guarded_norm_is_a_norm_above_its_level():
    difference = torch.tensor([[3.0, 4.0], [3e-30, 4e-30], [3e30, 4e30], [0.0, 0.0]])
    expected = torch.tensor([5.0, 5e-30, 5e30, 0.0])
    torch.testing.assert_close(guarded_norm(difference, torch.zeros(4)), expected, rtol=1e-6, atol=0.0)
    assert guarded_norm(difference, torch.tensor([5.1, 1.0, 1e29, 0.0])).tolist() == pytest.approx(
        [0.0, 0.0, 5e30, 0.0]
    )


def test_a_guarded_root_has_a_finite_gradient_at_zero_and_keeps_nan():
    squares = torch.tensor([0.0, 1e-20, -1e-20, 4.0], requires_grad=True)
    roots = guarded_root(squares, torch.full((4,), 1e-10))
    roots.sum().backward()
    assert roots.tolist() == [0.0, 0.0, 0.0, 2.0]
    assert squares.grad.tolist() == [0.0, 0.0, 0.0, 0.25]
    assert guarded_root(torch.tensor(float("nan")), torch.tensor(0.0)).isnan()
