"""What was saved comes back; at any moment the folder holds a whole model, the old or the new one."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import momentalign as ma
from momentalign.errors import DataNotFoundError, InvalidInputError, MomentAlignWarning

LABELS = {
    "int": np.array([3, -7]),
    "int8": np.array([3, -7], dtype=np.int8),
    "str": np.array(["left", "rechts: ü"]),
    "bool": np.array([False, True]),
    "object str": np.array(["no", "yes"], dtype=object),
    "float": np.array([0.0, 2.0]),
}


def _assert_same_model(model, loaded, X):
    assert type(loaded) is type(model)
    for method in ("predict", "predict_proba", "transform"):
        result, expected = getattr(loaded, method)(X), getattr(model, method)(X)
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
    for part, match in zip(loaded.coefs_ + loaded.intercepts_, model.coefs_ + model.intercepts_, strict=True):
        assert part.dtype == match.dtype
        np.testing.assert_array_equal(part, match)
    assert loaded.history_ == model.history_
    for name in ("n_epochs_", "best_epoch_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(model, name)


@pytest.mark.parametrize("kind", LABELS)
def test_a_model_comes_back_with_its_labels(quick, data, tmp_path, kind):
    X, y, X_target = data
    model = quick(hidden=(5, 3), weight=np.float64(2.0), patience=None).fit(X, LABELS[kind][y], X_target)
    model.save(tmp_path / "new" / "folder")
    loaded = ma.load(str(tmp_path / "new" / "folder"))
    _assert_same_model(model, loaded, X)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.classes_.tolist() == model.classes_.tolist()
    expected = model.get_params()
    assert {**loaded.get_params(), "hidden": tuple(loaded.hidden)} == expected


def test_names_of_columns_come_back_and_are_checked(quick, data, tmp_path):
    X, y, X_target = data
    frame, target = (pd.DataFrame(rows, columns=["a", "b", "c", "ä"]) for rows in (X, X_target))
    model = quick().fit(frame, y, target)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    _assert_same_model(model, loaded, frame)
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "ä"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "c", "ä"]])


def test_a_loaded_model_trains_on(quick, data, tmp_path):
    model = quick().fit(*data)
    model.save(tmp_path)
    again = ma.load(tmp_path).fit(*data)
    np.testing.assert_array_equal(again.coefs_[0], model.coefs_[0])


def test_the_folder_holds_numbers_and_text_only(quick, data, tmp_path):
    quick().fit(*data).save(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [Path(name).suffix for name in names] == [".json", ".safetensors"]
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["format_version"] == 1
    assert manifest["description"]["class"] == "MANNClassifier"


@pytest.mark.parametrize("discrepancy", [ma.CMDLoss(3), lambda source, target: (source.mean() - target.mean()).abs()])
def test_a_callable_is_left_out_with_a_warning_that_points_here(quick, data, tmp_path, discrepancy):
    model = quick(discrepancy=discrepancy).fit(*data)
    with pytest.warns(MomentAlignWarning, match=r"discrepancy=.* is not saved.*predicts the same") as caught:
        model.save(tmp_path)
    assert caught[0].filename == __file__
    loaded = ma.load(tmp_path)
    assert loaded.discrepancy is None
    np.testing.assert_array_equal(loaded.predict_proba(data[0]), model.predict_proba(data[0]))


def test_an_unfitted_model_is_not_saved(quick, tmp_path):
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_labels_that_are_no_numbers_or_strings_are_refused(quick, data, tmp_path):
    model = quick().fit(*data)
    model.classes_ = np.array([(0, 1), (1, 0)], dtype="i,i").astype(object)
    with pytest.raises(InvalidInputError, match="classes of type tuple cannot be saved"):
        model.save(tmp_path / "model")


@pytest.fixture
def two_models(quick, data):
    return [quick(random_state=seed).fit(*data) for seed in (1, 2)]


def test_saving_again_replaces_the_model_and_removes_the_old_weights(two_models, data, tmp_path):
    for model in two_models:
        model.save(tmp_path)
    _assert_same_model(two_models[1], ma.load(tmp_path), data[0])
    assert len(list(tmp_path.iterdir())) == 2


class Killed(BaseException):
    """Not an OSError: nothing in between may take it for an ordinary failure."""


def _fail_at(monkeypatch, count, error):
    """Let the count-th flush, rename or removal fail; the calls before it really happen."""
    calls = []

    def guard(owner, name):
        original = getattr(owner, name)

        def guarded(*arguments, **keywords):
            if not (name == "unlink" and Path(arguments[0]).name.startswith(".")):  # cleaning up is allowed
                calls.append(name)
                if len(calls) == count:
                    raise error
            return original(*arguments, **keywords)

        monkeypatch.setattr(owner, name, guarded)

    for owner, name in [(os, "fsync"), (Path, "replace"), (Path, "unlink")]:
        guard(owner, name)
    return calls


STEPS = ["fsync", "replace", "fsync", "fsync", "replace", "fsync", "unlink"]


def test_the_steps_of_saving_are_flush_rename_flush_the_folder(two_models, tmp_path, monkeypatch):
    two_models[0].save(tmp_path)
    calls = _fail_at(monkeypatch, -1, Killed())
    two_models[1].save(tmp_path)
    assert calls == STEPS


@pytest.mark.parametrize("error", [Killed(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("step", range(1, len(STEPS) + 1))
def test_interrupted_anywhere_the_old_or_the_new_model_is_there(two_models, data, tmp_path, monkeypatch, step, error):
    old, new = two_models
    old.save(tmp_path)
    with monkeypatch.context() as broken:
        _fail_at(broken, step, error)
        with pytest.raises((Killed, InvalidInputError)):
            new.save(tmp_path)
    manifest_renamed = step > 5
    _assert_same_model(new if manifest_renamed else old, ma.load(tmp_path), data[0])
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    new.save(tmp_path)  # and the next save mends everything
    _assert_same_model(new, ma.load(tmp_path), data[0])
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_in_the_place_of_the_folder_is_named(two_models, tmp_path):
    (tmp_path / "model").write_text("a file", encoding="utf-8")
    for path in (tmp_path / "model", tmp_path / "model" / "below"):
        with pytest.raises(InvalidInputError, match=rf"cannot be written to {path} \("):
            two_models[0].save(path)
    assert (tmp_path / "model").read_text(encoding="utf-8") == "a file"


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, Path.touch])
def test_what_holds_no_model_is_not_found(tmp_path, make):
    make(tmp_path / "nothing")
    with pytest.raises(DataNotFoundError, match=r"nothing holds no manifest.json; give the folder that save\(\) wrote"):
        ma.load(tmp_path / "nothing")
