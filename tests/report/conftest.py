"""Small but genuine results: random networks and points, real accuracies, moments and tests."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_wine

import momentalign as ma
from momentalign.paper.tables import DIGITS
from momentalign.workflow.model import TableModel

HIDDEN, CLASSES, ROWS, ORDERS = 15, 3, 639, 5
DIGIT_METHODS = {"cnn": "CNN", "coral": "CORAL", "cmd": "CMD", "cv-cmd": "CV-CMD"}


def network(rng: np.random.Generator, scale: float, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Draw the hidden layer and fit the output layer by least squares."""
    weights = {"W": (scale * rng.standard_normal((2, HIDDEN))).tolist(), "b": rng.standard_normal(HIDDEN).tolist()}
    inputs = np.column_stack([hidden(weights, x), np.ones(len(x))])
    solution = np.linalg.lstsq(inputs, np.eye(CLASSES)[y], rcond=None)[0]
    return {**weights, "V": solution[:-1].tolist(), "c": solution[-1].tolist()}


def hidden(weights: dict[str, Any], x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(x @ np.array(weights["W"]) + np.array(weights["b"]))))


def accuracy(weights: dict[str, Any], x: np.ndarray, y: np.ndarray) -> float:
    return float(((hidden(weights, x) @ np.array(weights["V"]) + np.array(weights["c"])).argmax(1) == y).mean())


def terms(source: np.ndarray, target: np.ndarray) -> list[float]:
    differences = [source.mean(0) - target.mean(0)]
    for order in range(2, ORDERS + 1):
        moments = [((sample - sample.mean(0)) ** order).mean(0) for sample in (source, target)]
        differences.append(moments[0] - moments[1])
    return [float(np.linalg.norm(difference)) for difference in differences]


