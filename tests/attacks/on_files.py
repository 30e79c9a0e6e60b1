"""Attempts on files: tables, torch files, models, journals, and paths that no file can have."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse

import momentalign as ma
from momentalign.errors import DamagedFileError
from momentalign.journal import Journal
from momentalign.paper.backbones import load_weights
from momentalign.tables.read import read_chunks, read_table

Attempt = Callable[[Path], Any]
GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"


# Readers of tables: sound files of every format, each damaged in every way.


def sound_tables(folder: Path) -> dict[str, bytes]:
    frame = pd.DataFrame(
        {"a": [1.5, 2.0, -3.0, 4.0], "b": ["x", "y, z", "ü", None], "when": ["2024-01-0" + c for c in "1234"]}
    )
    rows = np.arange(12.0).reshape(4, 3)
    frame.to_parquet(folder / "t.parquet")
    np.savez(folder / "t.npz", X=rows, y=np.arange(4))
    np.save(folder / "t.npy", rows)
    sparse.save_npz(folder / "sparse.npz", sparse.csr_array(rows))
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "t.tsv", index=False, sep="\t")
    (folder / "t.svm").write_text("1 1:0.5 3:2\n-1 2:1e3\n1 1:1\n")
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flipped(content: bytes, seed: int) -> bytes:
    damaged = bytearray(content)
    for position in np.random.default_rng(seed).integers(8 * len(content), size=1 + seed % 3).tolist():
        damaged[position // 8] ^= 1 << (position % 8)
    return bytes(damaged)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "one byte": lambda content: content[:1],
    "ten bytes": lambda content: content[:10],
    "half": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-1],
    "without its beginning": lambda content: content[7:],
    "twice": lambda content: content + content,
    "backwards": lambda content: content[::-1],
    "zeros": lambda content: bytes(len(content)),
    "zeros behind": lambda content: content + bytes(5000),
    "ones": lambda content: b"\xff" * len(content),
    "a zero in the middle": lambda content: content[:30] + b"\0" + content[30:],
    "two byte order marks": lambda content: b"\xef\xbb\xbf" * 2 + content,
    "a mark of UTF-16": lambda content: b"\xff\xfe" + content,
    "packed": gzip.compress,
    "pickle": lambda _: pickle.dumps({"a": [1, 2]}),
    "HTML": lambda _: b"<html><body>404</body></html>",
    "a long line": lambda _: b"x" * 2_000_000,
    "empty lines": lambda _: b"\n" * 50_000,
    "one old end of line": lambda content: content.replace(b"\n", b"\r"),
    "an open quote": lambda content: b'"' + content,
    "random": lambda content: np.random.default_rng(0).bytes(len(content) + 50),
    **{f"flipped {seed}": partial(flipped, seed=seed) for seed in range(8)},
}  # fmt: skip


def read(content: bytes, name: str, folder: Path) -> None:
    path = folder / name
    path.write_bytes(content)
    whole = len(read_table(path))
    assert sum(len(part) for part in read_chunks(path, rows=2)) == whole, "another number of rows in parts"


def npy(descr: str, shape: tuple[int, ...]) -> bytes:
    words = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + (len(words) + 1).to_bytes(2, "little") + words + b"\n" + bytes(24)


def reader_attempts() -> dict[str, Attempt]:
    with tempfile.TemporaryDirectory() as folder:
        sound = sound_tables(Path(folder))
    cases = {
        f"{name}, {damage}": (change(content), name)
        for name, content in sound.items()
        for damage, change in DAMAGES.items()
    }
    cases |= {
        f"npy of {descr} {shape}": (npy(descr, shape), "t.npy")
        for descr in ("<f4", "<U0", "|O", "<i9", "V8", "<M8[s]")
        for shape in ((), (10**9, 10), (-1, 2), (0, 3), (2, 3, 4))
    }
    cases |= {
        f"svmlight {text!r}": (text.encode(), "t.svm")
        for text in (
            "1 1000000000:1\n",
            "1 0:1\n",
            "1 2:1 1:1\n",
            "1 a:1\n",
            "nan 1:inf\n",
            "1 -1:2\n",
            "1e300 1:1\n2e300 1:1\n",
            "1 1:1 1:2\n",
        )
    }
    return {name: partial(read, content, file) for name, (content, file) in cases.items()}


# Folders of models: every entry of a manifest replaced, with the digest it should have.


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    yield path
    for key, part in inside:
        yield from leaves(part, (*path, key))


def seal(body: dict[str, Any]) -> str:
    def text() -> str:
        return json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False)

    body.pop("digest", None)
    body["digest"] = hashlib.sha256(text().encode()).hexdigest()
    return text()


def forged(kind: str, path: tuple[Any, ...], value: Any, folder: Path) -> None:
    model = shutil.copytree(GOLDEN / kind, folder / "model")
    body = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
    place = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (model / "manifest.json").write_text(seal(body), encoding="utf-8")
    loaded = ma.load(model)
    if kind != "table":
        rows = np.zeros((3, loaded.n_features_in_), np.float32)
        assert len(loaded.predict(rows)) == 3


VALUES = [None, "x", -1, [], {}, True, 1e308, 10**30, [[0]], "x" * 5000]


def manifest_attempts() -> dict[str, Attempt]:
    found: dict[str, Attempt] = {}
    for kind in ("classifier", "combination", "labels", "regressor", "table"):
        body = json.loads((GOLDEN / kind / "manifest.json").read_text(encoding="utf-8"))
        paths = [path for path in leaves(body) if path and path != ("digest",)]
        for number, path in enumerate(paths):
            for value in (VALUES[number % len(VALUES)], VALUES[(number * 3 + 4) % len(VALUES)]):
                found[f"{kind}, {'.'.join(map(str, path))} is {value!r:.12}"] = partial(forged, kind, path, value)
    return found


# Files of torch, which only the paper's backbones are read from.


def nested(depth: int, make: Callable[[Any], Any]) -> Any:
    value: Any = torch.ones(2)
    for _ in range(depth):
        value = make(value)
    return value


def torch_attempts() -> dict[str, Attempt]:
    storage = torch.zeros(1000)
    values: dict[str, Any] = {
        "list": [torch.ones(2)],
        "number": 3,
        "nothing": {},
        "text": {"a": "b"},
        "tensor": torch.ones(3),
        "module": torch.nn.Linear(2, 2),
        "set": {"a": {1, 2}},
        "keys of numbers": {1: torch.ones(2)},
        "tuples in tuples": {"a": nested(300, lambda value: (value,))},
        "shared tuples": {"a": nested(60, lambda value: (value, value))},
        "shared lists": {"a": nested(60, lambda value: [value] * 4)},
        "shared dictionaries": {"a": nested(60, lambda value: {"a": value, "b": value})},
        "400 views of one storage": {str(number): storage[:number] for number in range(400)},
        "a view of a terabyte": {"a": torch.zeros(1).expand(2**40)},
        "sparse": {"a": torch.eye(3).to_sparse()},
        "meta": {"a": torch.ones(3, device="meta")},
        "NaN": {"a": torch.full((2,), float("nan"))},
        "complex": {"a": torch.ones(2, dtype=torch.complex64)},
        "parameters": {"a": torch.nn.Parameter(torch.ones(2))},
        "state of a state": {"state_dict": {"state_dict": {"a": torch.ones(2)}}},
        "numpy": {"a": np.ones(2)},
        "function": {"a": os.getcwd},
    }
    contents = {}
    for name, value in values.items():
        file = io.BytesIO()
        torch.save(value, file)
        contents[name] = file.getvalue()
    contents |= {f"pickle {depth} deep": b"\x80\x02K\x01" + b"\x85" * depth + b"." for depth in (10, 10_000, 2_000_000)}
    contents |= {f"sound, {name}": change(contents["keys of numbers"]) for name, change in DAMAGES.items()}

    def attempt(content: bytes, folder: Path) -> None:
        (folder / "weights.pth").write_bytes(content)
        assert all(isinstance(part, torch.Tensor) for part in load_weights(folder / "weights.pth").values())

    return {name: partial(attempt, content) for name, content in contents.items()}


# Journals: lines of another shape with the digest they should have, in the middle and at the end.


def sealed(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return json.dumps({**body, "digest": digest}, sort_keys=True, separators=(",", ":")).encode()


def journal_attempts() -> dict[str, Attempt]:
    wrong = [None, 3, "text", [], [["seed", 0]], True]
    lines = [sealed({"cell": {"seed": 9}, "result": {}, name: value}) for name in ("cell", "result") for value in wrong]
    lines += [
        b"",
        b"[]",
        b"3",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"digest":"0"}',
        b'{"cell":{},"cell":{}}',
        b"null",
        b"NaN",
    ]
    lines += [
        sealed({"cell": {}}),
        sealed({"cell": {}, "result": {}, "more": 1}),
        b"\0" * 100,
        b'"' + b"x" * 10**6 + b'"',
    ]

    def attempt(line: bytes, last: bool, folder: Path) -> None:
        path = folder / "cells.jsonl"
        journal = Journal(path, {"what": "attempt"})
        journal.append({"seed": 0}, {"a": 1})
        header, rest = path.read_bytes().split(b"\n", 1)
        path.write_bytes(b"\n".join([header, rest + line, b""] if last else [header, line, rest]))
        try:
            journal.done()
        except DamagedFileError:
            return
        raise AssertionError("a wrong line was taken for a cell")

    def foreign(line: bytes, fresh: bool, folder: Path) -> None:
        (folder / "cells.jsonl").write_bytes(line + b"\n")
        try:
            Journal(folder / "cells.jsonl", {"what": "attempt"}, fresh=fresh)
        finally:
            assert (folder / "cells.jsonl").read_bytes() == line + b"\n", "a file that is no journal was changed"

    found = {
        f"{line!r:.60} {'last' if last else 'in the middle'}": partial(attempt, line, last)
        for line in lines
        for last in (True, False)
    }
    return found | {
        f"{line!r:.60} as a journal, {fresh=}": partial(foreign, line, fresh)
        for line in lines
        for fresh in (True, False)
        if line
    }


# Paths: what no file can be called, and what is no plain file, at every door that reads or writes.


def path_attempts() -> dict[str, Attempt]:
    frame = pd.DataFrame({"a": np.arange(40) % 7, "label": ["u", "v"] * 20})
    X, y = frame[["a"]].to_numpy(float), frame["label"].to_numpy()
    model = ma.MANNClassifier(hidden=(2,), max_epochs=1, random_state=0, device="cpu").fit(X, y)
    network = torch.nn.Linear(2, 2)
    doors: dict[str, Callable[[Any], Any]] = {
        "load": ma.load,
        "save": model.save,
        "read": read_table,
        "read in parts": lambda path: list(read_chunks(path)),
        "page": ma.diagnose(X, X + 1.0, n_permutations=5).to_html,
        "save weights": partial(ma.save_weights, network),
        "load weights": partial(ma.load_weights, network),
        "journal": lambda path: Journal(path, {"what": "attempt"}),
    }
    paths: dict[str, Any] = {
        "300 letters": "x" * 300, "5,000 letters": "x" * 5000, "a deep path": "/".join(["x" * 200] * 40),
        "zero": "a\0b",
        "half a surrogate pair": "a\ud800", "not UTF-8": "a\udc80", "nothing": "", "here": ".", "None": None, "3": 3,
        "bytes": b"x", "memory": "/proc/self/mem", "below a file": "file/x", "a loop": "loop", "a pipe": "pipe",
        "two lines": "a\nb", "an escape": "a\x1b[31m", "a home": "~/no/x",
    }  # fmt: skip

    def attempt(door: Callable[[Any], Any], path: Any, folder: Path) -> None:
        here = Path.cwd()
        os.chdir(folder)
        try:
            Path("loop").symlink_to("loop")
            os.mkfifo("pipe")
            Path("file").write_text("mine")
            door(path)
        finally:
            special = Path("pipe").is_fifo() and Path("file").read_text() == "mine"
            os.chdir(here)
            assert special, "a pipe or a file of the user was replaced"

    return {
        f"{door}: {name}": partial(attempt, call, path)
        for door, call in doors.items()
        for name, path in paths.items()
        if (door, name) != ("page", "None")
    }
