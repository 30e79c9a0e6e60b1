import math

import numpy as np
import pytest
from scipy import stats

from momentalign.evaluation.features import compare_categories, proportions_p_value


def words(*counts):
    return np.array([name for name, count in zip("abcdefgh", counts, strict=False) for _ in range(count)], dtype=object)


def test_distance_and_p_value_follow_their_definitions():
    source, target = (50, 30, 20), (20, 30, 60)
    found = compare_categories(words(*source), words(*target))
    shares = np.array([source, target]) / [[100], [110]]
    assert found.distance == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)
    assert found.p_value == pytest.approx(stats.chi2_contingency(np.array([source, target])).pvalue)
    assert [level.name for level in found.levels] == ["c", "a", "b"]


def test_rare_categories_are_tested_as_one():
    source, target = (40, 40, 1, 1, 2), (40, 20, 3, 2, 4)
    together = [[40, 40, 4], [40, 20, 9]]
    expected = stats.chi2_contingency(np.array(together)).pvalue
    assert compare_categories(words(*source), words(*target)).p_value == pytest.approx(expected)


def test_categories_that_are_all_rare_are_not_tested():
    found = compare_categories(words(1, 1, 1, 1), words(0, 0, 0, 0, 1, 1, 1, 1))
    assert found.distance == 1.0
    assert math.isnan(found.p_value)


def test_one_category_everywhere_is_not_tested():
    found = compare_categories(words(9), words(12))
    assert found.distance == 0.0
    assert math.isnan(found.p_value)


def test_two_categories_of_few_rows_get_the_exact_test():
    found = compare_categories(words(9, 1), words(2, 8))
    assert found.p_value == pytest.approx(stats.fisher_exact([[9, 2], [1, 8]]).pvalue)


def test_new_and_lost_categories_are_counted():
    found = compare_categories(words(5, 0, 5), words(5, 15, 0))
    assert (found.new, found.gone) == (0.75, 0.5)


def test_a_sample_without_values_is_not_compared():
    found = compare_categories(words(), words(3))
    assert math.isnan(found.distance)
    assert found.levels == []
    assert found.new == 0


def test_proportions_use_chi_square_where_hits_are_many():
    expected = stats.chi2_contingency([[30, 60], [70, 40]], correction=False).pvalue
    assert proportions_p_value(30, 100, 60, 100) == pytest.approx(expected)


def test_proportions_use_the_exact_test_where_hits_are_few():
    expected = stats.fisher_exact([[1, 6], [19, 14]]).pvalue
    assert proportions_p_value(1, 20, 6, 20) == pytest.approx(expected)


def test_every_row_hit_on_both_sides_is_no_difference():
    assert proportions_p_value(20, 20, 30, 30) == 1.0
