import hashlib
from dataclasses import replace

import numpy as np
import pytest

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.paper import problems as benchmarks
from momentalign.paper.catalogue import ARTIFICIAL, find_file
from momentalign.paper.problems import load_artificial


@pytest.fixture
def small_file(tmp_path, monkeypatch):
    """A problem of five points under the name of the real one, its digest in place of the real one."""
    one_hot = np.eye(3)
    np.savez_compressed(
        tmp_path / ARTIFICIAL.name,
        x_source=np.arange(6.0, dtype=np.float32).reshape(3, 2),
        y_source=one_hot[[2, 0, 1]],
        x_target=-np.arange(4.0).reshape(2, 2),
        y_target=one_hot[[1, 1]],
    )
    digest = hashlib.sha256((tmp_path / ARTIFICIAL.name).read_bytes()).hexdigest()
    monkeypatch.setattr(benchmarks, "ARTIFICIAL", replace(ARTIFICIAL, sha256=digest))
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


def test_without_a_folder_the_error_says_how_to_get_the_file(monkeypatch):
    monkeypatch.delenv("MOMENTALIGN_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match=r"artificial.npz is needed: .*--data DIR.*github.com/wzell/mann"):
        find_file(ARTIFICIAL)


def test_a_missing_file_is_named_with_its_path(tmp_path):
    with pytest.raises(DataNotFoundError) as caught:
        find_file(ARTIFICIAL, tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'artificial.npz'} is not there.")


def test_a_file_with_another_digest_is_refused_before_it_is_read(small_file, monkeypatch):
    path = small_file / ARTIFICIAL.name
    path.write_bytes(path.read_bytes() + b"\0")
    monkeypatch.setattr(np, "load", lambda *_: pytest.fail("a damaged file was parsed"))
    with pytest.raises(DamagedFileError, match=r"not the file it should be .SHA-256 [0-9a-f]{12}, expected"):
        load_artificial(small_file)


def test_pickled_arrays_are_refused(tmp_path, monkeypatch):
    path = tmp_path / ARTIFICIAL.name
    np.savez(path, x_source=np.array([{"an": "object"}], dtype=object))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(benchmarks, "ARTIFICIAL", replace(ARTIFICIAL, sha256=digest))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_artificial(tmp_path)


@pytest.mark.data
def test_the_real_file_is_the_papers_problem():
    try:
        problem = load_artificial()
    except DataNotFoundError:
        pytest.skip("MOMENTALIGN_DATA does not hold the file")
    assert problem.source.shape == problem.target.shape == (639, 2)
    assert np.bincount(problem.source_labels).tolist() == [200, 221, 218]
    assert np.bincount(problem.target_labels).tolist() == [200, 221, 218]


@pytest.mark.data
def test_the_reviews_are_the_papers():
    reviews = benchmarks.load_reviews()
    sizes = {name: rows.shape for name, rows in reviews.rows.items()}
    assert sizes == {"books": (6465, 5000), "dvd": (5586, 5000), "electronics": (7681, 5000), "kitchen": (7945, 5000)}
    for name, labels in reviews.labels.items():
        assert len(labels) == sizes[name][0]
        assert labels[:2000].mean() == 0.5
    assert len(reviews.vocabulary) == 5000
    assert reviews.rows["books"].dtype == np.float32
