import math

import numpy as np
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.evaluation.importance import effective_sample_size, importance_weights, logistic_ratio


@pytest.fixture
def normals(rng):
    """Source N(0, 1), target N(1/2, 1): the ratio at x is exp(x/2 - 1/8)."""
    source, target = rng.normal(0.0, 1.0, (4000, 1)), rng.normal(0.5, 1.0, (2000, 1))
    return source, target, np.exp(source[:, 0] / 2 - 1 / 8)


def test_logistic_ratio_recovers_that_of_two_normals(normals):
    source, target, truth = normals
    ratio = logistic_ratio(source=source, target=target)
    assert ratio.mean() == pytest.approx(1.0, abs=0.05)
    assert np.abs(np.log(ratio / truth)).max() < 0.3
    assert np.abs(ratio - truth).mean() < 0.05


def test_the_ratio_does_not_depend_on_the_sizes_of_the_samples(normals):
    source, target, truth = normals
    few = logistic_ratio(source=source, target=target[:400])
    assert few.mean() == pytest.approx(1.0, abs=0.1)
    assert np.abs(few - truth).mean() < 0.1


def test_weighted_source_means_become_target_means(normals):
    source, target, _ = normals
    weights = importance_weights(ratio=logistic_ratio(source=source, target=target))
    assert (weights * source[:, 0]).mean() == pytest.approx(0.5, abs=0.05)
    assert (weights * source[:, 0] ** 2).mean() == pytest.approx(1.25, abs=0.1)


def test_rows_are_judged_by_classifiers_that_have_not_seen_them(rng):
    """In as many dimensions as rows a classifier knows its own rows' domain; others' it cannot know."""
    source, target = rng.normal(size=(60, 120)), rng.normal(size=(60, 120))
    ratio = logistic_ratio(source=source, target=target, strength=100.0)
    assert 0.3 < (ratio > 1.0).mean() < 0.7


def test_columns_of_any_scale_count_alike(normals):
    source, target, _ = normals
    ratio = logistic_ratio(source=source, target=target)
    assert logistic_ratio(source=1e-4 * source, target=1e-4 * target) == pytest.approx(ratio, rel=1e-3)


def test_sparse_features_give_the_same_ratio(rng):
    source, target = (rng.poisson(rate, (300, 5)).astype(float) for rate in (0.3, 0.4))
    dense = logistic_ratio(source=source, target=target)
    assert logistic_ratio(source=sparse.csr_matrix(source), target=sparse.csr_matrix(target)) == pytest.approx(
        dense, abs=1e-3
    )
    assert logistic_ratio(source=source, target=sparse.csr_matrix(target)) == pytest.approx(dense, abs=1e-3)


def test_seeds_change_the_folds_only(normals):
    source, target, _ = normals
    first, again, other = (logistic_ratio(source=source, target=target, seed=seed) for seed in (0, 0, 1))
    assert (first == again).all()
    assert 0.0 < np.abs(first - other).mean() < 0.05


def test_domains_without_overlap_keep_finite_ratios():
    ratio = logistic_ratio(source=np.zeros((50, 1)), target=np.ones((50, 1)), strength=1e12)
    assert np.isfinite(ratio).all()
    assert ratio.max() < 1e-3


def test_large_ratios_are_cut_at_a_multiple_of_their_mean():
    ratio = [1.0, 1.0, 1.0, 5.0]  # Mean 2, cut at 3: mean 3/2.
    assert importance_weights(ratio=ratio, largest=1.5) == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2.0])
    assert importance_weights(ratio=ratio, largest=math.inf) == pytest.approx([0.5, 0.5, 0.5, 2.5])


def test_effective_sample_size_by_hand():
    assert effective_sample_size(weights=[1.0, 3.0]) == pytest.approx(16 / 10)
    assert effective_sample_size(weights=[1e-300, 3e-300]) == pytest.approx(16 / 10)


def _ratio(source=((0.0,),) * 4, target=((0.0,),) * 9, **settings):
    return logistic_ratio(source=source, target=target, **{"folds": 2, **settings})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _ratio(np.zeros((5, 2)), np.zeros((5, 3))), "source has 2 columns and target has 3"),
        (lambda: _ratio(target=[[math.nan]]), "target holds NaN"),
        (lambda: _ratio(folds=1), r"smaller domain \(4\), got 1"),
        (lambda: _ratio(folds=5), r"smaller domain \(4\), got 5"),
        (lambda: _ratio(strength=0.0), "strength must be positive and finite"),
        (lambda: _ratio(strength=math.inf), "strength must be positive and finite"),
        (lambda: _ratio(strength=math.nan), "strength must be positive and finite"),
        (lambda: importance_weights(ratio=[1.0], largest=0.5), "largest must be at least 1"),
        (lambda: importance_weights(ratio=[1.0], largest=math.nan), "largest must be at least 1"),
        (lambda: importance_weights(ratio=[0.0, 0.0]), "ratio is zero in every row"),
        (lambda: effective_sample_size(weights=[0.0, 0.0]), "weights are zero in every row"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
