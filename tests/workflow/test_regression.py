"""Labels that are numbers: two readings of one quantity, the second of which is moved in the target."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import InvalidInputError, MomentAlignError
from momentalign.estimators.regressor import MANNRegressor
from momentalign.report.fit import fit_page
from momentalign.tables.table import Table
from momentalign.workflow import fit as fitting
from momentalign.workflow.fit import FitResult, fit_files, fit_tables
from momentalign.workflow.model import load_model, save_model
from momentalign.workflow.predict import predict_file
from momentalign.workflow.regression import explained, read_true_values
from momentalign.workflow.summary import verdict_of_values

QUICK = {"max_epochs": 20, "device": "cpu", "regression": True}
Tables = tuple[Table, Table]


def readings(rows: int, *, shift: float, seed: int) -> pd.DataFrame:
    """The columns ``id``, ``first``, ``second`` and ``price``."""
    random = np.random.default_rng(seed)
    value = random.normal(size=rows)
    first, second = (value + random.normal(scale=0.3, size=rows) for _ in range(2))
    names = [f"r{row:03d}" for row in range(rows)]
    return pd.DataFrame({"id": names, "first": first, "second": second + shift, "price": 100 + 20 * value})


@pytest.fixture(scope="module")
def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    return readings(300, shift=0.0, seed=0), readings(240, shift=2.0, seed=1)


@pytest.fixture(scope="module")
def tables(frames: tuple[pd.DataFrame, pd.DataFrame]) -> Tables:
    return tuple(
        Table(frame[["first", "second"]], frame["price"].to_numpy(), frame["id"].to_numpy()) for frame in frames
    )


@pytest.fixture(scope="module")
def fitted(tables: Tables) -> FitResult:
    """A model with default settings, evaluated with the labels of the target."""
    return fit_tables(*tables, label="price", target_label="price", id_column="id", regression=True, device="cpu")


@pytest.fixture
def files(frames: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path) -> tuple[Path, Path]:
    for frame, name in zip(frames, ("source.csv", "target.csv"), strict=True):
        frame.to_csv(tmp_path / name, index=False)
    return tmp_path / "source.csv", tmp_path / "target.csv"


def test_alignment_helps_where_a_reading_moved(fitted: FitResult, tables: Tables):
    rows = {row["name"]: row for row in fitted.summary["rows"]}
    plain, model = rows["plain network"], rows["cmd, weight 1, chosen"]
    assert plain["target_r2"] < 0.7
    assert model["target_r2"] > plain["target_r2"] + 0.2
    assert model["source_r2"] > 0.85
    assert model["distance_after"] < 0.5 * model["distance_before"]
    assert [row["weight"] for row in fitted.summary["rows"]] == [0.0, 0.5, 1.0, 2.0, 4.0, None]
    assert all(row["score"] is None for row in fitted.summary["rows"])
    predicted = fitted.model.estimator.predict(fitted.model.preprocessor.transform(tables[1]))
    assert fitted.summary["evaluation"]["r2"] == pytest.approx(explained(tables[1].labels, predicted))
    assert fitted.summary["evaluation"]["error"] == pytest.approx(np.sqrt(np.mean((tables[1].labels - predicted) ** 2)))


def test_the_summary_says_how_the_weight_came_about(fitted: FitResult):
    summary = json.loads(json.dumps(fitted.summary, allow_nan=False))
    assert summary["task"] == "regression"
    assert "The weight is 1, the paper's default: numbers have no label-free score" in summary["verdict"]
    values = summary["values"]
    assert abs(values["target"]["mean"] - 100) < abs(values["plain"]["mean"] - 100)
    words = rf"mean of {values['target']['mean']:.4g}, without alignment {values['plain']['mean']:.4g}, the source's"
    assert words in summary["verdict"]
    assert "if those of the target really are larger, fit with method none" in summary["verdict"]


def test_labels_of_the_target_change_nothing_but_the_evaluation(tables: Tables):
    source, target = tables
    wrong = replace(target, labels=-target.labels)
    ours = fit_tables(source, wrong, target_label="price", **QUICK)
    theirs = fit_tables(source, replace(target, labels=None), **QUICK)
    for one, other in zip(ours.model.estimator.coefs_, theirs.model.estimator.coefs_, strict=True):
        np.testing.assert_array_equal(one, other)
    assert theirs.summary["evaluation"] is None
    assert all(row["target_r2"] is None for row in theirs.summary["rows"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_become_a_folder_and_that_predictions(files: tuple[Path, Path], tmp_path: Path, suffix: str):
    result = fit_files(*files, label="price", id_column="id", out=tmp_path / "model", **QUICK)
    assert isinstance(load_model(tmp_path / "model").estimator, MANNRegressor)
    out = tmp_path / f"p{suffix}"
    summary = predict_file(tmp_path / "model", files[1], out=out, chunk_rows=50)
    found = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out)
    target = pd.read_csv(files[1])
    assert list(found.columns) == ["id", "prediction"]
    assert found["id"].tolist() == target["id"].tolist()
    expected = result.model.estimator.predict(result.model.preprocessor.transform(target[["first", "second"]]))
    np.testing.assert_allclose(found["prediction"], expected, rtol=1e-12)
    assert not summary.drift.found
    assert (summary.rows, summary.classes) == (240, {})
    assert summary.values == pytest.approx(
        {"mean": expected.mean(), "smallest": expected.min(), "largest": expected.max()}
    )
    assert summary.to_dict()["values"] == summary.values
    json.dumps(summary.to_dict(), allow_nan=False)
    estimator = ma.load(tmp_path / "model")
    assert (estimator.weight, estimator.discrepancy, estimator.max_epochs) == (1.0, "cmd", 20)


def test_probabilities_of_numbers_are_refused(fitted: FitResult, files: tuple[Path, Path], tmp_path: Path):
    save_model(fitted.model, tmp_path / "model")
    with pytest.raises(InvalidInputError, match=r"predicts numbers \('price'\), which have no probabilities; leave"):
        predict_file(tmp_path / "model", files[1], out=tmp_path / "p.csv", proba=True)
    assert not (tmp_path / "p.csv").exists()


def test_of_several_seeds_the_one_with_the_lowest_held_out_loss_predicts(tables: Tables):
    result = fit_tables(*tables, seeds=3, **QUICK)
    rows = {row["name"]: row for row in result.summary["rows"]}
    assert rows["cmd, weight 1"]["networks"] == 3
    assert rows["cmd, weight 1, chosen"]["source_r2"] > rows["cmd, weight 1"]["source_r2"]


def test_the_plain_network_alone(tables: Tables):
    result = fit_tables(*tables, method="none", target_label="price", **QUICK)
    assert [row["name"] for row in result.summary["rows"]] == ["plain network", "the only network"]
    assert result.model.estimator.discrepancy is None
    assert "they were not aligned" in result.summary["verdict"]
    assert "weight" not in result.summary["verdict"]
    assert "label-free score" not in fit_page(result.summary)


@pytest.mark.parametrize(
    ("finished", "name"),
    [([2.0], "the only network"), ([0.5, 4.0], "cmd, weight 0.5, chosen"), ([0.0, 4.0], "cmd, weight 4, chosen")],
)
def test_an_interrupt_leaves_the_network_nearest_to_the_paper(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, finished: list[float], name: str
):
    real = fitting.train_points

    def cut(points, *rest, **options):
        return real([point for point in points if point.weight in finished], *rest, **options)[0], True

    monkeypatch.setattr(fitting, "train_points", cut)
    result = fit_tables(*tables, **QUICK)
    assert result.interrupted
    assert result.summary["rows"][-1]["name"] == name
    assert "Training was interrupted" in result.summary["verdict"]
    assert "paper's default" not in result.summary["verdict"]


def test_sparse_rows_are_learned_too(tables: Tables):
    ours, theirs = (replace(one, rows=sparse.csr_matrix(one.rows.to_numpy(np.float32)), ids=None) for one in tables)
    summary = fit_tables(ours, theirs, target_label="price", **QUICK).summary
    assert summary["settings"]["optimizer"] == "adagrad"


def rows_of(page: str, caption: str) -> list[list[str]]:
    (table,) = re.findall(rf"<caption>{caption}</caption>(.*?)</table>", page, re.S)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.S)
    return [re.findall(r"<t[hd][^>]*>(?:<button[^>]*>)?(.*?)(?:</button>)?</t[hd]>", row, re.S) for row in rows]


def test_the_page_shows_explained_variance_and_values(fitted: FitResult):
    page = fit_page(fitted.summary)
    head, *rows = rows_of(page, "Every network")
    assert head == ["Method", "Source validation R²", "Distance before", "Distance after", "Target R²"]
    last = fitted.summary["rows"][-1]
    assert rows[-1][:2] == ["cmd, weight 1, chosen", f"{last['source_r2']:.3f}"]
    assert rows[-1][-1] == f"{last['target_r2']:.3f}"
    assert [row[0] for row in rows_of(page, "Values")[1:]] == [
        "source",
        "target, predicted",
        "target, by the plain network",
    ]
    assert "Numbers have no label-free score here" in page
    assert "Predicted classes" not in page
    assert "softmax" not in page


def test_the_page_without_labels_of_the_target(tables: Tables):
    page = fit_page(fit_tables(*tables, method="none", **QUICK).summary)
    assert "Target R²" not in page
    assert [row[0] for row in rows_of(page, "Values")[1:]] == ["source", "target, predicted"]


def test_constant_labels_of_the_target_have_no_explained_variance(tables: Tables):
    target = replace(tables[1], labels=np.full(240, 7.0))
    summary = fit_tables(tables[0], target, target_label="price", **QUICK).summary
    assert summary["evaluation"]["r2"] is None
    assert "On the target R² is not defined" in summary["verdict"]
    assert "R² is \N{EN DASH} over 240 rows" in fit_page(summary)


def test_some_labels_of_the_target_are_enough():
    labels = np.array(["1.5", None, "3", np.nan], dtype=object)
    truth = read_true_values(Table(np.zeros((4, 1), np.float32), labels), "price")
    assert (truth.known.tolist(), truth.values.tolist()) == ([0, 2], [1.5, 3.0])
    assert truth.explained(np.array([1.5, 99.0, 2.0, 99.0])) == pytest.approx(1 - 1 / 1.125)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, "the target has no labels 'price'; leave target_label out"),
        ([None, np.nan], "target_label='price' is empty in every row; leave it out"),
        (["1", "dear"], "target_label='price', row 2 holds 'dear', which is not a number; correct it"),
        ([1.0, np.inf], "target_label='price', row 2 holds inf"),
    ],
)
def test_labels_of_the_target_that_cannot_be_compared(labels: list[Any] | None, words: str):
    found = None if labels is None else np.array(labels, dtype=object)
    with pytest.raises(InvalidInputError, match=words):
        read_true_values(Table(np.zeros((2, 1), np.float32), found), "price")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, "the source has no labels; name their column"),
        (["1", "2", "3", "4"], "label 'label' holds '1', a regressor learns numbers"),
        ([1.0, 2.0, np.nan, 4.0], "label 'label' of the source, row 3 holds nan; give a finite number"),
        ([1.0, 2.0, 3.0], "the source has 3 rows, too few to hold out some; give at least 4"),
    ],
)
def test_labels_that_cannot_be_learned(labels: list[Any] | None, words: str):
    found = None if labels is None else np.array(labels)
    rows = pd.DataFrame({"a": np.arange(4.0 if labels is None else len(labels))})
    with pytest.raises(MomentAlignError, match=words):
        fit_tables(Table(rows, found), Table(rows), **QUICK)


def test_words_in_a_file_are_no_numbers(files: tuple[Path, Path], tmp_path: Path):
    with pytest.raises(
        InvalidInputError, match=r"label column 'id', row 1 holds 'r000', which is not a number"
    ) as caught:
        fit_files(*files, label="id", out=tmp_path / "model", **QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_four_rows_are_enough():
    rows = pd.DataFrame({"a": np.arange(4.0)})
    result = fit_tables(Table(rows, np.arange(4.0)), Table(rows), **QUICK)
    assert result.summary["source_rows"] == 4


def test_what_alignment_costs_is_said():
    def row(weight: float | None, source: float) -> dict[str, Any]:
        return {"weight": weight, "source_r2": source, "target_r2": None}

    mean = {"mean": 1.0, "deviation": 1.0}
    summary = {
        "rows": [row(0.0, 0.9), row(1.0, 0.6), row(None, 0.6)],
        "distance": {"before": [1.0], "after": [0.2], "by_chance": 0.1},
        "values": {"source": mean, "target": mean, "plain": mean},
        "evaluation": None,
        "interrupted": False,
    }
    words = verdict_of_values(summary, weight=1.0)
    assert words.endswith("0.60 on held-out source rows, 0.90 without alignment, which costs something here.")
    smaller = summary | {"values": {"source": mean, "target": mean, "plain": {"mean": 0.5}}}
    assert "if those of the target really are smaller" in verdict_of_values(smaller, weight=1.0)
