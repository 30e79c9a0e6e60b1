"""Saved models come back with all they are; forged folders are refused."""

import json

import numpy as np
import pytest

import momentalign as ma
from momentalign.errors import DamagedFileError
from momentalign.files import read_folder, write_folder

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
def test_weights_of_domains_come_back_as_numbers(quick, several, tmp_path, kind):
    X, y, domain = several
    model = quick(domain_weights=kind([1.0, 2.0, 3.0])).fit(X, y, sample_domain=domain)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    assert loaded.domain_weights == [1.0, 2.0, 3.0]
    loaded.fit(X, y, sample_domain=domain)


def test_moments_come_back_with_a_loaded_model(quick, several, tmp_path):
    X, y, domain = several
    model = quick(domain_weights=(1.0, 2.0, 3.0)).fit(X, y, sample_domain=domain)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    assert loaded.domains_.tolist() == model.domains_.tolist()
    assert loaded.domains_.dtype == model.domains_.dtype
    assert loaded.domain_weights == [1.0, 2.0, 3.0]
    for number, moments in model.moments_.items():
        assert loaded.moments_[number].to_dict() == moments.to_dict()


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
