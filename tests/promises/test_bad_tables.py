"""A table that cannot be read is refused in one sentence that names the place and the remedy, never by a traceback."""

import gzip
import importlib.util
import os
import struct
import sys
import warnings
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy import sparse

from momentalign.errors import (
    DamagedFileError,
    DataNotFoundError,
    InvalidInputError,
    InvalidTypeError,
    MissingExtraError,
    MomentAlignError,
    MomentAlignWarning,
)
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.read import read_chunks, read_table

NUMBERS = "a,b\n" + "1,2\n" * 40


def _text(content, name="table.csv"):
    return lambda folder: _write(folder / name, content.encode() if isinstance(content, str) else content)


def _write(path, content):
    path.write_bytes(content)
    return path


def _parquet(table, *, cut=None):
    def make(folder):
        pq.write_table(table, folder / "table.parquet")
        content = (folder / "table.parquet").read_bytes()
        return _write(folder / "table.parquet", content[:cut])

    return make


def _npz(*, cut=None, **arrays):
    def make(folder):
        np.savez(folder / "table.npz", **arrays)
        return _write(folder / "table.npz", (folder / "table.npz").read_bytes()[:cut])

    return make


def _npy(array):
    def make(folder):
        np.save(folder / "table.npy", array)
        return folder / "table.npy"

    return make


def _sparse(folder):
    sparse.save_npz(folder / "rows.npz", sparse.csr_matrix(np.eye(3)))
    return folder / "rows.npz"


def _stray_image(folder):
    Image.new("RGB", (4, 4)).save(folder / "stray.png")
    return folder


def _cut_image(folder):
    (folder / "cat").mkdir()
    path = folder / "cat" / "cut.png"
    Image.new("RGB", (40, 40), "red").save(path)
    _write(path, path.read_bytes()[:60])
    return folder


def _huge_image(folder):
    Image.new("1", (12_000, 12_000)).save(folder / "huge.png")
    return folder


def _fifo(folder):
    os.mkfifo(folder / "pipe.csv")
    return folder / "pipe.csv"


def _corrupt_page(folder):
    path = folder / "table.parquet"
    pq.write_table(pa.table({"a": np.arange(5000.0)}), path, use_dictionary=False, compression="zstd")
    content = bytearray(path.read_bytes())
    content[100:4000] = bytes(3900)
    return _write(path, bytes(content))


def _zip(member, name="book.xlsx"):
    def make(folder):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(member, "<x/>")
        return folder / name

    return make


LISTS = pa.table({"a": [1.0, 2.0], "nested": [[1], [2, 3]]})
TWICE = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
OBJECTS = np.array([{"an": "object"}], dtype=object)
MOSTLY = "age,b\n" + "31,1\n" * 60 + "n.n.,1\n" + "32,1\n" * 60
LINES = "1 1:0.5 2:1\n" * 3


