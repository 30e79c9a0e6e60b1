"""``ma.fit``: the same from frames, files, and preprocessing and estimator by hand; what it says and refuses."""

from __future__ import annotations

import json
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
from momentalign.tables.preprocess import Preprocessor
from momentalign.workflow.model import TableModel

Frames = tuple[pd.DataFrame, pd.DataFrame]
QUICK: dict[str, Any] = {"max_epochs": 20, "device": "cpu"}
WINES: dict[str, Any] = {"label": "grape", "id_column": "bottle", **QUICK}


def weights(model: Any) -> list[np.ndarray]:
    estimator = getattr(model, "estimator", model)
    networks = getattr(estimator, "networks_", [(estimator.coefs_, estimator.intercepts_)])
    return [part for coefs, intercepts in networks for part in (*coefs, *intercepts)]


def assert_same(one: Any, other: Any) -> None:
    for ours, theirs in zip(weights(one), weights(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_frames_files_and_the_estimator_by_hand_give_the_same_bits(files: tuple[Path, Path], cellars: Frames):
    source, target = cellars
    model = ma.fit(source, target.drop(columns="grape"), **WINES)
    assert_same(model, ma.fit(*files, **WINES))
    assert_same(model, ma.fit(pa.Table.from_pandas(source), pa.Table.from_pandas(target), **WINES))
    features = source.drop(columns=["bottle", "grape"])
    preprocessor = Preprocessor().fit(features, X_target=target[features.columns])
    by_hand = ma.MANNClassifier(
        hidden=(50,), weight="auto", optimizer="adam", learning_rate=0.003, max_epochs=20, random_state=0, device="cpu"
    ).fit(preprocessor.transform(features), source["grape"], preprocessor.transform(target))
    assert_same(model, by_hand)
    np.testing.assert_array_equal(model.predict(target), by_hand.predict(preprocessor.transform(target)))
    np.testing.assert_array_equal(model.predict_proba(target), by_hand.predict_proba(preprocessor.transform(target)))
    np.testing.assert_array_equal(model.predict(files[1]), model.predict(target))


def test_regression_is_the_regressor_by_hand(readings: Frames):
    source, target = readings
    model = ma.fit(source, target, label="price", id_column="id", regression=True, **QUICK)
    features = ["first", "second"]
    preprocessor = Preprocessor().fit(source[features], X_target=target[features])
    by_hand = ma.MANNRegressor(optimizer="adam", learning_rate=0.003, random_state=0, **QUICK)
    by_hand.fit(preprocessor.transform(source), source["price"], preprocessor.transform(target))
    np.testing.assert_array_equal(model.predict(target), by_hand.predict(preprocessor.transform(target)))
    with pytest.raises(InvalidInputError, match="predicts numbers"):
        model.predict_proba(target)


def test_alignment_helps_on_the_other_cellar(fitted: TableModel, cellars: Frames):
    plain = ma.fit(*cellars, label="grape", id_column="bottle", method="none", device="cpu")
    accuracy = (plain.predict(cellars[1]) == cellars[1]["grape"]).mean()
    assert fitted.summary["evaluation"]["accuracy"] > accuracy + 0.08
    assert fitted.summary["networks"] == 4
    assert not fitted.summary["plain_kept"]


def test_alignment_helps_where_a_reading_moved(regressor: TableModel, readings: Frames):
    plain = ma.fit(*readings, label="price", id_column="id", regression=True, method="none", device="cpu")
    error = np.mean((plain.predict(readings[1]) - readings[1]["price"]) ** 2)
    assert 1 - error / readings[1]["price"].var(ddof=0) < 0.7
    assert regressor.summary["evaluation"]["r2"] > 0.8
    assert regressor.summary["source_score"] > 0.85


def test_the_plain_network_is_kept_where_alignment_would_do_harm():
    """Of tumours with low texture 16 % are malignant, of the others 58 %: moments differ for a good reason."""
    frame = load_breast_cancer(as_frame=True).frame
    low = frame["mean texture"] < frame["mean texture"].median()
    model = ma.fit(frame[low], frame[~low], label="target", target_label="target", device="cpu")
    assert model.summary["plain_kept"]
    assert model.summary["evaluation"]["accuracy"] > 0.9
    assert model.summary["verdict"].startswith("Alignment was left out: ")


def test_the_summary_is_plain_json_and_complete(fitted: TableModel):
    summary = json.loads(json.dumps(fitted.summary, allow_nan=False))
    assert summary["kind"] == "fit"
    assert sum(share["target"] for share in summary["shares"]) == pytest.approx(1.0)
    shifts = [abs(one["mean_shift"]) for one in summary["shifted"]]
    assert shifts == sorted(shifts, reverse=True)
    assert np.sum(summary["evaluation"]["confusion"]) == summary["evaluation"]["rows"] == 89
    assert f"On the target {100 * summary['evaluation']['accuracy']:.1f} % are predicted right." in summary["verdict"]
    assert "% of held-out source rows were predicted right" in summary["verdict"]
    assert len(summary["units"]) == 5


def test_labels_of_the_target_change_nothing_but_the_evaluation(cellars: Frames):
    source, target = cellars
    wrong = target.assign(grape=np.roll(target["grape"], 1))
    with_labels, without = ma.fit(source, wrong, target_label="grape", **WINES), ma.fit(source, target, **WINES)
    assert_same(with_labels, without)
    assert without.summary["evaluation"] is None
    for name in ("distance", "shares", "shifted", "units"):
        assert with_labels.summary[name] == without.summary[name]


def test_a_label_column_of_the_target_is_set_apart(cellars: Frames):
    source, target = cellars
    target = target.assign(truth=target["grape"], grape="?")
    model = ma.fit(source, target, target_label="truth", **WINES)
    assert model.summary["evaluation"]["label"] == "truth"
    assert model.summary["features"] == 13
    with pytest.warns(MomentAlignWarning, match="the source lacks 'truth'"):
        model = ma.fit(source, target, **WINES)
    assert (model.summary["evaluation"], model.summary["features"]) == (None, 13)


def test_the_same_files_give_the_same_folder(files: tuple[Path, Path], tmp_path: Path):
    for name in ("one", "two"):
        ma.fit(*files, **WINES).save(tmp_path / name)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_of_several_seeds_the_one_with_the_lowest_held_out_loss_is_kept(readings: Frames):
    options: dict[str, Any] = {"label": "price", "id_column": "id", "regression": True, **QUICK}
    best = ma.fit(*readings, seeds=3, **options)
    X, X_target = (best.preprocessor.transform(frame) for frame in readings)
    by_hand = [clone(best.estimator).set_params(random_state=seed) for seed in range(3)]
    losses = [min(one.fit(X, readings[0]["price"], X_target).history_["validation_loss"]) for one in by_hand]
    assert best.estimator.random_state == np.argmin(losses)


@pytest.mark.parametrize("method", ["cv-cmd", "mmd", "coral", "dann", "none"])
def test_every_method_trains(cellars: Frames, method: str):
    model = ma.fit(*cellars, label="grape", id_column="bottle", method=method, max_epochs=3, device="cpu")
    assert model.estimator.discrepancy == (None if method == "none" else method)
    assert ("they were not aligned" in model.summary["verdict"]) == (method == "none")


@pytest.mark.parametrize("change", [{"method": "coral"}, {"max_epochs": 10}, {"id_column": None}])
@pytest.mark.filterwarnings("ignore:column 'bottle' has a different value in every row")
def test_every_option_changes_the_fit(fitted: TableModel, cellars: Frames, change: dict[str, Any]):
    """Or is refused, see below; `seeds` has a test of its own."""
    other = ma.fit(*cellars, **{"label": "grape", "id_column": "bottle", "device": "cpu", **change})
    pairs = zip(weights(fitted), weights(other), strict=False)
    assert other.summary["notes"] or any((one != two).any() for one, two in pairs)


def test_progress_is_shown_where_it_is_asked_for(cellars: Frames, capsys: pytest.CaptureFixture):
    ma.fit(*cellars, verbose=1, **WINES)
    assert "MANNClassifier" in capsys.readouterr().err


def test_a_large_source_holds_out_less_and_trains_for_fewer_epochs(monkeypatch: pytest.MonkeyPatch, cellars: Frames):
    import sys

    fitting = sys.modules["momentalign.workflow.fit"]
    monkeypatch.setattr(fitting, "_MOST_HELD_OUT", 9)
    monkeypatch.setattr(fitting, "_UPDATES", 100)
    model = ma.fit(*cellars, label="grape", id_column="bottle", device="cpu")
    assert model.estimator.max_epochs == 100
    assert model.estimator.validation_fraction == pytest.approx(9 / 89)


def test_text_and_sparse_files(tmp_path: Path):
    words = {"good": "fine warm kind", "bad": "cold rude slow"}
    labels = ["good", "bad"] * 30
    for name, extra in (("s", "book page"), ("t", "film actor")):
        reviews = [f"{words[label]} {extra} {row % 7}" for row, label in enumerate(labels)]
        pd.DataFrame({"review": reviews, "y": labels}).to_csv(tmp_path / f"{name}.csv", index=False)
    model = ma.fit(tmp_path / "s.csv", tmp_path / "t.csv", label="y", text="review", target_label="y", **QUICK)
    assert model.summary["evaluation"]["accuracy"] > 0.9
    assert model.estimator.optimizer == "adagrad"
    rows = sparse.random(40, 30, density=0.2, format="csr", random_state=0)
    dump_svmlight_file(rows, np.arange(40) % 2, str(tmp_path / "s.svm"), zero_based=True)
    assert ma.fit(tmp_path / "s.svm", tmp_path / "s.svm", label="label", **QUICK).summary["features"] == 30


def test_labels_of_a_frame_stay_what_they_are():
    frame = pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0) % 3})
    for labels, found in (
        (["1", "2"] * 4, ["1", "2"]),
        (pd.array([1, 2] * 4, dtype="Int64"), [1, 2]),
        ([True, False] * 4, [False, True]),
    ):
        assert ma.fit(frame.assign(y=labels), frame, label="y", **QUICK).estimator.classes_.tolist() == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "colour"}, "the source has no label column 'colour'; its columns are 'bottle', 'alcohol'"),
        ({"target_label": "vine"}, "the target has no label column 'vine'"),
        ({"method": "magic"}, "method must be one of 'cmd', 'cv-cmd', 'mmd', 'coral', 'dann', 'none', got 'magic'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
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
        ma.fit(readings[0], target, label="price", target_label="price", id_column="id", regression=True, **QUICK)


def test_columns_of_one_domain_are_an_error_where_strict(cellars: Frames):
    target = cellars[1].drop(columns="hue")
    with pytest.raises(InvalidInputError, match="the target lacks 'hue'"):
        ma.fit(cellars[0], target, strict=True, **WINES)
    with pytest.warns(MomentAlignWarning, match="the target lacks 'hue'"):
        model = ma.fit(cellars[0], target, **WINES)
    assert any("hue" in note for note in model.summary["notes"])


def test_an_interrupt_is_raised(cellars: Frames, monkeypatch: pytest.MonkeyPatch):
    def press(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ma.MANNClassifier, "fit", press)
    with pytest.raises(KeyboardInterrupt):
        ma.fit(*cellars, **WINES)
