"""Presets are estimators that fit two domains."""

import numpy as np
import pytest
from sklearn.base import clone

from momentalign.errors import InvalidInputError
from momentalign.paper.sentiment import METHODS, PRESETS, preset


def test_every_network_of_table_2_has_one():
    assert set(PRESETS) == set(METHODS) - {"tca"}  # a transformer, to stand before a classifier


@pytest.mark.parametrize("method", sorted(set(PRESETS) - {"mmd"}))
def test_a_preset_fits_two_domains(method, rng):
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3)) + 2.0 * y[:, None]
    model = clone(preset(method, random_state=0)).set_params(max_epochs=3, hidden=(4,))
    assert model.fit(X, y, X_target=X + 0.5).predict(X).shape == (60,)


def test_mmd_searches_the_grid_of_the_paper():
    search = preset("mmd", random_state=0)
    assert len(search.param_grid["weight"]) == len(search.param_grid["discrepancy"]) == 10


def test_an_unknown_preset_is_named():
    with pytest.raises(InvalidInputError, match="there is no preset 'magic'; choose among nn, cmd"):
        preset("magic")
