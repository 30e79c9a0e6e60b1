import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from momentalign.errors import (
    DamagedFileError,
    DataNotFoundError,
    InvalidInputError,
    InvalidTypeError,
    MomentAlignError,
)
from momentalign.tables.chunks import ArrayChunks, FileChunks, NpyChunks


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(25, 4)).astype(np.float32)


@pytest.fixture
def labels():
    return np.arange(25) % 3


def _joined(chunks):
    """Read twice, the second time the same as the first; return rows and labels of all chunks."""
    readings = [list(chunks), list(chunks)]
    parts = [[part if isinstance(part, tuple) else (part, None) for part in reading] for reading in readings]
    for (first, _), (second, _) in zip(*parts, strict=True):
        assert (first != second).sum() == 0 if sparse.issparse(first) else np.array_equal(first, second)
    matrices = [part.toarray() if sparse.issparse(part) else np.asarray(part) for part, _ in parts[0]]
    found = [part for _, part in parts[0] if part is not None]
    return np.concatenate(matrices), np.concatenate(found) if found else None, [len(matrix) for matrix in matrices]


def _assert_read(chunks, rows, labels=None, sizes=(10, 10, 5)):
    found, found_labels, found_sizes = _joined(chunks)
    np.testing.assert_array_equal(found, rows)
    assert tuple(found_sizes) == sizes
    if labels is None:
        assert found_labels is None
    else:
        np.testing.assert_array_equal(found_labels, labels)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_arrays_and_sparse_matrices(rows, labels, kind):
    _assert_read(ArrayChunks(kind(rows), rows=10), rows)
    _assert_read(ArrayChunks(kind(rows), labels.tolist(), rows=10), rows, labels)


def test_arrays_that_are_none():
    for wrong in ([[1.0]], np.zeros(3), pd.DataFrame({"a": [1.0]})):
        with pytest.raises(InvalidTypeError, match=r"X must be an array or a CSR matrix.*convert"):
            ArrayChunks(wrong)
    with pytest.raises(InvalidInputError, match="y has 4 labels, X has 3 rows"):
        ArrayChunks(np.zeros((3, 1)), np.zeros(4))


