"""``ma.fit``: the same from frames, files, and preprocessing and estimator by hand; what it says and refuses."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file, load_breast_cancer

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignError, MomentAlignWarning
from momentalign.report.sentences import verdict
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.table import Table
from momentalign.workflow import summary as summaries
from momentalign.workflow.comparison import compare, known_labels
from momentalign.workflow.model import TableModel
from momentalign.workflow.risk import Answers

fitting = importlib.import_module("momentalign.workflow.fit")

Frames = tuple[pd.DataFrame, pd.DataFrame]
QUICK: dict[str, Any] = {"max_epochs": 20, "device": "cpu"}
PRICES: dict[str, Any] = {"label": "price", "id_column": "id", "regression": True}
WINES: dict[str, Any] = {"label": "grape", "id_column": "bottle"}
# Options, and the estimator that they stand for.
MODELS = {
    "auto": ({}, lambda: ma.AutoClassifier(random_state=0)),
    "cmd": (
        QUICK,
        lambda: ma.MANNClassifier(weight="auto", optimizer="adam", learning_rate=0.003, random_state=0, **QUICK),
    ),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("method", MODELS)
def test_frames_files_and_the_estimator_by_hand_give_the_same_bits(
    files: tuple[Path, Path], cellars: Frames, method: str
):
    source, target = cellars
    options, estimator = MODELS[method]
    features = source.drop(columns=["bottle", "grape"])
    preprocessor = Preprocessor(scale=method != "auto").fit(features, X_target=target[features.columns])
    estimator = estimator().fit(preprocessor.transform(features), source["grape"], preprocessor.transform(target))
    by_hand = estimator.predict_proba(preprocessor.transform(target))
    for tables in ((source, target.drop(columns="grape")), files, map(pa.Table.from_pandas, cellars)):
        model = ma.fit(*tables, **WINES, **options)
        np.testing.assert_array_equal(model.predict_proba(target), by_hand)
        np.testing.assert_array_equal(model.predict_proba(files[1]), by_hand)
        np.testing.assert_array_equal(model.predict(target), estimator.predict(preprocessor.transform(target)))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("method", ["auto", "cmd"])
def test_regression_is_the_regressor_by_hand(readings: Frames, method: str):
    source, target = readings
    model = ma.fit(source, target, **PRICES, **(QUICK if method == "cmd" else {}))
    features = ["first", "second"]
    preprocessor = Preprocessor(scale=method != "auto").fit(source[features], X_target=target[features])
    by_hand = ma.AutoRegressor(random_state=0)
    if method == "cmd":
        by_hand = ma.MANNRegressor(optimizer="adam", learning_rate=0.003, random_state=0, **QUICK)
    by_hand.fit(preprocessor.transform(source), source["price"], preprocessor.transform(target))
    np.testing.assert_array_equal(model.predict(target), by_hand.predict(preprocessor.transform(target)))
    with pytest.raises(InvalidInputError, match="predicts numbers"):
        model.predict_proba(target)


def test_the_default_helps_on_the_other_cellar(fitted: TableModel, cellars: Frames):
    plain = ma.fit(*cellars, **WINES, method="none", device="cpu")
    accuracy = (plain.predict(cellars[1]) == cellars[1]["grape"]).mean()
    assert fitted.summary["evaluation"]["accuracy"] > accuracy + 0.08
    assert fitted.summary["decision"] == fitted.estimator.decision_


def test_alignment_helps_where_a_reading_moved(regressor: TableModel, readings: Frames):
    plain = ma.fit(*readings, **PRICES, method="none", device="cpu")
    error = np.mean((plain.predict(readings[1]) - readings[1]["price"]) ** 2)
    assert 1 - error / readings[1]["price"].var(ddof=0) < 0.7
    assert regressor.summary["evaluation"]["r2"] > 0.8
    assert regressor.summary["source_score"] > 0.85


def test_the_default_does_no_harm_where_alignment_would():
    """Of tumours with low texture 16 % are malignant, of the others 58 %: moments differ for a good reason."""
    frame = load_breast_cancer(as_frame=True).frame
    low = frame["mean texture"] < frame["mean texture"].median()
    for method in ("auto", "cmd"):
        model = ma.fit(frame[low], frame[~low], label="target", target_label="target", method=method, device="cpu")
        assert model.summary["evaluation"]["accuracy"] > 0.9
    assert model.summary["decision"].startswith("Not adapted")


def test_numbers_far_from_zero_keep_what_differs(fitted: TableModel, cellars: Frames):
    """As seconds since 1970 do: float32 would round them to steps of two minutes."""
    moved = [frame.assign(**{name: frame[name] + 1e9 for name in frame.columns[1:-1]}) for frame in cellars]
    near, far = fitted, ma.fit(*moved, **WINES, target_label="grape")
    scores = [model.summary["evaluation"]["accuracy"] for model in (near, far)]
    assert scores[1] == pytest.approx(scores[0], abs=0.03)


def test_the_summary_is_plain_json_and_begins_with_the_decision(fitted: TableModel):
    summary = json.loads(json.dumps(fitted.summary, allow_nan=False))
    assert next(iter(summary)) == "decision"
    assert summary["verdict"].startswith(summary["decision"])
    assert sum(candidate["weight"] for candidate in summary["portfolio"]) == pytest.approx(1.0)
    assert sum(share["target"] for share in summary["shares"]) == pytest.approx(1.0)
    shifts = [abs(one["mean_shift"]) for one in summary["shifted"]]
    assert shifts == sorted(shifts, reverse=True)
    assert np.sum(summary["evaluation"]["confusion"]) == summary["evaluation"]["rows"] == 89
    accuracy = f"{100 * summary['evaluation']['accuracy']:.1f} %"
    assert f"On the labelled target rows the accuracy is {accuracy}." in summary["verdict"]
    assert (summary["distance"], summary["units"]) == (None, [])


def test_labels_of_the_target_change_nothing_but_the_evaluation(aligned: TableModel, cellars: Frames):
    source, target = cellars
    wrong = target.assign(grape=np.roll(target["grape"], 1))
    with_labels = ma.fit(source, wrong, target_label="grape", **WINES, **QUICK)
    np.testing.assert_array_equal(with_labels.predict_proba(target), aligned.predict_proba(target))
    assert aligned.summary["evaluation"] is None
    for name in ("distance", "shares", "shifted", "units"):
        assert with_labels.summary[name] == aligned.summary[name]
    assert "give target_label='grape' (--target-label)" in aligned.summary["notes"][-1]


def test_a_label_column_of_the_target_is_set_apart(cellars: Frames):
    source, target = cellars
    target = target.assign(truth=target["grape"], grape="?")
    model = ma.fit(source, target, target_label="truth", **WINES, **QUICK)
    assert model.summary["evaluation"]["label"] == "truth"
    assert model.summary["features"] == 13
    with pytest.warns(MomentAlignWarning, match="the source lacks 'truth'"):
        model = ma.fit(source, target, **WINES, **QUICK)
    assert (model.summary["evaluation"], model.summary["features"]) == (None, 13)


def test_a_label_is_found_in_another_case_where_only_that_is_there(files: tuple[Path, Path], cellars: Frames):
    for tables in (files, cellars):
        model = ma.fit(*tables, label="Grape", id_column="bottle", **QUICK)
        assert (model.label, model.summary["features"]) == ("grape", 13)
    twice = cellars[0].assign(GRAPE=0)
    with pytest.raises(InvalidInputError, match="no label column 'Grape'"):
        ma.fit(twice, cellars[1], label="Grape", **QUICK)
    target = cellars[1].rename(columns={"grape": "GRAPE"})
    model = ma.fit(cellars[0], target, target_label="Grape", **WINES, **QUICK)
    assert (model.summary["evaluation"]["rows"], model.summary["features"]) == (89, 13)
    model = ma.fit(cellars[0], target, **WINES, **QUICK)
    assert "give target_label='GRAPE' (--target-label)" in model.summary["notes"][-1]
    # A feature that is called like the label stays one.
    source, target = (frame.rename(columns={"hue": "Label", "grape": "label"}) for frame in cellars)
    model = ma.fit(source, target.drop(columns="label"), label="label", id_column="bottle", **QUICK)
    assert "Label" in model.preprocessor.columns_


def test_rows_without_a_label_are_left_out_and_counted(files: tuple[Path, Path], cellars: Frames):
    source = cellars[0].assign(grape=cellars[0]["grape"].where(cellars[0].index % 9 > 0))
    source.to_csv(files[0], index=False)
    expected = ma.fit(source[source["grape"].notna()], cellars[1], **WINES, **QUICK).predict_proba(cellars[1])
    for tables in ((source, cellars[1]), files):
        with pytest.warns(MomentAlignWarning, match="10 of 89 rows have no label in column 'grape' and are left out"):
            model = ma.fit(*tables, **WINES, **QUICK)
        assert (model.summary["source_rows"], len(model.summary["notes"]) > 0) == (79, True)
        np.testing.assert_array_equal(model.predict_proba(cellars[1]), expected)
        with pytest.raises(InvalidInputError, match=r"'grape' is empty in 10 rows \(1, 10, 19, 28, 37, \.\.\.\)"):
            ma.fit(*tables, strict=True, **WINES, **QUICK)


def test_whole_numbers_with_a_gap_stay_whole(tmp_path: Path):
    (tmp_path / "s.csv").write_text("a,y\n" + "1,0\n2,1\n" * 8 + "3,\n")
    with pytest.warns(MomentAlignWarning, match="1 of 17 rows"):
        model = ma.fit(tmp_path / "s.csv", tmp_path / "s.csv", label="y", **QUICK)
    assert model.estimator.classes_.tolist() == [0, 1]


@pytest.mark.usefixtures("quick")
def test_the_same_files_give_the_same_folder(files: tuple[Path, Path], tmp_path: Path):
    for name in ("one", "two"):
        ma.fit(*files, **WINES).save(tmp_path / name)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_of_several_seeds_the_one_with_the_lowest_held_out_loss_is_kept(readings: Frames):
    best = ma.fit(*readings, seeds=3, **PRICES, **QUICK)
    X, X_target = (best.preprocessor.transform(frame) for frame in readings)
    by_hand = [clone(best.estimator).set_params(random_state=seed) for seed in range(3)]
    losses = [min(one.fit(X, readings[0]["price"], X_target).history_["validation_loss"]) for one in by_hand]
    assert best.estimator.random_state == np.argmin(losses)


@pytest.mark.parametrize("method", ["cv-cmd", "mmd", "coral", "dann", "none"])
def test_every_method_trains(cellars: Frames, method: str):
    model = ma.fit(*cellars, **WINES, method=method, max_epochs=3, device="cpu")
    assert model.estimator.discrepancy == (None if method == "none" else method)
    assert model.summary["decision"].startswith("Not adapted") == (method == "none")


@pytest.mark.parametrize("change", [{"method": "coral"}, {"max_epochs": 10}, {"weight": 0.5}, {"id_column": None}])
@pytest.mark.filterwarnings("ignore:column 'bottle' has a different value in every row")
def test_every_option_changes_the_fit(aligned: TableModel, cellars: Frames, change: dict[str, Any]):
    """Or is refused, see below; `seeds` has a test of its own."""
    other = ma.fit(*cellars, **(WINES | QUICK | change))
    same = np.array_equal(aligned.predict_proba(cellars[1]), other.predict_proba(cellars[1]))
    assert not same or aligned.summary["notes"] != other.summary["notes"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("options", [{}, {"max_epochs": 2}])
def test_progress_is_shown_where_it_is_asked_for(cellars: Frames, capsys: pytest.CaptureFixture, options: dict):
    ma.fit(*cellars, verbose=1, **WINES, **options)
    assert ("MANNClassifier" if options else "portfolio") in capsys.readouterr().err


def test_a_large_source_holds_out_less_and_trains_for_fewer_epochs(monkeypatch: pytest.MonkeyPatch, cellars: Frames):
    monkeypatch.setattr(fitting, "_MOST_HELD_OUT", 9)
    monkeypatch.setattr(fitting, "_UPDATES", 100)
    model = ma.fit(*cellars, **WINES, method="none", device="cpu")
    assert model.estimator.max_epochs == 100
    assert model.estimator.validation_fraction == pytest.approx(9 / 89)


@pytest.mark.parametrize("options", [{}, QUICK])
def test_text_and_sparse_files(tmp_path: Path, options: dict[str, Any]):
    words = {"good": "fine warm kind", "bad": "cold rude slow"}
    labels = ["good", "bad"] * 30
    for name, extra in (("s", "book page"), ("t", "film actor")):
        reviews = [f"{words[label]} {extra} {row}" for row, label in enumerate(labels)]
        frame = pd.DataFrame({"review": reviews, "age": 1e6 + np.arange(60) % 7, "y": labels})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    tables = tmp_path / "s.csv", tmp_path / "t.csv"
    model = ma.fit(*tables, label="y", text="review", target_label="y", **options)
    assert model.summary["evaluation"]["accuracy"] > 0.9
    rows = sparse.random(40, 30, density=0.2, format="csr", random_state=0)
    dump_svmlight_file(rows, np.arange(40) % 2, str(tmp_path / "s.svm"), zero_based=True)
    model = ma.fit(tmp_path / "s.svm", tmp_path / "s.svm", label="label", **options)
    assert model.summary["features"] == 30


def test_another_process_makes_the_same_model_of_sparse_rows(tmp_path: Path):
    rows = sparse.random(90, 30, density=0.2, format="csr", random_state=0)
    dump_svmlight_file(rows, np.arange(90) % 2, str(tmp_path / "s.svm"), zero_based=True)
    here = ma.fit(tmp_path / "s.svm", tmp_path / "s.svm", label="label").predict_proba(tmp_path / "s.svm")
    code = """import momentalign as ma
