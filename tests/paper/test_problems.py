"""The artificial problem, of the authors and generated, and the reviews."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from momentalign.paper.catalogue import FILES
from momentalign.paper.problems import ARTIFICIAL_FILE, load_artificial, load_reviews, make_artificial


@pytest.fixture
def small_file(tmp_path, monkeypatch):
    """A problem of five points under the name of the real one, its digest in place of the real one."""
    one_hot = np.eye(3)
    np.savez_compressed(
        tmp_path / ARTIFICIAL_FILE,
        x_source=np.arange(6.0, dtype=np.float32).reshape(3, 2),
        y_source=one_hot[[2, 0, 1]],
        x_target=-np.arange(4.0).reshape(2, 2),
        y_target=one_hot[[1, 1]],
    )
    digest = hashlib.sha256((tmp_path / ARTIFICIAL_FILE).read_bytes()).hexdigest()
    monkeypatch.setitem(FILES, ARTIFICIAL_FILE, replace(FILES[ARTIFICIAL_FILE], sha256=digest))
    monkeypatch.delenv("MOMENTALIGN_DATA", raising=False)
    return tmp_path


@pytest.mark.parametrize("by_environment", [False, True])
def test_one_hot_labels_become_codes(small_file, monkeypatch, by_environment):
    if by_environment:
        monkeypatch.setenv("MOMENTALIGN_DATA", str(small_file))
    problem = load_artificial(None if by_environment else small_file)
    np.testing.assert_array_equal(problem.source, np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(problem.target, -np.arange(4.0).reshape(2, 2))
    assert problem.source.dtype == problem.target.dtype == np.float64
    assert problem.source_labels.tolist() == [2, 0, 1]
    assert problem.target_labels.tolist() == [1, 1]


def test_the_generated_problem_is_seeded_and_of_the_papers_shape():
    one, same, other = make_artificial(3), make_artificial(3), make_artificial(4)
    np.testing.assert_array_equal(one.source, same.source)
    np.testing.assert_array_equal(one.target, same.target)
    assert not np.isclose(one.source, other.source).all()
    assert one.source.shape == one.target.shape == (639, 2)
    for labels in (one.source_labels, one.target_labels):
        assert np.bincount(labels).tolist() == [200, 221, 218]


@pytest.mark.parametrize("seed", range(2))
def test_the_generated_target_is_learnable_but_not_from_the_source(seed):
    problem = make_artificial(seed)
    from_source = KNeighborsClassifier().fit(problem.source, problem.source_labels)
    assert from_source.score(problem.target, problem.target_labels) < 0.92
    from_target = KNeighborsClassifier().fit(problem.target[::2], problem.target_labels[::2])
    assert from_target.score(problem.target[1::2], problem.target_labels[1::2]) > 0.97
    linear = LogisticRegression().fit(problem.source, problem.source_labels)
    assert linear.score(problem.source, problem.source_labels) < 0.97


@pytest.mark.data
def test_the_real_files_are_the_papers():
    problem, reviews = load_artificial(), load_reviews()
    assert problem.source.shape == problem.target.shape == (639, 2)
    for labels in (problem.source_labels, problem.target_labels):
        assert np.bincount(labels).tolist() == [200, 221, 218]
    sizes = {name: rows.shape for name, rows in reviews.rows.items()}
    assert sizes == {"books": (6465, 5000), "dvd": (5586, 5000), "electronics": (7681, 5000), "kitchen": (7945, 5000)}
    for name, labels in reviews.labels.items():
        assert len(labels) == sizes[name][0]
        assert labels[:2000].mean() == 0.5
    assert len(reviews.vocabulary) == 5000
    assert reviews.rows["books"].dtype == np.float32
