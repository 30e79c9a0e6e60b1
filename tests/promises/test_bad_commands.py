"""The command line refuses what cannot work with one line on standard error and exit code 2, and leaves nothing."""

import gzip
import os
import shutil
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from momentalign.cli import main

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"
ROWS = "a,b,y\n" + "".join(f"{row % 7}.5,{row % 5},{'yes' if row % 3 else 'no'}\n" for row in range(40))
NAMES = "id,spend,visits,age,city\n"
TARGET = "a,b\n" + "".join(f"{row % 6}.5,{row % 4}\n" for row in range(30))


def _text(name, content):
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def _arrays(name, **arrays):
    return lambda folder: np.savez(folder / name, **arrays)


def _objects(folder):
    np.save(folder / "bad.npy", np.array([{"an": "object"}], dtype=object), allow_pickle=True)


def _model(change):
    def make(folder):
        shutil.copytree(GOLDEN / "table", folder / "bad")
        change(folder / "bad")

    return make


def _cut(folder):
    manifest = folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-9])


def _flip(folder):
    (weights,) = folder.glob("weights-*")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def _nothing(folder):
    """Nothing has to be made."""


# What a table may be, its name, and what the message says, whichever command reads it.
FILES = {
    "missing file": (_nothing, "bad.csv", "bad.csv is not there"),
    "folder for a file": (lambda folder: (folder / "bad.csv").mkdir(), "bad.csv", "images"),
    "pipe for a file": (lambda folder: os.mkfifo(folder / "bad.csv"), "bad.csv", "not a plain file"),
    "empty file": (_text("bad.csv", ""), "bad.csv", "is empty"),
    "blank file": (_text("bad.csv", "\n\n \n"), "bad.csv", "no row of names"),
    "names alone": (_text("bad.csv", "a,b,y\n"), "bad.csv", "has no rows"),
    "no names": (_text("bad.csv", "1.5,2,3\n3,4,5\n"), "bad.csv", "where the names of the columns should stand"),
    "ragged row": (_text("bad.csv", "a,b,y\n1,2,no\n3,4,5,6\n"), "bad.csv", "row 2 has 4 fields"),
    "short row": (_text("bad.csv", "a,b,y\n1,2,no\n3\n"), "bad.csv", "row 2 has 1 fields"),
    "word among numbers": (
        _text("bad.csv", "a,b,y\n" + "1,2,no\n2,1,yes\n" * 60 + "n.n.,1,no\n"), "bad.csv",
        "column 'a', row 121 holds 'n.n.'",
    ),
    "NUL byte": (_text("bad.csv", b"a,b,y\n1,2,\0\n"), "bad.csv", "NUL byte at byte 10"),
    "half a UTF-16": (_text("bad.csv", ROWS.encode("utf-16")[:-1]), "bad.csv", "utf-16 but is not all of it"),
    "no letter of Windows": (_text("bad.csv", b"a,b,y\n\x80,\x81,no\n"), "bad.csv", "cp1252 but is not all of it"),
    "same names": (_text("bad.csv", "a,b,a,y\n1,2,3,no\n"), "bad.csv", "more than one column named 'a'"),
    "open quote": (_text("bad.csv", 'a,b,y\n1,2,"no\n'), "bad.csv", "a quote too few or too many"),
    "gz that is none": (_text("bad.csv.gz", ROWS), "bad.csv.gz", "its content is not compressed"),
    "half a gz": (_text("bad.csv.gz", gzip.compress(ROWS.encode())[:-9]), "bad.csv.gz", "cannot be read to its end"),
    "Parquet by its name": (_text("bad.parquet", ROWS), "bad.parquet", "named like a parquet file"),
    "half a Parquet": (_text("bad.parquet", b"PAR1" + bytes(90)), "bad.parquet", "not a whole Parquet file"),
    "npz by its name": (_text("bad.npz", ROWS), "bad.npz", "named like a npz file"),
    "pickled npy": (_objects, "bad.npy", "Python objects, a pickle that could run code and is never read"),
    "half an npy": (_text("bad.npy", b"\x93NUMPY\x01\x00"), "bad.npy", "bad.npy"),
    "two matrices": (_arrays("bad.npz", x=np.ones((2, 2)), z=np.ones((2, 3))), "bad.npz", "several arrays"),
    "complex numbers": (_arrays("bad.npz", x=np.ones((2, 2), complex)), "bad.npz", "of type complex128"),
    "table of Excel": (_text("bad.xlsx", b"PK\x03\x04" + bytes(90)), "bad.xlsx", "ZIP archive without numpy arrays"),
}  # fmt: skip
FIT = ("fit", "{source}", "{target}", "--label", "y", "--out", "new", "--no-open", "--max-epochs", "2")
READERS = {
    "fit, source": tuple("bad" if word == "{source}" else word for word in FIT),
    "fit, target": tuple("bad" if word == "{target}" else word for word in FIT),
    "predict": ("predict", "model", "bad", "--out", "new.csv"),
    "diagnose": (
        "diagnose",
        "{source}",
        "bad",
        "--label",
        "y",
        "--out",
        "new.html",
        "--no-open",
        "--permutations",
        "9",
    ),
}