model = ma.fit("s.svm", "s.svm", label="label")
print(model.predict_proba("s.svm").tobytes().hex())"""
    there = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert there.stdout.strip() == here.tobytes().hex()


def test_labels_of_a_frame_stay_what_they_are():
    frame = pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0) % 3})
    for labels, found in (
        (["1", "2"] * 4, ["1", "2"]),
        (pd.array([1, 2] * 4, dtype="Int64"), [1, 2]),
        (pd.Categorical(["x", "y"] * 4), ["x", "y"]),
        ([True, False] * 4, [False, True]),
    ):
        assert ma.fit(frame.assign(y=labels), frame, label="y", **QUICK).estimator.classes_.tolist() == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "colour"}, "the source has no label column 'colour'; its columns are 'bottle', 'alcohol'"),
        ({"label": "alcohol"}, r"'alcohol' holds fractions such as \d+.\d+, .*; give regression=True \(--regression\)"),
        ({"target_label": "vine"}, "the target has no label column 'vine'"),
        ({"threshold": "f2"}, "threshold must be a number between 0 and 1, 'f1' or 'cost:FP,FN', got 'f2'"),
        ({"threshold": 1.0}, "threshold must be a number between 0 and 1"),
        ({"threshold": "cost:1"}, "threshold must be a number between 0 and 1"),
        ({"threshold": "cost:1,-2"}, "threshold must be a number between 0 and 1"),
        ({"threshold": "f1"}, "threshold is for two classes, and 'grape' has 3"),
        ({"threshold": "f1", "method": "none"}, "chosen on held-out rows, which method='none' does not keep"),
        ({"threshold": 0.5, "label": "ash", "regression": True}, "threshold has no meaning for regression"),
        ({"class_weight": "balanced", "method": "none"}, "class_weight is not known to networks of method='none'"),
        ({"class_weight": "even"}, "class_weight must be 'balanced' or weights by class, got 'even'"),
        ({"sample_weight": "cork"}, "sample_weight='cork' is no column of the source; its columns are 'alcohol'"),
        ({"sample_weight": "bottle", "id_column": None}, "sample_weight='bottle' holds no numbers"),
        ({"sample_weight": "ash", "max_epochs": 3}, "sample_weight is not known to networks of method='cmd'"),
        ({"method": "magic"}, "method must be one of 'auto', 'cmd', 'cv-cmd', 'mmd', 'coral', 'dann', 'none', got"),
        ({"weight": -1.0}, "weight must be a finite number of at least 0"),
        ({"weight": 1.0, "method": "none"}, "weight=1.0 has no meaning for method='none'"),
        ({"seeds": 0}, "seeds must be at least 1 and at most 1000, got 0"),
        ({"seeds": 1001}, "seeds must be at least 1 and at most 1000, got 1001"),
        ({"max_epochs": 0}, "max_epochs must be at least 1, got 0"),
        ({"text": "story"}, "text='story' is no column of both domains"),
        ({"id_column": "cork"}, "no id column 'cork'"),
        ({"regression": True}, "row 1 holds '[a-z]+', which is not a number"),
    ],
)
def test_what_the_user_can_mend_is_said_in_one_line(cellars: Frames, change: dict, message: str):
    with pytest.raises(MomentAlignError, match=message) as caught:
        ma.fit(*cellars, **(WINES | change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda frame: frame.assign(grape="barolo"), "label column 'grape' holds 'barolo' in every row"),
        (lambda frame: frame.assign(grape=None), r"label column 'grape' is empty in 89 rows \(1, 2"),
        (lambda frame: frame[:0], "the source has no rows"),
        (lambda frame: frame.to_numpy(), "the source must be a path or a frame, got ndarray"),
        (lambda frame: pd.concat([frame, frame["ash"]], axis=1), "more than one column named 'ash'"),
    ],
)
def test_a_source_that_nothing_can_be_learned_from(cellars: Frames, source: Any, message: str):
    with pytest.raises((InvalidInputError, InvalidTypeError), match=message):
        ma.fit(source(cellars[0]), cellars[1], **WINES)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([None, np.nan], "target_label='price' is empty in every row; leave it out"),
        (["1", "dear"], "target_label='price', row 2 holds 'dear', which is not a number; correct it"),
        ([1.0, np.inf], "target_label='price', row 2 holds inf"),
    ],
)
def test_labels_of_the_target_that_cannot_be_compared(readings: Frames, labels: list[Any], message: str):
    target = readings[1][:2].assign(price=pd.Series(labels, dtype=object))
    with pytest.raises(InvalidInputError, match=message):
        ma.fit(readings[0], target, target_label="price", **PRICES)


def test_columns_of_one_domain_are_an_error_where_strict(cellars: Frames):
    target = cellars[1].drop(columns="hue")
    with pytest.raises(InvalidInputError, match="the target lacks 'hue'"):
        ma.fit(cellars[0], target, strict=True, **WINES)
    with pytest.warns(MomentAlignWarning, match="the target lacks 'hue'"):
        model = ma.fit(cellars[0], target, **WINES, **QUICK)
    assert any("hue" in note for note in model.summary["notes"])


def found(**changes: Any) -> dict[str, Any]:
    whole = {
        "task": "classification",
        "decision": "Adapted.",
        "threshold": None,
        "source_score": 0.9,
        "shares": shares(0.5),
    }
    return whole | {"shares_doubt": None, "estimate": None, "evaluation": None} | changes


def shares(predicted: float) -> list[dict[str, Any]]:
    """Of two classes, the first of which is estimated as 40 to 60 % of the target."""
    estimated = {"estimated": 0.5, "low": 0.4, "high": 0.6}
    return [{"class": "a", "target": predicted, **estimated}, {"class": "b", "target": 1.0 - predicted, **estimated}]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Adapted. On held-out source rows the accuracy is 90.0 %."),
        ({"source_score": None}, "Adapted."),
        ({"evaluation": {"accuracy": 0.8}}, "On the labelled target rows the accuracy is 80.0 %."),
        ({"estimate": {"value": 0.8, "low": 0.7, "high": 0.9}}, "Adapted."),
        ({"shares": shares(1.0)}, "'a' for every target row; check"),
        (
            {"shares": shares(0.2)},
            r"'b' for 80.% of the target rows, where the share of that class is estimated as 40.% to",
        ),
        ({"task": "regression", "source_score": 0.5}, "On held-out source rows the R² is 0.50."),
        ({"task": "regression", "evaluation": {"r2": None}}, "On the labelled target rows the R² is not defined."),
    ],
)
def test_the_sentences_follow_the_numbers(changes: dict[str, Any], sentence: str):
    assert re.search(sentence, verdict(found(**changes)))


def evaluation(labels: list[Any], predicted: list[Any], classes: list[Any]) -> dict[str, Any]:
    truth = known_labels(Table(np.zeros((4, 1), np.float32), np.array(labels)), "y", regression=False)
    answers = Answers(np.array(predicted), np.zeros((4, len(classes))), [], [])
    return compare(truth, answers, np.array(classes))


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
    truth = known_labels(Table(np.zeros((4, 1), np.float32), labels), "price", regression=True)
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
        monkeypatch.setattr(summaries, "_DOTS", dots)
        drawn.append(summaries._units(*hidden)[0]["source"])
    whole, some = drawn
    assert len(some) == 40
    assert some != whole[:40]
    assert set(some) <= set(whole)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (np.linspace(0.0, 1.0, 40), "holds fractions such as 0.0256"),
        (np.arange(40), "holds 40 different numbers in 40 rows, which name no classes"),
    ],
)
def test_labels_that_are_no_classes_suggest_regression(label: Any, message: str):
    frame = pd.DataFrame({"x": np.arange(40.0), "price": label})
    with pytest.raises(InvalidInputError, match=message) as refused:
        ma.fit(frame, frame, label="price", method="none", max_epochs=1)
    assert str(refused.value).endswith("give regression=True (--regression) to predict values.")
