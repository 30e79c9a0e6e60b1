"""Attempts on tables: sound files of every format, each damaged in every way, and labels that could be merged."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from momentalign.tables.read import read_chunks, read_table

Attempt = Callable[[Path], Any]


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
    for suffix, compress in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
        (folder / f"t.csv.{suffix}").write_bytes(compress((folder / "t.csv").read_bytes()))
    (folder / "t.svm.gz").write_bytes(gzip.compress((folder / "t.svm").read_bytes()))
    sparse.save_npz(folder / "coo.npz", sparse.coo_array(rows), compressed=False)
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
    with TemporaryDirectory() as folder:
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
    bits = ["<f4", "<f2", "<c8", "<U1", "|S3", "|b1", ">i8", "<m8[s]", "<M8[ns]", "<f16", "<U500000000", "|V0", "|S0"]
    cases |= {
        f"npy of {descr} (3,), its bytes ones": (npy(descr, (3,))[:-24] + b"\xff" * 96, "t.npy") for descr in bits
    }
    zeros = np.zeros(1, np.int32)
    sizes = (
        (0, 0),
        (1, 0),
        (0, 1),
        (-1, 3),
        (4 * 10**8, 2),
        (2, 10**12),
        (10**9, 10**9),
        (2**62, 2**62),
        (3,),
        (1, 1, 1),
    )
    for form in ("coo", "csr", "csc", "dia", "bsr", "lil", "dok", "", "x" * 1000):
        for shape in sizes:
            parts = {"row": zeros, "col": zeros, "indices": zeros, "indptr": np.array([0, 1]), "offsets": zeros}
            data = {"dia": np.ones((1, 1)), "bsr": np.ones((1, 0, 0))}.get(form, np.ones(1))
            content = io.BytesIO()
            np.savez(content, format=np.array(form), shape=np.array(shape), data=data, **parts)
            cases[f"sparse {form:.5} of {shape}"] = content.getvalue(), "t.npz"
    texts = {
        "a name of 140,000 letters": "x" * 140_000 + ",b\n1,2\n3,4\n",
        "a header of a megabyte": ",".join(f"column_{number:030d}" for number in range(30_000))
        + "\n"
        + "1," * 29_999
        + "1\n",
        "names of a terminal": "\x1b[31mred,b\n1,2\n3,4\n",
        "formulas": "=1+1,@x\n=cmd|' /C calc'!A0,+1\n-1,2\n",
        "names of spaces": " ,\t\n1,2\n3,4\n",
        "one name many times": "a," * 500 + "a\n" + "1," * 500 + "1\n",
        "quotes alone": '"' * 1001,
        "commas alone": "," * 100_000,
        "a cell of 10 MB": 'a,b\n"' + "x" * 10**7 + '",1\ny,2\n',
        "a quoted cell of 100,000 lines": 'a,b\n"' + "x\n" * 10**5 + '",1\ny,2\n',
        "numbers of 10,000 digits": "a,b\n" + "9" * 10_000 + ",1\n1,2\n",
        "numbers of all kinds": "a,b\n1e400,nan\n-1e-400,inf\n0x10,1_0\n",
        "dates of no calendar": "a,b\n2024-02-30,1\n0000-00-00,2\n",
        "dates of every kind": "a,b\n2024-01-01,1\n01/02/2024,2\n1.2.24,3\n",
        "right to left": "\u202eabc,b\n1,2\n3,4\n",
        "no letters": "\ufffe,\uffff\n1,2\n3,4\n",
        "a separator of lines": "a\u2028b,c\n1,2\n3,4\n",
        "a vertical tab": "a\x0bb,c\n1,2\n3\x0c,4\n",
        "one column of gaps": "a\n\n\n1\n\n",
        "semicolons and commas": "a;b,c\n1;2,3\n4;5,6\n",
        "pipes": "a|b\n1|2\n3|4\n",
        "comments": "# no\na,b\n1,2\n# no,x\n",
        "a sep line of Excel": "sep=;\na;b\n1;2\n",
    }
    cases |= {f"CSV with {name}": (text.encode("utf-8", "surrogatepass"), "t.csv") for name, text in texts.items()}
    cases |= {
        f"CSV in {encoding}": ("ä,b\n1,ö\n3,ß\n".encode(encoding), "t.csv")
        for encoding in [
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "utf-32",
            "utf-32-le",
            "utf-7",
            "cp1252",
            "cp437",
            "latin-1",
            "utf-8-sig",
        ]
    }
    cases |= {
        f"svmlight {text!r:.40}": (text.encode(), "t.svm")
        for text in (
            "1 1000000000:1\n",
            "1 0:1\n",
            "1 2:1 1:1\n",
            "1 a:1\n",
            "nan 1:inf\n",
            "1 -1:2\n",
            "1e300 1:1\n2e300 1:1\n",
            "1 1:1 1:2\n",
            "1 1:1_0\n",
            "1_0 1:1\n",
            "1 1_0:1\n",
            "1 18446744073709551616:1\n",
            "1 1:1e400\n",
            "1 1:-inf\n",
            "1 1:\n",
            "1 :1\n",
            "1 1:1:1\n",
            "1 1 1\n",
            ":\n",
            "#\n",
            "1 # 1:1\n",
            "1,2 1:1\n",
            "1 qid:x 1:1\n",
            "1 qid:-1 1:1\n",
            "1 1:1 # \x1b[31m\n",
            "\u0661 1:1\n",
            "1" * 400 + " 1:1\n",
            "1 " + " ".join(f"{index}:1" for index in range(1, 20_000)) + "\n",
        )
    }
    return {name: partial(read, content, file) for name, (content, file) in cases.items()}


# Labels: texts that some reader takes for the same number are different classes, whole and in parts.


def label_attempts() -> dict[str, Attempt]:
    alike = [
        ("1_0", "10"), ("01", "1"), ("1e400", "2e400"), ("9007199254740993", "9007199254740992"), ("\u0661", "1"),
        ("\uff11", "1"), ("1" * 400, "1" * 399 + "2"), ("0.1", "0.10000000000000000001"), ("1e-400", "2e-400"),
        ("18446744073709551616", "18446744073709551617"), ("a", "A"), ("a", "\u0430"), ("e\u0301", "\u00e9"),
        ("True", "1"), ("x", "x\u200b"), ("0x10", "16"), ("-0x1", "-1"), ("1e5", "1E5x"), ("1d5", "1e5"),
        ("1,5", "1.5"), ("00", "0"), ("+1x", "1x"), ("inf", "infinity"), ("1.0.0", "1.0"),
        ("2020-01-01", "2020-01-01T00:00"), ("=1+1", "2"), ("$5", "5"), ("5%", "5"),
        ("\u00bd", "0.5"), ("\u2167", "8"), ("one", "1"),
    ]  # fmt: skip

    def attempt(one: str, other: str, suffix: str, folder: Path) -> None:
        path, delimiter = folder / f"labels{suffix}", "\t" if suffix == ".tsv" else ","
        texts = [one, other, "3", one, other, "3"]
        lines = [f'{row}{delimiter}"{text}"' for row, text in enumerate(texts)]
        path.write_text("\n".join([f"a{delimiter}y", *lines, ""]), encoding="utf-8")
        labels = read_table(path, label="y").labels.tolist()
        assert len(set(labels)) == 3, f"{labels} of {texts}"
        assert labels[:3] == labels[3:]

    found = {
        f"{one!r:.30} and {other!r:.30} in {suffix}": partial(attempt, one, other, suffix)
        for one, other in alike
        for suffix in (".csv", ".tsv")
    }

    def svmlight(one: str, other: str, folder: Path) -> None:
        (folder / "t.svm").write_text(f"{one} 1:1\n{other} 1:2\n3 1:3\n")
        assert len(set(read_table(folder / "t.svm", label="label").labels.tolist())) == 3

    numbers = [
        ("1e300", "2e300"), ("9007199254740993", "9007199254740995"), ("1e-300", "2e-300"), ("0.1", "0.2"),
        ("1e400", "2e400"), ("1_0", "10"), ("-1", "+1"), ("nan", "1"), ("0x10", "16"),
        ("9007199254740993", "9007199254740992"),
    ]  # fmt: skip
    return found | {f"{one} and {other} in .svm": partial(svmlight, one, other) for one, other in numbers}
