"""The generated problem: seeded, of the stated shape, and hard enough."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from momentalign.paper.problems import make_artificial


def test_same_seed_same_points_and_other_seed_other_points():
    one, same, other = make_artificial(3), make_artificial(3), make_artificial(4)
    np.testing.assert_array_equal(one.source, same.source)
    np.testing.assert_array_equal(one.target, same.target)
    assert not np.isclose(one.source, other.source).all()


def test_shapes_and_classes():
    problem = make_artificial()
    assert problem.source.shape == problem.target.shape == (639, 2)
    for labels in (problem.source_labels, problem.target_labels):
        assert np.bincount(labels).tolist() == [200, 221, 218]


@pytest.mark.parametrize("seed", range(3))
def test_target_is_learnable_but_not_from_the_source(seed):
    problem = make_artificial(seed)
    from_source = KNeighborsClassifier().fit(problem.source, problem.source_labels)
    assert from_source.score(problem.target, problem.target_labels) < 0.92
    from_target = KNeighborsClassifier().fit(problem.target[::2], problem.target_labels[::2])
    assert from_target.score(problem.target[1::2], problem.target_labels[1::2]) > 0.97
    linear = LogisticRegression().fit(problem.source, problem.source_labels)
    assert linear.score(problem.source, problem.source_labels) < 0.97
