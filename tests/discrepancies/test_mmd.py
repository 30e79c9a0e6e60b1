import math
import statistics
from itertools import combinations

import numpy as np
import pytest
import torch

import momentalign as ma
from momentalign.discrepancies import mmd as maximum_mean
from momentalign.discrepancies.mmd import stacked_mmd

KERNELS = [
    {"kernel": "gaussian", "beta": 1.2},
    {"kernel": "gaussian", "beta": (0.3, 2.0)},
    {"kernel": "gaussian"},
    {"kernel": "gaussians", "beta": 0.7},
    {"kernel": "gaussians"},
    {"kernel": "polynomial"},
    {"kernel": "polynomial", "degree": 1},
    {"kernel": "polynomial", "degree": 5},
    {"kernel": "linear"},
]


def _oracle_kernel(oracle, joined, kernel="gaussian", beta="median", degree=2):
    if kernel == "linear":
        return oracle.dot
    if kernel == "polynomial":
        return lambda x, y: (1 + oracle.dot(x, y)) ** degree
    if beta == "median":
        beta = 1 / statistics.median_low(oracle.squared_distance(x, y) for x, y in combinations(joined, 2))
    betas = beta if isinstance(beta, tuple) else (beta,)
    if kernel == "gaussians":
        betas = [factor * b for b in betas for factor in (0.25, 0.5, 1, 2, 4)]
    return lambda x, y: sum(math.exp(-b * oracle.squared_distance(x, y)) for b in betas)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("settings", KERNELS)