def _header(descr, shape, content=b""):
    """An npy file whose header may promise what does not follow."""

    def make(folder):
        head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
        return _write(folder / "table.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content)

    return make


def _sparse_of(form, shape, **arrays):
    parts = {"format": np.array(form), "shape": np.array(shape), "data": np.ones(1), **arrays}
    if form == "bsr":
        parts["data"] = np.ones((1, 0, 0))
    return _npz(**parts)


def _odd_image(folder):
    (folder / "cat\udcff").mkdir()
    Image.new("RGB", (4, 4)).save(folder / "cat\udcff" / "a.png")
    return folder


WORKBOOK = (MissingExtraError, 'is a workbook, which openpyxl reads: pip install ".[excel]"')
if importlib.util.find_spec("openpyxl"):
    WORKBOOK = (DamagedFileError, "is not a whole workbook")
ZEROS = np.zeros(1, np.int32)
ENTRY = {"row": ZEROS, "col": ZEROS}
BLOCKS = {"indices": ZEROS, "indptr": np.array([0, 1])}
WIDE = ",".join(f"column_{number:08d}" for number in range(400_000)) + "\n" + ",".join("1" * 400_000) + "\n"


# name, how to make the file, how to read it, the error, words of the message
FILES = [
    ("missing file", lambda folder: folder / "absent.csv", {}, DataNotFoundError, "is not there"),
    ("folder for a file", lambda folder: folder, {}, InvalidInputError, "holds no images"),
    ("pipe", _fifo, {}, InvalidInputError, "not a plain file"),
    ("empty file", _text(""), {}, InvalidInputError, "is empty"),
    ("blank file", _text("\n\n \n"), {}, InvalidInputError, "has no row of names"),
    ("header alone", _text("a,b\n"), {}, InvalidInputError, "no rows"),
    ("header alone, no newline", _text("a,b"), {}, InvalidInputError, "no rows"),
    ("no header", _text("1.5,2\n3,4\n"), {}, InvalidInputError, "numbers ('1.5', '2') where the names"),
    ("ragged row", _text("a,b\n1,2\n3,4,5\n6,7\n"), {}, InvalidInputError, "row 2 has 3 fields where"),
    ("ragged last row", _text("a,b\n1,2\n1,2,3\n"), {}, InvalidInputError, "row 2 has 3 fields where"),
    ("short row", _text("a,b\n1,2\n3,4\n6\n"), {}, InvalidInputError, "row 3 has 1 fields where"),
    ("words among numbers", _text(MOSTLY), {}, InvalidInputError, "column 'age', row 61 holds 'n.n.' in a column of"),
    ("word in a number", _text("a\nx\n1\n"), {"kinds": {"a": "number"}}, InvalidInputError, "row 1 holds 'x'"),
    ("word in a date", _text("a\n2020-01-01\nMay\n"), {"kinds": {"a": "date"}}, InvalidInputError, "row 2 holds 'May'"),
    ("number in a date", _text("a\n1\n2\n"), {"kinds": {"a": "date"}}, InvalidInputError, "row 1 holds '1' in"),
    ("unknown kind", _text(NUMBERS), {"kinds": {"a": "colour"}}, InvalidInputError, "kinds['a'] must be one of number"),
    ("no such label", _text(NUMBERS), {"label": "y"}, InvalidInputError, "no label column 'y'; its columns are 'a'"),
    ("no such id", _text(NUMBERS), {"id_column": "key"}, InvalidInputError, "no id column 'key'; its columns are 'a'"),
    ("no such column", _text(NUMBERS), {"columns": ["a", "c", "d"]}, InvalidInputError, "lacks 2 of 3 columns"),
    ("constant label", _text(NUMBERS), {"label": "a"}, InvalidInputError, "'a' holds 1 in every row"),
    ("empty labels", _text("a,y\n1,0\n2,\n3,NA\n"), {"label": "y"}, InvalidInputError, "empty in 2 rows (2, 3)"),
    ("many empty labels", _text("a,y\n" + "1,\n" * 9), {"label": "y"}, InvalidInputError, "9 rows (1, 2, 3, 4, 5"),
    (
        "a word for a number to predict",
        _text("a,y\n1,0.5\n2,high\n"),
        {"label": "y", "regression": True},
        InvalidInputError,
        "row 2 holds 'high', which is not a number",
    ),
    (
        "an infinite label",
        _text("a,y\n1,0.5\n2,inf\n"),
        {"label": "y", "regression": True},
        InvalidInputError,
        "row 2 holds 'inf', which is not a number",
    ),
    ("NUL byte", _text(b"a,b\n1,2\n3,\x00\n"), {}, InvalidInputError, "NUL byte at byte 10"),
    ("half a UTF-16", _text("a,b\n1,2\n".encode("utf-16")[:-1]), {}, InvalidInputError, "utf-16 but is not all of it"),
    ("no letter of Windows", _text(b"a,b\n\x80,\x81\n"), {}, InvalidInputError, "cp1252 but is not all of it"),
    ("same names", _text("a,b,a,b\n1,2,3,4\n"), {}, InvalidInputError, "more than one column named 'a', 'b'"),
    ("open quote, last field", _text('a,b\n1,2\n3,"x\n5,6\n'), {}, InvalidInputError, "line 3 begins a row with"),
    ("open quote, first field", _text('a,b\n1,2\n"3,x\n5,6\n'), {}, InvalidInputError, "line 3 begins a row with"),
    ("open quote, long", _text('a,b\n1,"2\n' + "5,6\n" * 50_000), {}, InvalidInputError, "line 2 begins a row with"),
    ("open quote, header", _text('"a,b\n' + "5,6\n" * 400_000), {}, InvalidInputError, "line 1 begins a row with"),
    ("quote too many", _text('a,b\n"x"y",2\n'), {}, InvalidInputError, "line 2 begins a row with"),
    ("row without end", _text("a,b\n1," + "x" * 2**24 + "\n"), {}, InvalidInputError, "cannot be split"),
    ("gz that is none", _text(NUMBERS, "t.csv.gz"), {}, InvalidInputError, "ends in .gz but its content is not compr"),
    ("zst that is gz", _text(gzip.compress(b"a\n1\n"), "t.zst"), {}, InvalidInputError, "is compressed as .gz"),
    ("half a gz", _text(gzip.compress(NUMBERS.encode())[:-9], "t.csv.gz"), {}, DamagedFileError, "read to its end"),
    ("half a zst", _text(pa.compress(b"a\n1\n" * 99, "zstd", asbytes=True)[:-4]), {}, DamagedFileError, "to its end"),
    ("truncated Parquet", _parquet(pa.table({"a": np.arange(999.0)}), cut=-20), {}, DamagedFileError, "whole Parquet"),
    ("broken Parquet", _corrupt_page, {}, DamagedFileError, "table.parquet"),
    ("Parquet by name", _text(NUMBERS, "t.parquet"), {}, DamagedFileError, "named like a parquet file"),
    ("npz by name", _text(NUMBERS, "t.npz"), {}, DamagedFileError, "named like a npz file"),
    ("lists in Parquet", _parquet(LISTS), {}, InvalidInputError, "column 'nested' is of type list"),
    ("same names in Parquet", _parquet(TWICE), {}, InvalidInputError, "more than one column named 'a'"),
    ("empty Parquet", _parquet(pa.table({"a": pa.array([], pa.float64())})), {}, InvalidInputError, "no rows"),
    ("pickled npz", _npz(x=OBJECTS), {}, InvalidInputError, "array 'x' holds Python objects"),
    ("pickled npy", _npy(OBJECTS), {}, InvalidInputError, "holds Python objects"),
    ("complex numbers", _npz(x=np.ones((2, 2), complex)), {}, InvalidInputError, "of type complex128"),
    ("two matrices", _npz(x=np.ones((2, 2)), z=np.ones((2, 3))), {}, InvalidInputError, "several arrays"),
    ("unlike lengths", _npz(x=np.ones((2, 2)), y=np.ones(3)), {}, InvalidInputError, "('x', 2), ('y', 3)"),
    ("only a number", _npz(x=np.ones(())), {}, InvalidInputError, "no array of rows"),
    ("empty npz", _npz(), {}, InvalidInputError, "has no array of rows"),
    ("no rows in npz", _npz(x=np.ones((0, 2))), {}, InvalidInputError, "no rows"),
    ("half an npz", _npz(x=np.ones((2, 2)), cut=200), {}, DamagedFileError, "not a whole file of numpy arrays"),
    ("half an npy", lambda folder: _write(_npy(np.ones(9))(folder), (folder / "table.npy").read_bytes()[:-8]), {},
     DamagedFileError, "ends early"),
    ("label of a sparse npz", _sparse, {"label": "y"}, InvalidInputError, "is a sparse matrix and has no column 'y'"),
    ("ZIP of something", _zip("a.txt"), {}, InvalidInputError, "ZIP archive without numpy arrays"),
    ("workbook", _zip("xl/workbook.xml"), {}, *WORKBOOK),
    ("Feather by name", _text(NUMBERS, "t.feather"), {}, DamagedFileError, "named like a feather file"),
    ("half a Feather", _text(b"ARROW1" + bytes(90)), {}, DamagedFileError, "not a whole Feather file"),
    ("JSON: a word", _text('{"a": 1}\n{"a": "x"}\n'), {}, InvalidInputError, "cannot be read as JSON lines"),
    ("JSON: a list", _text('{"a": [1]}\n'), {}, InvalidInputError, "column 'a' is of type list"),
    ("JSON: no object", _text("[1, 2]\n", "t.json"), {}, InvalidInputError, "write one object a line"),
    ("JSON: half", _text('{"a": 1}\n{"a": 2'), {}, InvalidInputError, "cannot be read as JSON lines"),
    ("JSON: no text", _text(b'{"a": "\xff\xfe"}\n'), {}, InvalidInputError, "cannot be read as JSON lines"),
    ("name too long", _text("a" * 140_000 + ",b\n1,2\n"), {}, InvalidInputError, "a name of a column that is too long"),
    ("names of 6 MB", _text(WIDE), {}, InvalidInputError, "has 400,000 columns, whose names are more than 4 MB"),
    ("no letter in npy", _header("<U1", (2,), b"\0\0\x11\0A\0\0\0"), {}, DamagedFileError, "no letter of Unicode"),
    ("half a letter in npy", _header("<U1", (1,), b"\0\xd8\0\0"), {}, DamagedFileError, "no letter of Unicode"),
    ("nothing, often, in npy", _header("<U0", (10**8,)), {}, InvalidInputError, "no rows or no columns"),
    ("sparse: rows", _sparse_of("coo", (4 * 10**8, 1), **ENTRY), {}, InvalidInputError, "has 400,000,000 rows, more"),
    ("sparse: columns", _sparse_of("coo", (1, 2**31 - 1), **ENTRY), {}, InvalidInputError, "2,147,483,647 columns"),
    ("sparse: diagonal", _sparse_of("dia", (10**9, 10**9), offsets=ZEROS), {}, InvalidInputError, "1,000,000,000 rows"),
    ("sparse: no block", _sparse_of("bsr", (2, 2), **BLOCKS), {}, DamagedFileError, "not a whole file of numpy arrays"),
    ("sparse: shape", _sparse_of("csr", (2,), **BLOCKS), {}, DamagedFileError, "not that of a matrix"),
    ("svmlight: far", _text("1 1000000000:1\n", "t.svm"), {}, InvalidInputError, "1,000,000,001 columns, more"),
    ("images: name", _odd_image, {"label": "label"}, InvalidInputError, "name is not UTF-8"),
    ("half a ZIP", _text(b"PK\x03\x04" + bytes(99), "t.dat"), {}, InvalidInputError, "ZIP archive without numpy"),
    ("svmlight: a word", _text(LINES + "1 x:1\n", "t.svm"), {}, InvalidInputError, "line 4 is not of the form"),
    ("svmlight: order", _text(LINES + "1 2:1 1:1\n", "t.svm"), {}, InvalidInputError, "line 4 is not of the form"),
    ("svmlight: NaN", _text(LINES + "#\n\n1 2:nan\n", "t.svm"), {}, InvalidInputError, "line 6 is not of the form"),
    ("svmlight: label", _text(LINES), {"label": "y"}, InvalidInputError, "only named column is 'label', got 'y'"),
    ("svmlight: no rows", _text("# nothing\n", "t.svm"), {}, InvalidInputError, "no rows"),
    ("images: stray", _stray_image, {"label": "label"}, InvalidInputError, "outside of any subfolder ('stray.png')"),
    ("images: label", _stray_image, {"label": "y"}, InvalidInputError, "named columns are 'label' and 'file', got 'y'"),
    ("images: truncated", _cut_image, {}, DamagedFileError, "cut.png"),
    ("images: huge", _huge_image, {}, DamagedFileError, "huge.png is not a whole image"),
]  # fmt: skip


def _refusal(error, action):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MomentAlignWarning)
        with pytest.raises(MomentAlignError) as caught:
            action()
    message = str(caught.value)
    assert type(caught.value) is error, message
    assert "\n" not in message
    assert len(message) < 500
    assert message.endswith(".")
    return message


