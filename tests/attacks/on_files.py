"""Attempts on files: torch files, models, journals, and paths that no file can have."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tests.attacks.on_tables import DAMAGES

import momentalign as ma
from momentalign.errors import DamagedFileError
from momentalign.journal import Journal
from momentalign.paper.backbones import load_weights
from momentalign.tables.read import read_chunks, read_table

Attempt = Callable[[Path], Any]
GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"


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
            for value in (VALUES[(number * step + 4 * step) % len(VALUES)] for step in (1, 3, 5, 7)):
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
        "gradients": {"a": torch.ones(2, requires_grad=True), "b": torch.ones(2, requires_grad=True) * 2.0},
        "infinite": {"a": torch.full((2,), float("inf"))},
        "8 bits": {"a": torch.ones(4).to(torch.float8_e4m3fn)},
        "8 bits of another kind": {"a": torch.ones(4).to(torch.float8_e5m2)},
        "bfloat16": {"a": torch.ones(4, dtype=torch.bfloat16)},
        "whole numbers": {"a": torch.arange(4)},
        "truth": {"a": torch.tensor([True])},
        "quantised": {"a": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)},
        "CSR": {"a": torch.eye(3).to_sparse_csr()},
        "no rows": {"a": torch.ones(0, 3)},
        "64 dimensions": {"a": torch.ones([1] * 64)},
        "a transposed view": {"a": torch.ones(3, 4).T},
        "a view with a step": {"a": storage[::7]},
        "conjugate": {"a": torch.ones(2, dtype=torch.complex64).conj()},
        "one tensor twice": {"a": storage, "b": storage},
        "a buffer of the size of a class": {"a": torch.ones(1), "__class__": torch.ones(1)},
        "names that are paths": {"../../a": torch.ones(1), "/etc/passwd": torch.ones(1)},
        "a name of a megabyte": {"x" * 10**6: torch.ones(1)},
        "names of a terminal": {"\x1b[31m\n": torch.ones(1)},
        "20,000 tensors": {str(number): storage[0] for number in range(20_000)},
        "an optimizer": torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).state_dict(),
        "a size": {"a": torch.Size([2])},
        "a type": {"a": torch.float32},
        "a device": {"a": torch.device("cpu")},
        "a generator's state": {"a": torch.get_rng_state()},
        "lists of tensors": {"a": [torch.ones(1)] * 3},
        "None": None,
        "bytes": b"x" * 100,
        "a tuple of a dictionary": ({"a": torch.ones(1)},),
    }
    contents = {}
    for name, value in values.items():
        file = io.BytesIO()
        torch.save(value, file)
        contents[name] = file.getvalue()
    contents |= {f"pickle {depth} deep": b"\x80\x02K\x01" + b"\x85" * depth + b"." for depth in (10, 10_000, 2_000_000)}
    old = io.BytesIO()
    torch.save({"a": torch.ones(2, 3)}, old, _use_new_zipfile_serialization=False)
    contents["old format"] = old.getvalue()
    sound = {"keys of numbers": contents["keys of numbers"], "old format": contents["old format"]}
    contents |= {
        f"{kind}, {name}": change(content) for kind, content in sound.items() for name, change in DAMAGES.items()
    }

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