def details(weights: dict[str, Any], source: np.ndarray, target: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    samples = hidden(weights, source), hidden(weights, target)
    tests = [stats.ks_2samp(samples[0][:, unit], samples[1][:, unit]) for unit in range(HIDDEN)]
    return {
        "weights": weights,
        "accuracy_source": accuracy(weights, source, y),
        "accuracy_target": accuracy(weights, target, y),
        "cmd_terms": terms(*samples),
        "ks_statistic": [float(test.statistic) for test in tests],
        "ks_pvalue": [float(test.pvalue) for test in tests],
    }


def run(seed: int, nn: dict[str, Any], mann: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"seed": seed}
    for name, shown in (("nn", nn), ("mann", mann)):
        entry[f"{name}_accuracy"] = shown["accuracy_target"]
        entry[f"{name}_units_different"] = sum(p < 0.01 for p in shown["ks_pvalue"])
        entry[f"{name}_cmd"] = sum(shown["cmd_terms"])
    return entry


def history(weights: dict[str, Any], source: np.ndarray, target: np.ndarray, y: np.ndarray, epochs: list[int]) -> Any:
    """Follow a network whose weights grow from zero to their final size over the epochs."""
    columns: dict[str, list[float]] = {"epoch": [float(epoch) for epoch in epochs]}
    for share in np.linspace(0.1, 1, len(epochs)):
        grown = {name: (share * np.array(values)).tolist() for name, values in weights.items()}
        columns.setdefault("source_loss", []).append(1.0 - accuracy(grown, source, y))
        columns.setdefault("distance", []).append(sum(terms(hidden(grown, source), hidden(grown, target))))
        columns.setdefault("source_accuracy", []).append(accuracy(grown, source, y))
        columns.setdefault("target_accuracy", []).append(accuracy(grown, target, y))
    return columns


@functools.cache
def make_artificial() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    y = rng.integers(0, CLASSES, ROWS)
    source = rng.standard_normal((ROWS, 2)) * 0.2 + np.array([[0, 0.5], [0.2, -0.6], [0.9, 0.3]])[y]
    target = source @ np.array([[0.9, 0.3], [-0.3, 0.9]]) + 0.1
    pairs = [[details(network(rng, scale, source, y), source, target, y) for scale in (3.0, 1.0)] for _ in range(5)]
    runs = [run(seed, *pair) for seed, pair in enumerate(pairs)]
    nn, mann = pairs[3]
    return {
        "kind": "artificial",
        "data": "generated",
        "data_seed": 0,
        "setting": {
            "name": "paper", "description": "A short description.", "hidden": HIDDEN, "optimizer": "adadelta",
            "plain_epochs": 10000, "aligned_epochs": 5000, "weight": 1.0, "n_moments": ORDERS,
        },
        "source": {"x": source.tolist(), "y": y.tolist()},
        "target": {"x": target.tolist(), "y": y.tolist()},
        "runs": runs,
        "median": {name: float(np.median([r[name] for r in runs])) for name in ("nn_accuracy", "mann_accuracy")},
        "shown": {
            "seed": 3, "nn": nn, "mann": mann,
            "history": {
                "nn": history(nn["weights"], source, target, y, list(range(1, 15001, 500))),
                "mann": history(mann["weights"], source, target, y, list(range(10001, 15001, 500))),
            },
        },
        "paper": {"nn_accuracy": 0.867, "mann_accuracy": 0.997, "nn_units_different": 13, "mann_units_different": 5},
        "seconds": 31.2,
        "versions": {"momentalign": "0.1.0", "numpy": np.__version__},
    }  # fmt: skip


@functools.cache
def make_overpenalization() -> dict[str, Any]:
    laws = {
        "source": stats.beta(0.4, 0.4, 0.1, 0.8),
        "left": stats.norm(0.5, 0.27),
        "right": stats.beta(0.4, 0.4, 0.12, 0.8),
    }
    x = np.linspace(-0.2, 1.2, 281)
    densities = {name: [float(v) if np.isfinite(v) else None for v in law.pdf(x)] for name, law in laws.items()}

    def distance(side: str, order: int, *, central: bool) -> float:
        values = [law.var() if central else law.moment(order) for law in (laws["source"], laws[side])]
        return float(abs(values[0] - values[1]))

    rows = []
    for metric, order, central in (("d_P1", 1, False), ("d_P2", 2, False), ("d_P4", 4, False), ("variance", 2, True)):
        left, right = (distance(side, order, central=central) for side in ("left", "right"))
        prefers = "left" if left < right else "right"
        rows.append(
            {"metric": metric, "left": left, "right": right, "paper": "left < 0.02 < right", "prefers": prefers}
        )
    densities = {"x": x.tolist(), **densities}
    return {"kind": "overpenalization", "rows": rows, "densities": densities, "versions": {"momentalign": "0.1.0"}}


def digit_samples(random: np.random.Generator, shown: int = 24, placed: int = 40) -> dict[str, Any]:
    """Images of noise: nothing takes more room."""
    labels = random.integers(0, 10, (2, shown)).tolist()
    images = [[random.bytes(3072).hex() for _ in range(shown)] for _ in range(2)]
    return {
        "source_images": images[0],
        "source_labels": labels[0],
        "target_images": images[1],
        "target_labels": labels[1],
        "placed_labels": random.integers(0, 10, (2, placed)).tolist(),
    }


def digit_column(random: np.random.Generator, title: str, level: float, samples: dict[str, Any]) -> dict[str, Any]:
    """One method at a level of accuracy; of the shown images it reads the first ones right."""
    closely = {}
    for task, own in samples.items():
        labels, classes = np.array(own["target_labels"]), len(own["placed_labels"][0])
        right = np.arange(len(labels)) < level * len(labels)
        closely[task] = {
            "confusion": (70 * np.eye(10, dtype=int) + random.integers(0, 5, (10, 10))).tolist(),
            "orders": (random.random((6, 5)) / np.arange(1, 6)).round(6).tolist(),
            "predictions": np.where(right, labels, (labels + 1) % 10).tolist(),
            "chances": random.random(len(labels)).round(3).tolist(),
            "places": random.normal(size=(2 * classes, 2)).round(2).tolist(),
        }
    return {
        "title": title,
        "settings": {} if title == "CNN" else {"discrepancy": title.lower(), "weight": 1.0, "schedule": "constant"},
        "accuracy": {task: [level - 0.01, level + 0.01] for task in samples},
        "source_accuracy": {task: [0.9, 0.92] for task in samples},
        "scores": {task: [{"nuclear_norm": 0.5, "mutual_information": 1.5}] * 2 for task in samples},
        "seconds": {task: [10.0, 12.0] for task in samples},
        "closely": closely,
    }


def make_digits(*methods: str, tasks: tuple[str, ...] = DIGITS.tasks, **sizes: int) -> dict[str, Any]:
    random = np.random.default_rng(5)
    samples = {task: digit_samples(random, **sizes) for task in tasks}
    levels = np.linspace(0.5, 0.8, len(methods)).round(2).tolist()
    return {
        "kind": "digits",
        "recipe": {"steps": 4, "balanced": True, "augmentation": {"rotation": 10.0, "blur": 0.0}},
        "versions": {"momentalign": "0.1.0"},
        "device": "cpu",
        "seeds": [3, 4],
        "tasks": list(tasks),
        "methods": {
            name: digit_column(random, DIGIT_METHODS[name], level, samples)
            for name, level in zip(methods, levels, strict=True)
        },
        "samples": samples,
        "note": "SynthDigits is a stand-in.",
    }


@pytest.fixture
def artificial_result() -> dict[str, Any]:
    return copy.deepcopy(make_artificial())


@pytest.fixture
def overpenalization_result() -> dict[str, Any]:
    return copy.deepcopy(make_overpenalization())


@pytest.fixture
def digits_result() -> Callable[..., dict[str, Any]]:
    """Make a result of the experiment on digits: ``digits_result(*methods, tasks=..., shown=..., placed=...)``."""
    return make_digits


@pytest.fixture(scope="session")
def wines() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Half of the wines, and the others as instruments that read differently see them."""
    frame, codes = load_wine(return_X_y=True, as_frame=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(frame))
    frame["grape"] = np.array(["barolo", "grignolino", "barbera"])[codes.to_numpy()]
    numbers = frame.columns[:13]
    shifted = frame.copy()
    shifted[numbers] *= random.uniform(0.8, 1.25, 13)
    shifted[numbers] += frame[numbers].std() * random.normal(0, 0.7, 13)
    return frame.iloc[order[:89]], shifted.iloc[order[89:]]


@pytest.fixture(scope="session")
def portfolio_of_wines(wines: tuple[pd.DataFrame, pd.DataFrame]) -> TableModel:
    return ma.fit(*wines, label="grape", target_label="grape")