@pytest.mark.parametrize(("make", "how", "error", "words"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_files(tmp_path, make, how, error, words):
    path = make(tmp_path)
    message = _refusal(error, lambda: read_table(path, **how))
    assert words in message
    assert path.name in message or "must be" in message


IN_CHUNKS = ["missing file", "header alone", "ragged row", "NUL byte", "truncated Parquet", "half an npy", "half a gz"]


@pytest.mark.parametrize(("make", "how", "error", "words"), [r[1:] for r in FILES if r[0] in IN_CHUNKS], ids=IN_CHUNKS)
def test_files_in_chunks(tmp_path, make, how, error, words):
    path = make(tmp_path)
    assert words in _refusal(error, lambda: list(read_chunks(path, rows=2, **how)))


def test_a_row_is_named_by_its_number_in_the_file_not_in_the_chunk(tmp_path):
    path = _text("a,b\n" + "1,2\n" * 10 + "x,2\n")(tmp_path)
    assert "column 'a', row 11 holds 'x'" in _refusal(
        InvalidInputError, lambda: list(read_chunks(path, rows=3, kinds={"a": "number"}))
    )
    path = _text("a,b\n" + "1,2\n" * 10 + "inf,2\n")(tmp_path)
    fitted = Preprocessor(scale=False).fit(pd.DataFrame({"a": [1.0, 2.0]}))
    chunks = read_chunks(path, rows=3, columns=fitted.columns_)
    assert "column 'a', row 11 is infinite" in _refusal(
        InvalidInputError, lambda: [fitted.transform(chunk) for chunk in chunks]
    )


@pytest.mark.parametrize("rows", [0, -1, 2.5, True, None])
def test_rows_of_a_chunk(tmp_path, rows):
    path, whole = _text(NUMBERS)(tmp_path), type(rows) is int
    message = _refusal(InvalidInputError if whole else InvalidTypeError, lambda: read_chunks(path, rows=rows))
    assert ("rows must be at least 1" if whole else "rows must be a whole number") in message


@contextmanager
def _nobody():
    """Give up the rights of the superuser, who may read anything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_may_not_be_read(tmp_path, what):
    folder = tmp_path / "closed"
    folder.mkdir()
    path = _text(NUMBERS)(folder)
    # The way to the folder is open, so that what is refused is the thing itself.
    opened = [parent for parent in folder.parents if parent.stat().st_uid == os.getuid() and "pytest" in str(parent)]
    modes = {parent: parent.stat().st_mode for parent in opened}
    try:
        for parent in opened:
            parent.chmod(0o755)
        folder.chmod(0o755 if what == "file" else 0)
        path.chmod(0)
        with _nobody():
            message = _refusal(InvalidInputError, lambda: read_table(path))
    finally:
        for parent, mode in modes.items():
            parent.chmod(mode)
        folder.chmod(0o755)
    assert "may not be read (Permission denied)" in message


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_read_and_named(tmp_path, encoding):
    text = "stadt,preis\nKöln,1.5\nWürzburg,2\n" + ("“€”,3\n" if encoding == "cp1252" else "Graz,3\n")
    path = _write(tmp_path / "table.csv", text.encode(encoding))
    with pytest.warns(MomentAlignWarning, match=f"is read as {encoding}; save it as UTF-8"):
        table = read_table(path)
    assert table.rows["stadt"].tolist()[:2] == ["Köln", "Würzburg"]
    assert table.rows["preis"].tolist() == [1.5, 2.0, 3.0]


def test_a_byte_that_is_not_utf_8_is_found_wherever_it_stands(tmp_path):
    path = _write(tmp_path / "table.csv", b"a,b\n" + b"1,xxxx\n" * 400_000 + "1,Köln\n".encode("latin-1"))
    with pytest.warns(MomentAlignWarning, match="is read as latin-1"):
        assert read_table(path).rows["b"].iloc[-1] == "Köln"


def test_pillow_is_asked_for_where_it_is_not_installed(tmp_path, monkeypatch):
    _stray_image(tmp_path)
    for loaded in [known for known in sys.modules if known.partition(".")[0] == "PIL"]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "PIL", None)
    message = _refusal(MissingExtraError, lambda: read_table(tmp_path))
    assert message == 'images are read by Pillow: pip install ".[deep]" in a checkout of momentalign.'


def _frames(**columns):
    return [pd.DataFrame({name: cells[domain] for name, cells in columns.items()}) for domain in (0, 1)]


VARIED = ([1.0, 2.0, 3.0], [2.0, 3.0, 5.0])
PAIRS = [
    (
        "nothing in common",
        [pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})],
        {},
        "no column in common: 'a' against 'b'",
    ),
    (
        "strict",
        [pd.DataFrame({"a": [1], "c": [1]}), pd.DataFrame({"a": [1], "b": [1]})],
        {"strict": True},
        "the source lacks 'b' and the target lacks 'c'",
    ),
    ("kinds", _frames(a=([1.0, 2.0], ["x", "y"])), {}, "column 'a' holds numbers (1.0) in the source and texts ('x')"),
    (
        "dates",
        _frames(a=(pd.to_datetime(["2020-01-01", "2020-01-02"]), ["x", "y"])),
        {},
        "dates (Timestamp('2020-01-01 00:00:00')) in the source and texts ('x')",
    ),
    ("infinite", _frames(a=([1.0, np.inf], [1.0, 2.0])), {}, "column 'a', row 2 is infinite"),
    ("constant", _frames(a=([1.0, 1.0], [1.0, 1.0])), {}, "no column is left to learn from (column 'a' is the same"),
    ("no rows", [pd.DataFrame({"a": [1.0]}), pd.DataFrame({"a": []})], {}, "X_target has 0 rows"),
    ("forms", [pd.DataFrame({"a": [1.0]}), sparse.csr_matrix(np.eye(2))], {}, "X is columns and X_target is sparse"),
    ("widths", [np.ones((2, 3)), np.ones((2, 4))], {}, "X has 3 columns and X_target 4"),
    (
        "text of a matrix",
        [np.ones((2, 3)), np.ones((2, 3))],
        {"text": "a"},
        "text='a' needs a table with named columns",
    ),
    (
        "no such text",
        _frames(a=VARIED),
        {"text": "review"},
        "text='review' is no column of both domains; they share 'a'",
    ),
    ("same names", [pd.DataFrame([[1, 2]], columns=["a", "a"])] * 2, {}, "X has more than one column named 'a'"),
    ("max_categories", _frames(a=VARIED), {"max_categories": 0}, "max_categories must be at least 1"),
]


@pytest.mark.parametrize(("domains", "parameters", "words"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS])
def test_domains_that_do_not_go_together(domains, parameters, words):
    message = _refusal(InvalidInputError, lambda: Preprocessor(**parameters).fit(domains[0], X_target=domains[1]))
    assert words in message


@pytest.mark.parametrize("parameters", [{"scale": 1}, {"strict": "no"}])
def test_switches(parameters):
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    message = _refusal(InvalidTypeError, lambda: Preprocessor(**parameters).fit(frame))
    assert f"{next(iter(parameters))} must be True or False" in message


@pytest.mark.parametrize("rows", [[[1.0]], "table.csv", np.ones(3)])
def test_what_is_no_table(rows):
    assert "X must be a Table" in _refusal(InvalidTypeError, lambda: Preprocessor().fit(rows))


PREDICT = [
    ("absent", pd.DataFrame({"a": [1.0]}), "X lacks columns the model was trained with: 'city'"),
    ("kind", pd.DataFrame({"a": ["x"], "city": ["Linz"]}), "column 'a' holds texts ('x') where the model was trained"),
    ("infinite", pd.DataFrame({"a": [-np.inf], "city": ["Linz"]}), "column 'a', row 1 is infinite"),
    ("overflow", pd.DataFrame({"a": [0.0, 1e300], "city": ["Linz"] * 2}), "column 'a', row 2 is too large for float32"),
    ("dates", pd.DataFrame({"a": pd.to_datetime(["2020-01-01"]), "city": ["Linz"]}), "column 'a' holds dates"),
    ("form", sparse.csr_matrix(np.eye(2)), "X is sparse, the model was trained with columns"),
    ("no rows", pd.DataFrame({"a": [], "city": []}), "X has 0 rows"),
]


@pytest.mark.parametrize(("rows", "words"), [row[1:] for row in PREDICT], ids=[row[0] for row in PREDICT])
def test_rows_that_do_not_fit_the_model(rows, words):
    fitted = Preprocessor().fit(pd.DataFrame({"a": [1.0, 2.0], "city": ["Linz", "Graz"]}))
    assert words in _refusal(InvalidInputError, lambda: fitted.transform(rows))


def test_numbers_too_large_to_square():
    frame = pd.DataFrame({"a": [0.0, 1e300]})
    fitted = Preprocessor().fit(frame)
    assert "column 'a', row 1 is too large" in _refusal(InvalidInputError, lambda: fitted.transform(frame))


def test_an_array_of_another_width():
    fitted = Preprocessor().fit(np.ones((2, 3)))
    assert "X has 2 columns, the model was trained with 3" in _refusal(
        InvalidInputError, lambda: fitted.transform(np.ones((2, 2)))
    )


def test_a_refused_fit_leaves_the_earlier_one():
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    fitted = Preprocessor().fit(frame)
    before = fitted.transform(frame).tolist()
    _refusal(InvalidInputError, lambda: fitted.fit(frame, X_target=pd.DataFrame({"a": ["x", "y"]})))
    assert fitted.transform(frame).tolist() == before


def test_reading_changes_no_file(tmp_path):
    path = _text(NUMBERS)(tmp_path)
    before = {file: file.read_bytes() for file in Path(tmp_path).iterdir()}
    read_table(path)
    assert {file: file.read_bytes() for file in Path(tmp_path).iterdir()} == before
