import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.metrics import roc_auc_score

from momentalign.evaluation.domain_classifier import area_error, area_under_curve, tell_apart
from momentalign.evaluation.samples import read_samples


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
    assert result.p_value < 1e-9
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


@pytest.mark.parametrize("rows", [60, 300])
def test_a_feature_that_one_sample_lacks_tells_all(rng, rows):
    source = pd.DataFrame({"a": rng.random(rows), "b": rng.random(rows)})
    result = found(source, source.assign(b=np.nan))
    assert result.auc == 1.0


def test_many_categories_are_no_fault(rng):
    tables = [pd.DataFrame({"key": rng.integers(0, 10**9, 300).astype(str)}) for _ in range(2)]
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


def test_the_p_value_is_about_uniform_where_nothing_shifted(rng):
    p_values = [found(rng.normal(size=(40, 3)), rng.normal(size=(40, 3))).p_value for _ in range(100)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.005
    assert np.mean(np.array(p_values) <= 0.05) <= 0.12


def test_guessing_has_no_negative_distance(rng):
    results = [found(rng.normal(size=(20, 2)), rng.normal(size=(20, 2)), random_state=seed) for seed in range(8)]
    assert any(result.error > 0.5 for result in results)
    assert min(result.proxy_a_distance for result in results) == 0.0


def test_the_fewest_rows_suffice(rng):
    result = found(rng.normal(size=(8, 2)), rng.normal(9.0, 1.0, size=(8, 2)))
    assert result.auc == 1.0
    assert (result.auc_low, result.auc_high) == (1.0, 1.0)
