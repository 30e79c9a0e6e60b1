"""A folder of combined networks holds all of them, and nothing else."""

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
