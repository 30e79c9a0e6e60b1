"""Two samples as a whole: the CMD with its permutation test, and the classifier of domains."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.metrics import roc_auc_score

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.evaluation.samples import read_samples
from momentalign.evaluation.whole_samples import (
    area_error,
    area_under_curve,
    compare_moments,
    tell_apart,
    unit_interval,
)


@pytest.fixture
def samples(rng):
    return rng.normal(3.0, 1.0, (70, 4)), rng.gamma(2.0, 1.5, (50, 4))


def scaled(source, target):
    both = unit_interval(np.vstack([source, target]))
    return both[: len(source)], both[len(source) :]


@pytest.mark.parametrize("n_moments", [1, 2, 5, 7])
def test_the_values_are_the_terms_of_the_cmd_of_scaled_features(samples, n_moments):
    found = compare_moments(*samples, n_moments=n_moments, n_permutations=3)
    terms = cmd_terms(*scaled(*samples), n_moments=n_moments)
    assert found.values[:-1] == pytest.approx(terms, abs=1e-12)
    assert found.values[-1] == pytest.approx(terms.sum(), abs=1e-12)


def test_relabellings_are_compared_as_brute_force_does(samples):
    """The same relabellings, each with its distance computed from its rows."""
    count = 60
    found = compare_moments(*samples, n_permutations=count, random_state=3)
    rows = np.vstack(scaled(*samples))
    labels = np.arange(len(rows)) < len(samples[0])
    drawn = np.random.default_rng(3).permuted(np.tile(labels, (count, 1)), axis=1)
    terms = np.array([cmd_terms(rows[chosen], rows[~chosen]) for chosen in drawn])
    terms = np.column_stack([terms, terms.sum(axis=1)])
    assert found.by_chance == pytest.approx(np.quantile(terms, 0.95, axis=0), abs=1e-10)
    assert found.p_values == pytest.approx((1 + (terms >= found.values).sum(axis=0)) / (1 + count))


def test_many_features_and_relabellings_go_in_parts(rng):
    """More than are computed at once, so that each part has to be put in its place."""
    source, target = rng.random((30, 150)), rng.random((40, 150))
    found = compare_moments(source, target, n_permutations=300)
    assert found.values[:-1] == pytest.approx(cmd_terms(*scaled(source, target)), abs=1e-12)
    assert 0.05 < found.p_values[-1] < 0.95


def test_missing_values_are_left_out_of_their_feature(samples):
    source, target = (sample.copy() for sample in samples)
    source[::3, 1], target[5:, 1] = np.nan, np.nan
    found = compare_moments(source, target, n_permutations=20)
    left, right = scaled(source, target)
    squares = np.zeros(5)
    for column in range(4):
        pair = [side[~np.isnan(side[:, column]), column : column + 1] for side in (left, right)]
        squares += cmd_terms(*pair) ** 2
    assert found.values[:-1] == pytest.approx(np.sqrt(squares), abs=1e-12)


def test_a_relabelling_without_any_value_of_a_feature_is_no_fault(rng):
    source, target = rng.random((20, 2)), rng.random((20, 2))
    source[1:, 0], target[1:, 0] = np.nan, np.nan
    found = compare_moments(source, target, n_permutations=50)
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.by_chance).all()


def test_p_values_are_uniform_where_nothing_shifted(rng):
    p_values = []
    for seed in range(200):
        source, target = rng.exponential(size=(25, 3)), rng.exponential(size=(15, 3))
        p_values.append(compare_moments(source, target, n_permutations=99, random_state=seed).p_values)
    for column in np.array(p_values).T:
        # Random within the steps of 1/100, so that the distribution is continuous.
        smooth = column - rng.random(200) / 100
        assert stats.kstest(smooth, "uniform").pvalue > 0.005


@pytest.mark.parametrize(
    ("change", "order"),
    [(lambda x: x + 0.3, 0), (lambda x: x * 1.5, 1), (lambda x: np.exp(x) / 2.16 - 0.76, 2)],
    ids=["location", "spread", "skewness"],
)
def test_a_shift_shows_in_its_order(rng, change, order):
    source, target = rng.normal(size=(800, 3)), change(rng.normal(size=(800, 3)))
    found = compare_moments(source, target, n_permutations=199)
    assert found.p_values[order] == 1 / 200
    assert found.values[order] > found.by_chance[order]


def test_constant_features_give_no_distance():
    found = compare_moments(np.full((9, 2), 0.1), np.full((8, 2), 0.1), n_permutations=19)
    assert (found.values == 0.0).all()
    assert (found.p_values == 1.0).all()


def test_relabellings_as_far_apart_as_the_samples_count():
    """Zeros and ones: many relabellings have the very distance of the samples, whatever the order of their sums."""
    source, target = np.repeat([[0.0], [1.0]], [20, 11], axis=0), np.repeat([[0.0], [1.0]], [10, 13], axis=0)
    found = compare_moments(source, target, n_permutations=999)
    ones = stats.hypergeom(54, 24, 31)
    counts = np.arange(25)
    far = np.abs(counts / 31 - (24 - counts) / 23) >= abs(11 / 31 - 13 / 23) - 1e-9
    assert found.p_values[0] == pytest.approx(ones.pmf(counts)[far].sum(), abs=0.035)
    assert ones.pmf(11) > 0.06


def test_seeds_are_kept(samples):
    first, again, other = (compare_moments(*samples, n_permutations=50, random_state=seed) for seed in (1, 1, 2))
    assert (first.by_chance == again.by_chance).all()
    assert (first.by_chance != other.by_chance).any()


def test_one_odd_value_does_not_rule_the_scale_and_huge_ones_do_not_overflow(rng):
    rows = rng.random((1000, 1))
    rows[0] = 1e12
    assert 0.4 < unit_interval(rows).mean() < 0.6
    assert unit_interval(np.array([[-1.7e308], [0.0], [1.7e308]]))[:, 0].tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(("value", "scaled"), [(4.0, [1.0, 0.0]), (-4.0, [0.0, 1.0])])
def test_a_rare_value_is_scaled_by_its_range(value, scaled):
    rows = np.zeros((1000, 1))
    rows[0] = value
    assert unit_interval(rows)[:2, 0].tolist() == scaled


def found(source, target, **options):
    return tell_apart(read_samples(source, target), **options)


def test_the_area_is_that_of_scikit_learn(rng):
    scores, domain = rng.integers(0, 9, 60).astype(float), rng.integers(0, 2, 60)
    assert area_under_curve(scores, domain) == pytest.approx(roc_auc_score(domain, scores))


def test_the_standard_error_is_that_of_many_samples(rng):
    """Exponential scores, for which the formula of Hanley and McNeil is exact."""
    domain = np.repeat([0, 1], [40, 60])
    areas = [area_under_curve(rng.exponential(1 + 2 * domain), domain) for _ in range(2000)]
    assert area_error(0.75, 40, 60) == pytest.approx(np.std(areas), rel=0.1)
    assert area_error(1.0, 40, 60) == 0.0


@pytest.mark.parametrize("rows", [50, 300])
def test_samples_far_apart_are_told_apart(rng, rows):
    result = found(rng.normal(0, 1, (rows, 3)), rng.normal([0, 9, 0], 1, (rows + 20, 3)))
    assert result.rows == rows
    assert result.auc == pytest.approx(1.0, abs=0.01)
    assert result.proxy_a_distance == pytest.approx(2.0 * (1.0 - 2.0 * result.error))
    assert result.proxy_a_distance > 1.9
    assert result.p_value < 1e-6
    assert result.features[0][0] == "x1"
    assert result.features[0][1] > 0.3


def test_small_samples_are_told_apart_by_lines_and_large_ones_by_trees(rng):
    wide = rng.random((400, 201))
    names = [found(rng.random((rows, 2)), rng.random((rows, 2))).name for rows in (199, 200)] + [
        found(wide[:200], wide[200:]).name
    ]
    assert names == ["logistic regression", "gradient-boosted trees", "logistic regression"]


def test_trees_find_features_that_hang_together_differently(rng):
    source = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 600)
    target = rng.multivariate_normal([0, 0], [[1, -0.8], [-0.8, 1]], 600)
    result = found(source, target)
    assert result.auc > 0.75
    assert min(drop for _, drop in result.features) > 0.1


@pytest.mark.parametrize("rows", [60, 300])
def test_missing_values_and_categories_tell_too(rng, rows):
    def table(share, weights):
        numbers = rng.normal(size=rows)
        return pd.DataFrame(
            {
                "number": np.where(rng.random(rows) < share, np.nan, numbers),
                "word": rng.choice(["a", "b", None], rows, p=weights),
                "noise": rng.normal(size=rows),
            }
        )

    result = found(table(0.0, [0.8, 0.1, 0.1]), table(0.6, [0.1, 0.8, 0.1]))
    assert result.auc > 0.85
    assert {name for name, _ in result.features[:2]} == {"number", "word"}
    source = table(0.0, [0.8, 0.1, 0.1])
    assert found(source, source.assign(noise=np.nan)).auc == 1.0


def test_many_categories_are_no_fault(rng):
    tables = [pd.DataFrame({"key": rng.integers(0, 200, 300).astype(str)}) for _ in range(2)]
    assert found(*tables).auc < 0.6


def test_sparse_rows_give_what_dense_ones_give(rng):
    source, target = (rng.poisson(rate, (150, 6)).astype(float) for rate in (0.4, [0.4, 0.4, 1.5, 0.4, 0.4, 0.4]))
    dense = found(source, target)
    result = found(sparse.csr_array(source), sparse.csr_array(target))
    assert result.auc == pytest.approx(dense.auc, abs=0.03)
    assert result.features[0][0] == dense.features[0][0] == "x2"


def test_rows_are_drawn_evenly_and_seeds_are_kept(rng):
    source, target = rng.normal(0, 1, (500, 2)), rng.normal(0.5, 1, (90, 2))
    first, again, other = (found(source, target, most_rows=60, random_state=seed) for seed in (0, 0, 1))
    assert first.rows == 60
    assert first == again
    assert first.auc != other.auc


def test_where_nothing_shifted_small_p_values_are_as_rare_as_they_say(rng):
    p_values = np.array([found(rng.normal(size=(40, 3)), rng.normal(size=(40, 3))).p_value for _ in range(100)])
    assert np.mean(p_values <= 0.05) <= 0.05
    assert 0.05 <= np.mean(p_values <= 0.25) <= 0.3


def test_guessing_has_no_negative_distance(rng):
    results = [found(rng.normal(size=(20, 2)), rng.normal(size=(20, 2)), random_state=seed) for seed in range(8)]
    assert any(result.error > 0.5 for result in results)
    assert min(result.proxy_a_distance for result in results) == 0.0


def test_the_fewest_rows_suffice(rng):
    result = found(rng.normal(size=(8, 2)), rng.normal(9.0, 1.0, size=(8, 2)))
    assert result.auc == 1.0
    assert (result.auc_low, result.auc_high) == (1.0, 1.0)
