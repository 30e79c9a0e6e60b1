import gzip

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from momentalign.tables.read import read_chunks, read_table

ROWS = sparse.random(50, 12, density=0.2, format="csr", random_state=0, dtype=np.float32)
LABELS = np.arange(50) % 3


@pytest.fixture
def path(tmp_path):
    dump_svmlight_file(ROWS, LABELS, str(tmp_path / "rows.txt"), comment="a comment\n\nmore")
    return tmp_path / "rows.txt"


def test_rows_and_labels(path):
    table = read_table(path, label="label")
    assert table.rows.dtype == np.float32
    np.testing.assert_allclose(table.rows.toarray(), ROWS.toarray(), rtol=1e-6)
    assert table.labels.tolist() == LABELS.tolist()
    assert table.labels.dtype == np.int64
    assert read_table(path).labels is None


@pytest.mark.parametrize("rows", [1, 8, 50, 99])
def test_chunks_are_the_whole(path, rows):
    whole = read_table(path, label="label")
    chunks = list(read_chunks(path, rows=rows, label="label"))
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


def test_compressed(path, tmp_path):
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_table(tmp_path / "rows.svm.gz").rows.nnz == ROWS.nnz
