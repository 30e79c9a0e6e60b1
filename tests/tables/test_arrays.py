import gzip

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from momentalign.tables.read import read_chunks, read_table


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.npz"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_names_labels_and_ids(path, rng, save, order):
    rows = np.asarray(rng.normal(size=(20, 3)), order=order)
    labels, keys = np.arange(20) % 2, np.array([f"k{row}" for row in range(20)])
    save(path, x=rows, y=labels, key=keys, feature_names=np.array(["a", "b", "c"]))
    table = read_table(path, label="y", id_column="key")
    assert table.columns == ["a", "b", "c"]
    np.testing.assert_array_equal(table.rows, rows)
    np.testing.assert_array_equal(table.labels, labels)
    np.testing.assert_array_equal(table.ids, keys)
    chunks = list(read_chunks(path, rows=7, label="y", id_column="key"))
    assert [len(chunk) for chunk in chunks] == [7, 7, 6]
    np.testing.assert_array_equal(np.concatenate([chunk.rows for chunk in chunks]), rows)
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), labels)


def test_arrays_of_one_dimension_are_columns(path):
    np.savez(path, a=[1, 2], b=["x", "y"])
    assert read_table(path).rows.to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


def test_more_dimensions_are_laid_flat(path, rng):
    images = rng.integers(0, 255, (5, 4, 3, 2), dtype=np.uint8)
    np.savez(path, images=images)
    table = read_table(path)
    assert table.columns[:2] == ["x0", "x1"]
    np.testing.assert_array_equal(table.rows, images.reshape(5, -1))


def test_a_single_array(tmp_path, rng):
    rows = rng.normal(size=(5, 2))
    np.save(tmp_path / "rows.npy", rows)
    np.testing.assert_array_equal(read_table(tmp_path / "rows.npy").rows, rows)
    assert [len(chunk) for chunk in read_chunks(tmp_path / "rows.npy", rows=3)] == [3, 2]
    np.save(tmp_path / "rows.npy", rows[:, 0])
    assert read_table(tmp_path / "rows.npy").rows["rows"].tolist() == rows[:, 0].tolist()


def test_a_header_of_the_second_version(tmp_path, rng):
    rows = rng.normal(size=(4, 2))
    with (tmp_path / "rows.npy").open("wb") as file:
        np.lib.format.write_array(file, rows, version=(2, 0))
    np.testing.assert_array_equal(read_table(tmp_path / "rows.npy").rows, rows)


def test_the_suffix_does_not_matter(tmp_path, rng):
    np.savez(tmp_path / "rows.npz", x=rng.normal(size=(4, 2)))
    (tmp_path / "rows.npz").rename(tmp_path / "rows.dat")
    assert read_table(tmp_path / "rows.dat").rows.shape == (4, 2)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_of_scipy(path, rng, form):
    rows = sparse.random(30, 8, density=0.2, format=form, random_state=0)
    sparse.save_npz(path, rows)
    table = read_table(path)
    assert table.rows.dtype == np.float32
    assert table.columns == [str(column) for column in range(8)]
    np.testing.assert_array_equal(table.rows.toarray(), rows.toarray().astype(np.float32))
    chunks = list(read_chunks(path, rows=13))
    assert [len(chunk) for chunk in chunks] == [13, 13, 4]
    np.testing.assert_array_equal(np.vstack([chunk.rows.toarray() for chunk in chunks]), table.rows.toarray())


ROWS = sparse.random(50, 12, density=0.2, format="csr", random_state=0, dtype=np.float32)
LABELS = np.arange(50) % 3


@pytest.fixture
def svmlight(tmp_path):
    dump_svmlight_file(ROWS, LABELS, str(tmp_path / "rows.txt"), comment="a comment\n\nmore")
    return tmp_path / "rows.txt"


def test_rows_and_labels_of_svmlight(svmlight):
    table = read_table(svmlight, label="label")
    assert table.rows.dtype == np.float32
    np.testing.assert_allclose(table.rows.toarray(), ROWS.toarray(), rtol=1e-6)
    assert table.labels.tolist() == LABELS.tolist()
    assert table.labels.dtype == np.int64
    assert read_table(svmlight).labels is None


@pytest.mark.parametrize("rows", [1, 8, 50, 99])
def test_chunks_of_svmlight_are_the_whole(svmlight, rows):
    whole = read_table(svmlight, label="label")
    chunks = list(read_chunks(svmlight, rows=rows, label="label"))
    assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
    parts = [chunk.rows.copy() for chunk in chunks]
    for part in parts:
        part.resize(part.shape[0], 12)
    np.testing.assert_array_equal(sparse.vstack(parts).toarray(), whole.rows.toarray())
    assert np.concatenate([chunk.labels for chunk in chunks]).tolist() == whole.labels.tolist()


def test_an_index_is_the_column_whether_a_file_counts_from_0_or_1(tmp_path):
    (tmp_path / "rows.svm").write_text("0.5 1:2 3:4 # the first\n-1.5 qid:3 3:1\n")
    table = read_table(tmp_path / "rows.svm", label="label")
    assert table.rows.toarray().tolist() == [[0, 2, 0, 4], [0, 0, 0, 1]]
    assert table.labels.tolist() == [0.5, -1.5]


def test_compressed_svmlight(svmlight, tmp_path):
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress(svmlight.read_bytes()))
    assert read_table(tmp_path / "rows.svm.gz").rows.nnz == ROWS.nnz
