"""Saved models come back with all they are; forged folders are refused."""

import json

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.files import read_folder, write_folder

OUTPUTS = {"flat": lambda y: y, "column": lambda y: y[:, None], "two": lambda y: np.column_stack([y, 1e9 * y])}


@pytest.fixture
def regressor(problem):
    return ma.MANNRegressor(hidden=(5, 3), loss="huber", max_epochs=5, random_state=0).fit(problem.X, problem.y)


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_regressor_comes_back(regressor, problem, tmp_path, kind):
    frame, y = pd.DataFrame(problem.X, columns=["a", "b", "c", "ä"]), OUTPUTS[kind](problem.y.astype(float))
    model = regressor.fit(frame, y, frame.iloc[:30] + 1)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    assert type(loaded) is ma.MANNRegressor
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
    for name in ("history_", "n_epochs_", "best_epoch_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.get_params() == model.get_params()
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "ä"]
    assert loaded.y_mean_.shape == model.y_mean_.shape
    np.testing.assert_array_equal(loaded.fit(frame, y, frame.iloc[:30] + 1).coefs_[0], model.coefs_[0])


FORGED_REGRESSORS = {
    "unknown class": {"class": "MANNRanker"},
    "class of the other kind": {"class": "MANNClassifier"},
    "no mean": {"y_mean": None},
    "a mean of words": {"y_mean": "much"},
    "a mean beyond numbers": {"y_mean": 10**400},
    "a mean per output of none": {"y_mean": [1.0, 2.0]},
    "two of each": {"y_mean": [1.0, 2.0], "y_deviation": [1.0, 2.0]},
    "a table of means": {"y_mean": [[1.0]], "y_deviation": [[1.0]]},
    "a negative deviation": {"y_deviation": -1.0},
    "no deviation": {"y_deviation": None},
    "another number of features": {"features": 3},
}
EXTRA_ARRAYS = ["coefficients", "network_0_coef_0", "coef_3"]


@pytest.mark.parametrize("kind", [*FORGED_REGRESSORS, *EXTRA_ARRAYS])
def test_forged_regressors_are_refused(regressor, tmp_path, kind):
    regressor.save(tmp_path)
    arrays, description = read_folder(tmp_path)
    extra = {kind: np.ones(1)} if kind in EXTRA_ARRAYS else {}
    write_folder(tmp_path, {**arrays, **extra}, description | FORGED_REGRESSORS.get(kind, {}))
    with pytest.raises(DamagedFileError, match="does not describe a model of ours"):
        ma.load(tmp_path)


def test_a_class_that_could_not_be_read_back_is_not_saved(problem, tmp_path):
    class Own(ma.MANNRegressor):
        pass

    model = Own(hidden=(3,), max_epochs=1).fit(problem.X, problem.y)
    with pytest.raises(InvalidInputError, match="a Own cannot be read back, load knows"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


FORGERIES = {
    "coefficients in a table": lambda arrays: {**arrays, "coefficients": arrays["coefficients"][:, None]},
    "no coefficient": lambda arrays: {
        **{name: array for name, array in arrays.items() if not name.startswith("network_")},
        "coefficients": np.zeros(0),
    },
    "a coefficient too many": lambda arrays: {**arrays, "coefficients": np.ones(5)},
    "a network too few": lambda arrays: {name: array for name, array in arrays.items() if "network_3" not in name},
    "no coefficients": lambda arrays: {name: array for name, array in arrays.items() if name != "coefficients"},
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_forged_combinations_are_refused(quick, problem, tmp_path, kind):
    quick(weight="auto").fit(problem.X, problem.y, problem.X_target).save(tmp_path)
    arrays, description = read_folder(tmp_path)
    assert len(ma.load(tmp_path).networks_) == 4
    write_folder(tmp_path, FORGERIES[kind](arrays), description)
    with pytest.raises(DamagedFileError, match="does not describe a model of ours"):
        ma.load(tmp_path)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_moments_and_weights_of_domains_come_back(quick, several, tmp_path, kind):
    X, y, domain = several
    model = quick(domain_weights=kind([1.0, 2.0, 3.0])).fit(X, y, sample_domain=domain)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    assert loaded.domain_weights == [1.0, 2.0, 3.0]
    assert loaded.domains_.tolist() == model.domains_.tolist()
    assert loaded.domains_.dtype == model.domains_.dtype
    for number, moments in model.moments_.items():
        assert loaded.moments_[number].to_dict() == moments.to_dict()
    loaded.fit(X, y, sample_domain=domain)


def test_older_folders_without_moments_still_load(quick, problem, tmp_path):
    model = quick().fit(problem.X, problem.y, problem.X_target)
    model.save(tmp_path)
    arrays, description = read_folder(tmp_path)
    older = {name: value for name, value in description.items() if name not in ("domains", "moments")}
    for name in ("between", "domain_weights"):
        del older["parameters"][name]
    write_folder(tmp_path, arrays, older)
    loaded = ma.load(tmp_path)
    assert loaded.moments_ == {}
    assert loaded.domains_.tolist() == []
    np.testing.assert_array_equal(loaded.predict(problem.X), model.predict(problem.X))
    loaded.save(tmp_path)
    assert ma.load(tmp_path).moments_ == {}


FORGED_MOMENTS = {
    "an id of 0": lambda d: d["domains"].__setitem__(0, 0),
    "an id twice": lambda d: d["domains"].__setitem__(1, d["domains"][0]),
    "a word for an id": lambda d: d["domains"].__setitem__(0, "one"),
    "one domain too few": lambda d: d["moments"].pop(),
    "moments of no rows": lambda d: d["moments"].__setitem__(0, {"order": 5, "cross": 1, "count": 0}),
    "moments of other units": lambda d: d["moments"].__setitem__(0, ma.Moments().update(np.ones((2, 3))).to_dict()),
    "no moments": lambda d: d.__setitem__("moments", 3),
    "negative variances": lambda d: d["moments"][0]["sums"][0].__setitem__(0, -1.0),
}


@pytest.mark.parametrize("kind", FORGED_MOMENTS)
def test_forged_moments_are_refused(quick, problem, tmp_path, kind):
    quick().fit(problem.X, problem.y, problem.X_target).save(tmp_path)
    arrays, description = read_folder(tmp_path)
    description = json.loads(json.dumps(description))
    FORGED_MOMENTS[kind](description)
    write_folder(tmp_path, arrays, description)
    with pytest.raises(DamagedFileError):
        ma.load(tmp_path)