def test_the_estimate_matches_the_double_loop(pair, oracle, settings, unbiased):
    source, target = (sample.tolist() for sample in pair(7, 5))
    expected = oracle.mmd(source, target, _oracle_kernel(oracle, source + target, **settings), unbiased=unbiased)
    assert ma.mmd(source, target, unbiased=unbiased, **settings) == pytest.approx(expected, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("settings", KERNELS)
def test_linear_time_matches_a_loop_over_pairs(pair, oracle, settings):
    source, target = (sample.tolist() for sample in pair(7, 9))
    k = _oracle_kernel(oracle, source + target, **settings)
    pairs = [(source[i], source[i + 1], target[i], target[i + 1]) for i in (0, 2, 4)]
    expected = statistics.mean(k(x, x2) + k(y, y2) - k(x, y2) - k(x2, y) for x, x2, y, y2 in pairs)
    assert ma.mmd(source, target, linear_time=True, **settings) == pytest.approx(expected, rel=1e-11, abs=1e-13)


def test_linear_time_never_builds_a_matrix_of_pairs(rng):
    # 200,000 rows: all pairs would be 320 GB.
    source, target = rng.random((200_000, 2)), rng.random((200_000, 2))
    assert abs(ma.mmd(source, target, linear_time=True)) < 0.01


@pytest.mark.parametrize("linear_time", [False, True])
@pytest.mark.parametrize(
    "settings", [{"beta": 1.2}, {"kernel": "gaussians", "beta": 1.0}, {"kernel": "polynomial"}, {"kernel": "linear"}]
)
def test_without_bias_two_samples_of_one_distribution_average_to_zero(rng, settings, linear_time):
    draws = [
        ma.mmd(rng.random((10, 5)), rng.random((14, 5)), unbiased=True, linear_time=linear_time, **settings)
        for _ in range(400)
    ]
    assert abs(np.mean(draws)) < 4 * np.std(draws, ddof=1) / 20
    biased = np.mean([ma.mmd(rng.random((10, 5)), rng.random((14, 5)), **settings) for _ in range(50)])
    assert biased > 4 * np.std(draws, ddof=1) / 20


@pytest.mark.parametrize("settings", KERNELS)
def test_the_biased_estimate_is_a_distance(pair, settings):
    source, target = pair(9, 6)
    value = ma.mmd(source, target, **settings)
    assert value > 0
    torch.testing.assert_close(ma.mmd(target, source, **settings), value, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(ma.mmd(source.flip(0), target, **settings), value, rtol=1e-12, atol=1e-14)
    assert ma.mmd(source, source.flip(0), **settings).abs() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gaussian_kernels_do_not_see_a_common_offset(pair, dtype):
    source, target = (sample.to(dtype) for sample in pair(20, 30))
    shifted = ma.mmd(source + 1024, target + 1024, beta=1.0)
    torch.testing.assert_close(
        shifted, ma.mmd((source + 1024) - 1024, (target + 1024) - 1024, beta=1.0), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    "settings", [{}, {"beta": 1.0}, {"kernel": "gaussians"}, {"kernel": "polynomial"}, {"kernel": "linear"}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coinciding_samples_have_no_gradient(pair, rng, dtype, settings):
    source, _ = pair(20, 1, dtype=dtype)
    source.requires_grad_()
    ma.mmd(source, source.detach()[rng.permutation(20)], **settings).backward()
    assert source.grad.abs().max() < 100 * torch.finfo(dtype).eps


def test_the_median_looks_at_a_thousand_rows_of_both_samples(rng, monkeypatch, pair):
    source, target = pair(40, 40, 2)
    full = ma.mmd(source, target)
    monkeypatch.setattr(maximum_mean, "MEDIAN_ROWS", 20)
    joined = torch.cat([source, target])[::4]
    beta = 1 / torch.pdist(joined).square().median().item()
    torch.testing.assert_close(ma.mmd(source, target), ma.mmd(source, target, beta=beta), rtol=1e-11, atol=0)
    assert ma.mmd(source, target) != full


def test_equal_and_single_rows_have_a_median(rng):
    assert ma.mmd(np.ones((3, 2)), np.ones((4, 2))) == 0.0
    assert ma.mmd([[0.0]], [[2.0]]) == pytest.approx(2 - 2 * math.exp(-1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(rng, dtype):
    source, target = (torch.tensor(20 * rng.random((30, 4)) ** p).to(dtype).requires_grad_() for p in (1, 2))
    for settings in ({}, {"kernel": "polynomial"}):
        value = ma.mmd(source, target, **settings)
        assert value.dtype == torch.float32
        torch.testing.assert_close(
            value.double(), ma.mmd(source.double(), target.double(), **settings), rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize(
    "settings", [*KERNELS, {"unbiased": True, "beta": 2}, {"linear_time": True, "kernel": "linear"}]
)
def test_the_loss_is_the_function(pair, settings):
    source, target = pair()
    assert ma.MMDLoss(**settings)(source, target) == ma.mmd(source, target, **settings)


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ({"beta": 1.0}, True),
        ({"beta": np.float32(1.0)}, True),
        ({}, True),
        ({"beta": [1.0]}, False),
        ({"beta": 1.0, "kernel": "gaussians"}, False),
        ({"beta": 1.0, "unbiased": True}, False),
        ({"beta": 1.0, "linear_time": True}, False),
    ],
)
def test_which_mmd_the_compiled_loops_know(settings, plain):
    assert (ma.MMDLoss(**settings).compiled() is not None) is plain


def test_a_stack_takes_one_beta_for_each_pair(rng):
    source, target = torch.tensor(rng.random((3, 6, 2))), torch.tensor(rng.random((3, 5, 2)))
    betas = [0.1, 1.0, 7.0]
    expected = [ma.mmd(s, t, beta=b) for s, t, b in zip(source, target, betas, strict=True)]
    torch.testing.assert_close(
        stacked_mmd(source, target, torch.tensor(betas)), torch.stack(expected), rtol=1e-6, atol=1e-9
    )


def test_float32_samples_far_apart_keep_their_own_kernels(pair):
    source, _ = pair(20, 1, dtype=torch.float32)
    target = source + 1e4
    torch.testing.assert_close(
        ma.mmd(source, target, beta=1.0).double(), ma.mmd(source.double(), target.double(), beta=1.0), rtol=1e-3, atol=0
    )