def _fit(*arguments, source="{source}", target="{target}", label="y", out="new"):
    return ("fit", source, target, "--label", label, "--out", out, "--no-open", "--max-epochs", "2", *arguments)


def _predict(*arguments, model="model", data="{target}", out="new.csv"):
    return ("predict", model, data, "--out", out, *arguments)


# name -> what is made, the command, what the message says
COMMANDS = {
    "no command of that name": (_nothing, ("fly",), "No such command 'fly'"),
    "no option of that name": (_nothing, ("demo", "--speed", "3"), "No such option"),
    "no label": (_nothing, ("fit", "{source}", "{target}"), "--label"),
    "no target": (_nothing, ("fit", "{source}", "--label", "y"), "Missing argument 'target'"),
    "seeds": (_nothing, _fit("--seeds", "0"), "--seeds"),
    "seeds as a word": (_nothing, _fit("--seeds", "many"), "--seeds"),
    "epochs": (_nothing, _fit("--max-epochs", "0"), "--max-epochs"),
    "method": (_nothing, _fit("--method", "magic"), "method must be one of 'auto'"),
    "device": (_nothing, _fit("--device", "abacus"), "abacus"),
    "permutations": (_nothing, ("diagnose", "{source}", "{target}", "--permutations", "0"), "--permutations"),
    "label that is not there": (_nothing, _fit(label="z"), "no label column 'z'; its columns are 'a', 'b', 'y'"),
    "label of the target": (_nothing, _fit("--target-label", "z"), "no label column 'z'; its columns are 'a', 'b'"),
    "id that is not there": (_nothing, _fit("--id", "key"), "no id column 'key'; its columns are 'a', 'b', 'y'"),
    "text that is not there": (_nothing, _fit("--text", "review"), "review"),
    "constant label": (
        _text("bad.csv", "a,b,y\n" + "1,2,no\n2,3,no\n" * 9), _fit(source="bad.csv"), "holds 'no' in every row"
    ),
    "label with gaps": (
        _text("bad.csv", "a,b,y\n1,2,no\n2,3,\n3,4,yes\n"), _fit("--strict", source="bad.csv"), "empty in 1 rows (2)"
    ),
    "NaN as a label": (
        _text("bad.csv", "a,b,y\n1,2,no\n2,3,nan\n3,4,yes\n"), _fit("--strict", source="bad.csv"), "empty in 1 rows (2)"
    ),
    "word as a number to predict": (_nothing, _fit("--regression"), "which is not a number"),
    "target without the columns": (
        _text("bad.csv", "c,d\n1,2\n3,4\n"), _fit(target="bad.csv"), "no column in common: 'a', 'b' against 'c', 'd'"
    ),
    "target without one, strictly": (
        _text("bad.csv", "a\n1\n3\n"), _fit("--strict", target="bad.csv"), "the target lacks 'b'"
    ),
    "target of other kinds": (
        _text("bad.csv", "a,b\n" + "x,1\ny,2\n" * 9), _fit(target="bad.csv"), "column 'a' holds numbers"
    ),
    "one row to learn from": (_text("bad.csv", "a,b,y\n1,2,no\n"), _fit(source="bad.csv"), "no"),
    "infinite cell": (_text("bad.csv", ROWS + "inf,1,no\n"), _fit(source="bad.csv"), "infinite"),
    "file in the place of the folder": (_text("bad", "mine"), _fit(out="bad"), "the model cannot be written to bad"),
    "folder below a file": (_text("bad", "mine"), _fit(out="bad/model"), "the model cannot be written to bad/model"),
    "folder nobody can write": (_nothing, _fit(out="/proc/self/model"), "cannot be written to /proc/self/model"),
    "no model": (_nothing, _predict(model="bad"), "bad holds no manifest.json"),
    "file for a model": (_text("bad", "mine"), _predict(model="bad"), "bad holds no manifest.json"),
    "cut model": (_model(_cut), _predict(model="bad"), "manifest.json is damaged"),
    "flipped bit": (_model(_flip), _predict(model="bad"), "is damaged"),
    "model without weights": (
        _model(lambda folder: next(folder.glob("weights-*")).unlink()), _predict(model="bad"), "is missing"
    ),
    "estimator without a table": (
        lambda folder: shutil.copytree(GOLDEN / "classifier", folder / "bad"), _predict(model="bad"),
        "without the preprocessing of a table",
    ),
    "columns of another table": (
        _text("bad.csv", "id,spend\nc1,2\n"), _predict(data="bad.csv"), "lacks 3 of 4 columns"
    ),
    "names alone to predict": (_text("bad.csv", NAMES), _predict(data="bad.csv"), "has no rows"),
    "ragged row to predict": (
        _text("bad.csv", f"{NAMES}c1,1,2,3,Linz\nc2,1,2,3,Linz,9\n"), _predict(data="bad.csv"), "row 2 has 6 fields"
    ),
    "word to predict": (
        _text("bad.csv", f"{NAMES}c1,1,2,3,Linz\nc2,much,2,3,Linz\n"), _predict(data="bad.csv"),
        "column 'spend', row 2 holds 'much'",
    ),
    "infinity to predict": (
        _text("bad.csv", f"{NAMES}c1,1,2,3,Linz\nc2,inf,2,3,Linz\n"), _predict(data="bad.csv"),
        "column 'spend', row 2 is infinite",
    ),
    "predictions by another name": (_nothing, _predict(out="new.xlsx"), "must end in .csv, .tsv or .parquet"),
    "predictions over the data": (_nothing, _predict(data="{good}", out="{good}"), "is the file that is read"),
    "predictions into no folder": (
        _nothing, _predict(data="{good}", out="far/new.csv"), "far/new.csv cannot be written"
    ),
    "predictions for a folder": (
        lambda folder: (folder / "bad.csv").mkdir(), _predict(data="{good}", out="bad.csv"), "is a folder"
    ),
    "JSON in the place of predictions": (_nothing, ("predict", "model", "{good}", "--json"), "--out F"),
    "id of predictions": (_nothing, _predict("--id", "key", data="{good}"), "no id column 'key'"),
    "page into no folder": (
        _nothing, ("diagnose", "{source}", "{target}", "--out", "far/new.html", "--no-open", "--permutations", "9"),
        "far/new.json cannot be written",
    ),
    "diagnosis of nothing in common": (
        _text("bad.csv", "c\n" + "1\n2\n" * 9), ("diagnose", "{target}", "bad.csv", "--no-open"), "column"
    ),
    "experiment that is not there": (_nothing, ("reproduce", "magic"), "No such command 'magic'"),
    "setting that is not there": (
        _nothing, ("reproduce", "artificial", "--data", ".", "--setting", "best"), "paper, momentalign"
    ),
    "data that are not there": (_nothing, ("reproduce", "artificial", "--data", "far"), "artificial.npz is not there"),
    "data that are damaged": (
        _text("artificial.npz", "no archive"), ("reproduce", "artificial", "--data", "."), "not the file it should be"
    ),
    "figure into no folder": (
        _nothing, ("reproduce", "overpenalization", "--out", "far/page.html"), "far/page.json cannot be written"
    ),
    "data set that is not there": (_nothing, ("datasets", "path", "magic"), "magic"),
}  # fmt: skip
# Rows of these lack the columns of the model, which is said first; COMMANDS has them with its columns.
OTHERS = {"names alone", "ragged row", "short row", "word among numbers"}
ROWS_OF_FILES = [(reader, name) for reader in READERS for name in FILES if reader != "predict" or name not in OTHERS]


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command line in this process: (exit code, standard error)."""
    (tmp_path / "source.csv").write_text(ROWS)
    (tmp_path / "target.csv").write_text(TARGET)
    (tmp_path / "good.csv").write_text("id,spend,visits,age,city\nc1,0.5,0.25,0.1,Linz\n")
    shutil.copytree(GOLDEN / "table", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    heard = signal.getsignal(signal.SIGTERM)

    def run(*arguments):
        paths = {"{source}": "source.csv", "{target}": "target.csv", "{good}": "good.csv"}
        monkeypatch.setattr(sys, "argv", ["momentalign", *(paths.get(word, word) for word in arguments)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(SystemExit) as left:
                main()
        return left.value.code, capsys.readouterr().err

    yield run
    signal.signal(signal.SIGTERM, heard)


def _refused(command, folder, arguments, expected):
    before = {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    code, message = command(*arguments)
    assert code == 2, message
    assert message.startswith("momentalign: "), message
    assert message.count("\n") == 1
    assert expected in message
    assert "Traceback" not in message
    assert {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")} == before


def test_there_are_many_rows():
    assert len(ROWS_OF_FILES) + len(COMMANDS) >= 140


@pytest.mark.parametrize(("reader", "name"), ROWS_OF_FILES, ids=[f"{name}, {reader}" for reader, name in ROWS_OF_FILES])
def test_a_file_that_cannot_be_read(command, tmp_path, reader, name):
    make, file, expected = FILES[name]
    make(tmp_path)
    arguments = tuple(file if word == "bad" else word for word in READERS[reader])
    _refused(command, tmp_path, arguments, expected)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_cannot_work(command, tmp_path, name):
    make, arguments, expected = COMMANDS[name]
    make(tmp_path)
    _refused(command, tmp_path, arguments, expected)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_read_and_named(command, tmp_path, encoding):
    (tmp_path / "bad.csv").write_bytes("id,spend,visits,age,city\nc1,0.5,0.25,0.1,Köln\n".encode(encoding))
    code, _ = command("predict", "model", "bad.csv", "--out", "new.csv")
    assert code == 0
    assert (tmp_path / "new.csv").is_file()
