"""Rare classes: the default beside its own plain network and a logistic regression.

``python -m benchmarks.imbalance [--rows 200000]``. Two generated tables under a pure covariate shift, the labelling is
the same in both domains: 8,000 rows of numbers of which 1.7 % are positive, and so many rows with numbers, a date,
categories and free text of which 3.8 % are. Prints average precision, and the recall at the precision that the better
of both plain models has where its own F1 is best; exit 1 where the default is more than 0.02 below that model. The
labels of 60,000 further rows of the target measure. With 40,000 rows about five minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, precision_recall_curve

import momentalign as ma
from benchmarks.figure import Figure

ROWS, MEASURED, ALLOWED = 40_000, 60_000, -0.02
CITIES = np.array(["Linz", "Wien", "Graz", "Wels", "Enns", "Steyr"])
WORDS = np.array(
    ["delivery", "late", "refund", "broken", "fine", "quick", "thanks", "order", "parcel", "invoice", "card", "again"]
)


def numbers(rows: int, *, shifted: bool, seed: int) -> pd.DataFrame:
    """Ten columns; in the target four of them have other means, and two other variances."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 10))
    if shifted:
        X[:, :4] += [0.7, -0.5, 0.8, 0.6]
        X[:, 4:6] *= 1.3
    odds = 1.3 * X[:, 0] + X[:, 1] - 0.9 * X[:, 6] + 0.8 * X[:, 7] * X[:, 2] - 0.4 * X[:, 4] ** 2 - 5.5
    return _labelled(pd.DataFrame(X, columns=[f"x{column}" for column in range(10)]), odds, random)


def mixed(rows: int, *, shifted: bool, seed: int) -> pd.DataFrame:
    """Numbers, a date, categories and free text, each of which says something; all of them shift."""
    random = np.random.default_rng(seed)
    amount, age = random.lognormal(3.0 + 0.4 * shifted, 1.0, rows), random.normal(40.0 + 6.0 * shifted, 12.0, rows)
    day = random.integers(0, 365, rows) + 365 * shifted
    city = random.choice(
        len(CITIES), rows, p=[0.1, 0.3, 0.2, 0.2, 0.1, 0.1] if shifted else [0.3, 0.3, 0.2, 0.1, 0.05, 0.05]
    )
    topic = random.integers(len(WORDS), size=(rows, 6))
    if shifted:
        topic[:, 0] = random.integers(5, size=rows)
    bad = (topic < 4).sum(axis=1)
    odds = (
        0.7 * (np.log(amount) - 3.0) - 0.03 * (age - 40.0) + 0.8 * bad + 0.9 * (city == 4) + np.sin(day / 58.0) - 5.75
    )
    frame = pd.DataFrame(
        {
            "amount": amount,
            "age": age,
            "day": np.datetime64("2023-01-01") + day.astype("timedelta64[D]"),
            "city": CITIES[city],
            "note": [" ".join(words) for words in WORDS[topic]],
        }
    )
    return _labelled(frame, odds, random)


def _labelled(frame: pd.DataFrame, odds: Any, random: np.random.Generator) -> pd.DataFrame:
    return frame.assign(fraud=(random.random(len(frame)) < 1.0 / (1.0 + np.exp(-odds))).astype(int))


def figures(rows: int = ROWS) -> Iterator[Figure]:
    """Yield the figures of both tables."""
    warnings.simplefilter("ignore")
    yield from _table("numbers", numbers, 8_000, None)
    yield from _table("mixed", mixed, rows, "note")


def _table(name: str, draw: Callable[..., pd.DataFrame], rows: int, text: str | None) -> Iterator[Figure]:
    source, unlabelled = draw(rows, shifted=False, seed=0), draw(rows, shifted=True, seed=1).drop(columns="fraud")
    target = draw(MEASURED, shifted=True, seed=2)
    yield Figure("imbalance", f"{name}, positive in the source, %", 100.0 * float(source["fraud"].mean()))
    truth = target.pop("fraud").to_numpy()
    default, plain = (
        ma.fit(source, unlabelled, label="fraud", text=text, method=method) for method in ("auto", "none")
    )
    preprocessor = plain.preprocessor
    logistic = LogisticRegression(max_iter=1000).fit(preprocessor.transform(source), source["fraud"])
    scores = {
        "default": default.predict_proba(target)[:, 1],
        "plain network": plain.predict_proba(target)[:, 1],
        "logistic regression": logistic.predict_proba(preprocessor.transform(target))[:, 1],
    }
    average = {model: float(average_precision_score(truth, score)) for model, score in scores.items()}
    better = max(("plain network", "logistic regression"), key=average.__getitem__)
    for model, value in average.items():
        yield Figure("imbalance", f"{name}, average precision, {model}", value)
    yield Figure(
        "imbalance", f"{name}, average precision above {better}", average["default"] - average[better], ALLOWED
    )
    precision, recall = _best_point(truth, scores[better])
    own = _recall_at(truth, scores["default"], precision)
    yield Figure("imbalance", f"{name}, recall of {better} at precision {precision:.2f}", recall)
    yield Figure("imbalance", f"{name}, recall above it at that precision", own - recall, ALLOWED)


def _best_point(truth: Any, scores: Any) -> tuple[float, float]:
    """Precision and recall where F1 is best."""
    precision, recall, _ = precision_recall_curve(truth, scores)
    best = int(np.argmax(precision * recall / np.maximum(precision + recall, 1e-12)))
    return float(precision[best]), float(recall[best])


def _recall_at(truth: Any, scores: Any, least: float) -> float:
    precision, recall, _ = precision_recall_curve(truth, scores)
    return float(recall[precision >= least].max())


def main(arguments: list[str] | None = None) -> int:
    """Print every figure as a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    failed = False
    for figure in figures(parser.parse_args(arguments).rows):
        print(figure.line(), flush=True)
        failed |= not figure.passed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