@pytest.mark.parametrize("value", [0, -1, 2.0, True, None])
def test_a_number_of_rows_that_is_none(value):
    with pytest.raises(MomentAlignError, match=r"rows must be .*, got .*65536"):
        ArrayChunks(np.zeros((3, 1)), rows=value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_npy_files(tmp_path, rows, labels, order, dtype):
    rows = np.asarray(100 * rows, dtype=dtype, order=order)
    np.save(tmp_path / "X.npy", rows)
    np.save(tmp_path / "y.npy", labels)
    _assert_read(NpyChunks(tmp_path / "X.npy", rows=10), rows)
    _assert_read(NpyChunks(str(tmp_path / "X.npy"), tmp_path / "y.npy", rows=10), rows, labels)


def test_a_chunk_of_an_npy_file_is_no_window_on_it(tmp_path, rows):
    """A window would keep the pages of the file in memory, and change with it."""
    np.save(tmp_path / "X.npy", rows)
    chunks = iter(NpyChunks(tmp_path / "X.npy", rows=10))
    first = next(chunks)
    assert first.flags.owndata
    assert type(first) is np.ndarray
    np.save(tmp_path / "X.npy", rows + 1)
    np.testing.assert_array_equal(first, rows[:10])


def test_an_npy_file_that_is_gone_when_it_is_read_again(tmp_path, rows):
    np.save(tmp_path / "X.npy", rows)
    chunks = NpyChunks(tmp_path / "X.npy")
    (tmp_path / "X.npy").unlink()
    with pytest.raises(DamagedFileError, match=r"X.npy cannot be read to its end"):
        list(chunks)


def test_npy_files_that_cannot_be_read(tmp_path, rows):
    with pytest.raises(DataNotFoundError, match=r"absent.npy is not there"):
        NpyChunks(tmp_path / "absent.npy")
    np.save(tmp_path / "X.npy", rows)
    np.save(tmp_path / "y.npy", np.zeros(24))
    with pytest.raises(InvalidInputError, match=r"y.npy has 24 labels, .*X.npy has 25 rows; give one label per row"):
        NpyChunks(tmp_path / "X.npy", tmp_path / "y.npy")
    with pytest.raises(InvalidInputError, match=r"y.npy holds float64 of shape \(24,\); give numbers of two dim"):
        NpyChunks(tmp_path / "y.npy")
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(DamagedFileError, match=r"objects.npy is not a whole .npy file of numbers \(.*bject"):
        NpyChunks(tmp_path / "objects.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "X.npy").read_bytes()[:-3])
    with pytest.raises(DamagedFileError, match=r"cut.npy is not a whole"):
        NpyChunks(tmp_path / "cut.npy")
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(DamagedFileError, match=r"text.npy"):
        NpyChunks(tmp_path / "text.npy")


@pytest.fixture
def frame(rows, labels):
    return pd.DataFrame(rows, columns=list("abcd")).assign(kind=np.array(["x", "y", "z"])[labels])


def test_parquet_by_name_of_the_label_and_of_columns(tmp_path, rows, frame):
    file = tmp_path / "rows.parquet"
    frame.to_parquet(file, row_group_size=7)
    _assert_read(FileChunks(file, label="kind", rows=10), rows, frame["kind"])
    _assert_read(FileChunks(file, label="kind", columns=["d", "a"], rows=10), rows[:, [3, 0]], frame["kind"])
    _assert_read(FileChunks(file, columns=["b"], rows=10), rows[:, [1]])
    _assert_read(FileChunks(file, leave_out=["kind", "c"], rows=10), rows[:, [0, 1, 3]])
    first, _ = next(iter(FileChunks(file, label="kind", columns=["d", "a"], rows=10)))
    assert list(first.columns) == ["d", "a"]
    assert set(first.dtypes) == {np.dtype(np.float32)}


def test_a_folder_of_parquet_files_in_the_order_of_their_names(tmp_path, rows, frame):
    folder = tmp_path / "parts"
    (folder / "inner").mkdir(parents=True)
    frame[11:].to_parquet(folder / "inner" / "2.parquet")
    frame[["d", "kind", "c", "b", "a"]][:11].to_parquet(folder / "1.parquet")
    (folder / "_SUCCESS").touch()
    chunks = FileChunks(folder, label="kind", rows=10)
    _assert_read(chunks, rows[:, ::-1], frame["kind"], sizes=(10, 1, 10, 4))
    frame[11:].drop(columns="b").to_parquet(folder / "inner" / "2.parquet")
    with pytest.raises(InvalidInputError, match=r"2.parquet lacks 1 of 4 columns .*'b'"):
        list(chunks)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match=r"empty holds no .parquet file"):
        FileChunks(tmp_path / "empty")


@pytest.mark.parametrize("empty_parts", [[0], [1], [2], [0, 1]])
def test_empty_files_of_a_folder_are_passed_over(rows, labels, tmp_path, empty_parts):
    """Spark writes a file for a part without rows."""
    frame = pd.DataFrame(rows, columns=list("abcd")).assign(kind=labels)
    full = [part for part in range(3) if part not in empty_parts]
    for part in range(3):
        taken = np.arange(25) % len(full) == full.index(part) if part in full else np.zeros(25, bool)
        frame[taken].to_parquet(tmp_path / f"part-{part}.parquet")
    found, found_labels, _ = _joined(FileChunks(tmp_path, label="kind"))
    order = np.argsort(np.arange(25) % len(full), kind="stable")
    np.testing.assert_array_equal(found, rows[order])
    np.testing.assert_array_equal(found_labels, labels[order])


def test_a_folder_of_empty_files_is_refused(rows, tmp_path):
    for part in range(2):
        pd.DataFrame(rows[:0]).rename(columns=str).to_parquet(tmp_path / f"part-{part}.parquet")
    with pytest.raises(InvalidInputError, match="has no rows in any of its files; give a folder with at least one row"):
        list(FileChunks(tmp_path))
    with pytest.raises(InvalidInputError, match=r"part-0\.parquet has no rows; give a file with at least one"):
        list(FileChunks(tmp_path / "part-0.parquet"))


def test_csv_files(tmp_path, rows, labels):
    pd.DataFrame(rows.astype(np.float64)).assign(y=labels).to_csv(tmp_path / "rows.csv", index=False)
    found, found_labels, sizes = _joined(FileChunks(tmp_path / "rows.csv", label="y", rows=10))
    np.testing.assert_allclose(found, rows)
    np.testing.assert_array_equal(found_labels, labels)
    assert sizes == [10, 10, 5]


def test_svmlight_files_are_as_wide_as_was_said(tmp_path, rows, labels):
    rows = np.where(rows > 0.5, rows, 0.0)
    rows[:10, 3] = 0.0  # the first part alone would be narrower
    dump_svmlight_file(rows, labels, str(tmp_path / "rows.svmlight"))
    chunks = FileChunks(tmp_path / "rows.svmlight", label="label", rows=10, features=6)
    found, found_labels, sizes = _joined(chunks)
    np.testing.assert_allclose(found, np.pad(rows, ((0, 0), (0, 2))), rtol=1e-6)
    np.testing.assert_array_equal(found_labels, labels)
    assert sizes == [10, 10, 5]
    with pytest.raises(InvalidInputError, match=r"does not say how many columns it has; give it.*features="):
        list(FileChunks(tmp_path / "rows.svmlight"))
    with pytest.raises(InvalidInputError, match=r"has column 3 in rows 11 to 20, features is 3; give at least 4"):
        list(FileChunks(tmp_path / "rows.svmlight", rows=10, features=3))


def test_tables_that_hold_no_numbers_or_no_label(tmp_path, frame):
    frame.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InvalidInputError, match=r"columns 'kind' hold no numbers; name the others in columns=\["):
        list(FileChunks(tmp_path / "rows.parquet"))
    with pytest.raises(InvalidInputError, match=r"has no label column 'sort'; its columns are 'a', 'b', 'c', 'd'"):
        list(FileChunks(tmp_path / "rows.parquet", label="sort", leave_out=["kind"]))
    with pytest.raises(DataNotFoundError, match="absent"):
        FileChunks(tmp_path / "absent.parquet")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", "/"])
@pytest.mark.parametrize("rows", [8, 100])
def test_the_type_of_a_label_does_not_depend_on_the_chunks(tmp_path, suffix, rows):
    """Zip codes are text as a whole; the later ones alone would be whole numbers."""
    codes = [f"{code:05d}" for code in range(1001, 90210, 3000)]
    frame = pd.DataFrame({"a": np.arange(float(len(codes))), "zip": codes})
    if suffix == "/":
        frame[:20].to_parquet(tmp_path / "1.parquet")
        frame[20:].to_parquet(tmp_path / "2.parquet")
        path = tmp_path
    else:
        path = tmp_path / f"codes{suffix}"
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    found = [label for _, labels in FileChunks(path, label="zip", rows=rows) for label in labels.tolist()]
    assert found == codes
