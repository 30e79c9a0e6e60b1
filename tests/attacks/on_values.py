"""Attempts on values: samples, features, labels, frames, and what is shown on pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from scipy import sparse
from tests.oracle import cmd_terms
from tests.oracle import exact as as_fractions

import momentalign as ma
from momentalign.evaluation.class_shares import predictions_of
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.read import read_table

Attempt = Callable[[Path], Any]


# Numbers: every distance of samples of any size and kind is finite, at least 0 and 0 for a sample and itself.


def number_attempts() -> dict[str, Attempt]:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(40, 3))
    scales = [10.0**power for power in (-320, -300, -150, -40, -20, -8, 4, 12, 20, 37, 80, 150, 300, 308)]
    samples: dict[str, Any] = {f"scale {scale:g}": base * scale for scale in scales}
    samples |= {f"offset {offset:g}": base + offset for offset in (1e3, 1e6, 1e9, 1e15, 1e300)}
    samples |= {
        f"{name} {scale:g}": (base * scale).astype(kind)
        for name, kind in (("float32", "f4"), ("float16", "f2"))
        for scale in (1e-3, 1.0, 5e3)
    }
    samples |= {
        "constants": np.full((40, 3), 7.0), "zeros": np.zeros((40, 3)), "whole": rng.integers(0, 5, (40, 3)),
        "booleans": base > 0, "one row": base[:1], "two rows": base[:2], "no rows": base[:0], "no columns": base[:, :0],
        "NaN": np.where(base > 1, np.nan, base), "infinite": np.where(base > 1, np.inf, base), "complex": base + 1j,
        "objects": base.astype(object), "text": base.astype(str), "dates": rng.integers(0, 9, (40, 3)).astype("M8[D]"),
        "backwards": base[::-1, ::-1], "Fortran": np.asfortranarray(base), "big-endian": base.astype(">f8"),
        "three dimensions": base[None], "a vector": base[:, 0], "a number": 3.0, "nothing": None,
        "CSR": sparse.csr_array(base),
        "half empty CSR": sparse.csr_array(base * (base > 0)),
        "tensor with a gradient": torch.tensor(base, requires_grad=True),
        "bfloat16": torch.tensor(base, dtype=torch.bfloat16), "meta": torch.ones(40, 3, device="meta"),
        "huge whole numbers": np.full((40, 3), 2**62), "unsigned": np.full((40, 3), 2**64 - 1, np.uint64),
        "ragged": [[1.0, 2.0], [3.0]], "one outlier": np.vstack([base, [[1e200] * 3]]),
    }  # fmt: skip
    distances: dict[str, Callable[[Any, Any], Any]] = {
        "cmd": ma.cmd, "cmd cross=2": partial(ma.cmd, cross=2), "mmd": ma.mmd, "coral": ma.coral,
        "moments": lambda source, target: ma.Moments.of(source).mean.sum() * 0.0,
    }  # fmt: skip

    def attempt(distance: Callable[[Any, Any], Any], source: Any, target: Any, folder: Path) -> None:
        value = float(distance(source, target))
        assert np.isfinite(value), value
        assert value >= 0.0 or abs(value) < 1e-6, value
        assert abs(float(distance(source, source))) <= 1e-6 * max(1.0, value), "a sample differs from itself"

    def exact(scale: float, offset: float, orders: int, folder: Path) -> None:
        source, target = (scale * (part + offset) for part in (base[:12], 1.3 * base[12:21] + 0.4))
        terms = cmd_terms(*(as_fractions(part.tolist()) for part in (source, target)), orders)
        found = ma.cmd(source, target, n_moments=orders, interval=(0.0, 1.0))
        assert abs(found - sum(terms)) <= 1e-12 * sum(terms), (found, sum(terms))

    found = {
        f"cmd against fractions, scale {scale:g}, offset {offset:g}, {orders} moments": partial(
            exact, scale, offset, orders
        )
        for scale in (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6)
        for offset in (0.0, 1.0, -1e3, 1e6, 1e9)
        for orders in (1, 2, 5)
    }
    return found | {
        f"{name} of {kind}": partial(attempt, distance, sample, sample[:20] * 0.5 if _halves(sample) else sample)
        for name, distance in distances.items()
        for kind, sample in samples.items()
    }


def _halves(sample: Any) -> bool:
    return (
        getattr(getattr(sample, "dtype", None), "kind", "") == "f"
        and np.ndim(sample) == 2
        and not sparse.issparse(sample)
    )


# Estimators and evaluation: features and labels that cannot work, at every door.


def estimator_attempts() -> dict[str, Attempt]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    plain = ma.MANNClassifier(hidden=(3,), max_epochs=2, random_state=0, device="cpu").fit(X, y, X)
    rows: dict[str, Any] = {
        "NaN": np.where(X > 2, np.nan, X), "infinite": np.where(X > 2, np.inf, X), "1e39": X * 1e39, "1e-39": X * 1e-39,
        "none": X[:0], "one": X[:1], "no columns": X[:, :0], "one column": X[:, :1],
        "more columns": np.hstack([X, X]), "a vector": X[:, 0],
        "three dimensions": X[None], "text": X.astype(str), "complex": X + 1j, "objects": X.astype(object),
        "None": None,
        "number": 3, "dictionary": {"a": 1}, "list": X.tolist(), "sparse": sparse.csc_matrix(X),
        "tensor": torch.tensor(X),
        "gradient": torch.tensor(X, requires_grad=True), "masked": np.ma.masked_greater(X, 1.0),
        "frame": pd.DataFrame(X),
        "doubled columns": pd.DataFrame(X, columns=["a", "a", "b"]), "constant": np.ones((60, 3)), "booleans": X > 0,
    }  # fmt: skip
    doors: dict[str, Callable[[Any], Any]] = {
        "fit": lambda bad: ma.MANNClassifier(hidden=(3,), max_epochs=2, device="cpu").fit(bad, y, X),
        "fit target": lambda bad: ma.MANNClassifier(hidden=(3,), max_epochs=2, device="cpu").fit(X, y, bad),
        "regression": lambda bad: ma.MANNRegressor(hidden=(3,), max_epochs=2, device="cpu").fit(X, X[:, 0], bad),
        "moment map": lambda bad: ma.MomentMap().fit_transform(X, X_target=bad),
        "diagnose": lambda bad: ma.diagnose(X, bad, n_permutations=5),
        "monitor": lambda bad: ma.DriftMonitor(np.vstack([X, X]), window=20, random_state=0).update(bad),
        "bound": lambda bad: ma.error_bound(plain, X, y, bad),
        "labels": lambda bad: ma.MANNClassifier(hidden=(3,), max_epochs=2, device="cpu").fit(X, bad, X),
        "shares": lambda bad: predictions_of(plain, X, y, bad),
    }

    def attempt(door: Callable[[Any], Any], bad: Any, folder: Path) -> None:
        found = door(bad)
        for layer in getattr(found, "coefs_", []):
            assert np.isfinite(layer).all()

    return {
        f"{door}: {name}": partial(attempt, call, bad) for door, call in doors.items() for name, bad in rows.items()
    }


# Parameters: every one of them with every kind of value; it is refused, or what is fitted is finite.


def parameter_attempts() -> dict[str, Attempt]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    values: tuple[Any, ...] = (
        None, True, -1, 0, 10**10, 10**400, 1.5, -1e308, 1e308, float("nan"), float("inf"), "", "x", "\x1b[31m", b"x",
        [], (), {}, (0,), (-1,), (10**10,), [None], {"a": 1}, np.nan, np.int8(3), np.float16(0.5), np.array([1.0, 2.0]),
        np.array("x"), len, int, 1j,
    )  # fmt: skip

    def fit(make: Any, name: str, value: Any, folder: Path) -> None:
        answer = make(**{name: value}).fit_transform(X, X_target=X + 1.0)
        assert np.isfinite(np.asarray(answer, dtype=float)).all()

    def watch(name: str, value: Any, folder: Path) -> None:
        plain = {"window": 20, "n_resamples": 100, "random_state": 0}
        judgement = ma.DriftMonitor(np.vstack([X, X]), **{**plain, name: value}).update(X)
        assert judgement is None or np.isfinite(judgement.statistic)

    found = {
        f"{make.__name__}({name}={value!r:.20})": partial(fit, make, name, value)
        for make in (ma.MomentMap, ma.TransferComponentAnalysis)
        for name in make().get_params()
        for value in values
    }
    names = ["window", "forgetting", "false_alarm_rate", "order", "feature_names", "random_state", "model", "X", "y"]
    return found | {
        f"DriftMonitor({name}={value!r:.20})": partial(watch, name, value) for name in names for value in values
    }


# Frames: cells, labels and names that are no table of numbers, dates and texts, from pandas and Arrow.


def frame_attempts() -> dict[str, Attempt]:
    rows = 40
    cells: dict[str, Any] = {
        "tuples": [(1, 2), (3, 4)], "lists": [[1], [2]], "arrays": [np.ones(2), np.zeros(2)], "sets": [{1}, {2}],
        "dictionaries": [{"x": 1}, {}], "bytes": [b"a", b"b"], "half a surrogate pair": ["\udc80", "v"],
        "complex": [1j, 2.0], "whole numbers of 400 digits": [10**400, 1], "of 40 digits": [10**40, 1],
        "texts and numbers": ["a", 1], "truth and one": [True, 1], "one in three ways": [1, 1.0], "none": [None, None],
        "infinite": [np.inf, 0.0], "dates": [pd.Timestamp("2020"), pd.Timestamp("2021")],
        "dates of two zones": [pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2021")], "NaT": [pd.NaT, pd.NaT],
        "durations": [pd.Timedelta(1), pd.Timedelta(2)], "periods": [pd.Period("2020"), pd.Period("2021")],
        "intervals": [pd.Interval(0, 1), pd.Interval(1, 2)], "decimals": [Decimal("1.5"), Decimal("NaN")],
        "classes of Python": [int, str], "functions": [len, max], "long": ["x" * 10**6, "y"], "1e308": [1e308, -1e308],
        "tiny": [1e-320, 0.0], "control characters": ["\x1b[31m", "\0"], "a constant": ["a", "a"], "": ["", " "],
    }  # fmt: skip
    series = {name: pd.Series(pair * (rows // 2), dtype=object) for name, pair in cells.items()}
    kinds = ("float16", "longdouble", ">f8", "complex64", "Int64", "boolean", "category", "Sparse[float]")
    series |= {kind: pd.Series([0, 1] * (rows // 2)).astype(kind) for kind in kinds}
    columns = {
        "lists": pa.array([[1]] * rows), "structures": pa.array([{"x": 1}] * rows), "nothing": pa.nulls(rows),
        "dictionary": pa.array(["x", "y"] * (rows // 2)).dictionary_encode(),
        "view": pa.array(["x"] * rows, "string_view"),
        "the year 2,941,775": pa.array([2**30] * rows, "date32"),
        "far dates": pa.array([2**62] * rows, pa.timestamp("ns")),
        "time of day": pa.array([1] * rows, pa.time64("us")), "months": pa.array([(1, 2, 3)] * rows),
        "invalid UTF-8": pa.Array.from_buffers(
            pa.string(), rows, [None, pa.py_buffer(np.arange(rows + 1, dtype=np.int32)), pa.py_buffer(b"\xff" * rows)]
        ),
    }  # fmt: skip
    plain = pd.DataFrame({"a": np.arange(rows) % 7, "label": ["u", "v"] * (rows // 2)})

    def fit(make: Callable[[], Any], name: str, folder: Path) -> None:
        table = read_table(make(), label=name)
        found = Preprocessor().fit(table, X_target=table)
        again = Preprocessor.from_description(json.loads(json.dumps(found.to_description())))
        assert np.isfinite(again.transform(table)).all()

    found = {
        f"cells: {name}": partial(fit, lambda c=column: plain.assign(a=c), "label") for name, column in series.items()
    }
    found |= {
        f"labels: {name}": partial(fit, lambda c=column: plain.assign(label=c), "label")
        for name, column in series.items()
    }
    found |= {
        f"Arrow: {name}": partial(fit, lambda c=column: pa.table({"a": c, "label": plain["label"]}), "label")
        for name, column in columns.items()
    }
    names = ["", None, np.nan, ("a", 1), "\n", "\0", "\udc80", "x" * 10**6, 5, b"a", "label"]
    found |= {
        f"a column named {name!r:.20}": partial(
            fit, lambda n=name: plain.set_axis(pd.Index([n, "label"], dtype=object), axis=1), "label"
        )
        for name in names
    }
    others = [
        None,
        3,
        [1],
        {"a": 1},
        b"x",
        pd.DataFrame,
        np.ones((3, 2)),
        plain["a"],
        plain[:0],
        plain[[]],
        "",
        "no.csv",
    ]
    found |= {f"a table that is {other!r:.30}": partial(fit, lambda o=other: o, "label") for other in others}
    return found | {
        f"a label named {name!r}": partial(fit, lambda: plain, name) for name in (5, ["label"], b"label", "")
    }


# Pages: names and values that would be code.


def page_attempts() -> dict[str, Attempt]:
    hostile = [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "{{7*7}}",
        "{% for x in y %}",
        "\x1b[31mred",
        "=1+1",
        "javascript:alert(1)",
        "</style><script>",
    ]

    def attempt(text: str, folder: Path) -> None:
        rng = np.random.default_rng(0)
        pair = [pd.DataFrame({text: rng.normal(shift, 1, 40), "b": [text, f"{text}2"] * 20}) for shift in (0.0, 3.0)]
        page = ma.diagnose(*pair, n_permutations=5).to_html()
        assert page.count("<script") == 1, "a script came into the page"
        assert "<img" not in page
        assert ">49<" not in page

    return {text: partial(attempt, text) for text in hostile}
