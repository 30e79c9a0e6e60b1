from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.tables.table import Table
from momentalign.workflow import summary
from momentalign.workflow.summary import known_labels, verdict

ROWS = np.zeros((4, 1), np.float32)


def found(**changes: Any) -> dict[str, Any]:
    shares = [{"class": "a", "target": 0.5}, {"class": "b", "target": 0.5}]
    whole = {"task": "classification", "decision": "Adapted.", "source_score": 0.9, "estimate": None, "shares": shares}
    return whole | {"evaluation": None} | changes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Adapted. On held-out source rows the accuracy is 90.0 %."),
        ({"source_score": None}, "Adapted."),
        ({"evaluation": {"accuracy": 0.8}}, "On the labelled target rows the accuracy is 80.0 %."),
        ({"estimate": {"value": 0.8, "low": 0.7, "high": 0.9}}, "is 80.0 % (90 % interval: 70.0 % to 90.0 %)."),
        ({"shares": [{"class": "a", "target": 1.0}, {"class": "b", "target": 0.0}]}, "'a' for every target row; check"),
        ({"task": "regression", "source_score": 0.5}, "On held-out source rows the R² is 0.50."),
        ({"task": "regression", "evaluation": {"r2": None}}, "On the labelled target rows the R² is not defined."),
    ],
)
def test_the_sentences_follow_the_numbers(changes: dict[str, Any], sentence: str):
    assert sentence in verdict(found(**changes))


def evaluation(labels: list[Any], predicted: list[Any], classes: list[Any]) -> dict[str, Any]:
    truth = known_labels(Table(ROWS, np.array(labels)), "y", regression=False)
    estimator = SimpleNamespace(classes_=np.array(classes))
    return summary._evaluation(truth, np.array(predicted), estimator, regression=False)


def test_whole_numbers_are_the_same_class_as_floats():
    compared = evaluation([1.0, 2.0, np.nan, 2.0], [1, 2, 1, 1], [1, 2])
    assert compared["accuracy"] == pytest.approx(2 / 3)
    assert compared["confusion"] == [[1, 0], [1, 1]]


def test_classes_that_the_source_lacks_have_a_row_of_their_own():
    compared = evaluation(["a", "b", "z", "y"], ["a", "a", "b", "b"], ["a", "b"])
    assert compared["confusion"] == [[1, 0], [1, 0], [0, 2]]
    assert (compared["unseen"], compared["accuracy"]) == (["y", "z"], 0.25)


def test_some_labels_of_the_target_are_enough():
    labels = np.array(["1.5", None, "3", np.nan], dtype=object)
    truth = known_labels(Table(ROWS, labels), "price", regression=True)
    assert (truth.rows.tolist(), truth.values.tolist()) == ([0, 2], [1.5, 3.0])


def test_constant_labels_of_the_target_have_no_explained_variance(readings: tuple[pd.DataFrame, pd.DataFrame]):
    target = readings[1].assign(price=7.0)
    options: dict[str, Any] = {"label": "price", "target_label": "price", "id_column": "id", "regression": True}
    model = ma.fit(readings[0], target, max_epochs=5, device="cpu", **options)
    assert model.summary["evaluation"]["r2"] is None


def test_units_are_shown_by_rows_of_all_the_file(monkeypatch: pytest.MonkeyPatch):
    hidden = np.random.default_rng(0).random((2, 300, 3))
    drawn = []
    for dots in (300, 40):
        monkeypatch.setattr(summary, "_DOTS", dots)
        drawn.append(summary._units(*hidden)[0]["source"])
    whole, some = drawn
    assert len(some) == 40
    assert some != whole[:40]
    assert set(some) <= set(whole)
