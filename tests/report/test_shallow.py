from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import gaussian_kde

from momentalign.report.charts import NARROWEST, activations, density, predictions, scores


def test_the_network_is_that_of_algorithm_1(artificial_result: dict[str, Any]):
    weights = artificial_result["shown"]["nn"]["weights"]
    x = np.array(artificial_result["source"]["x"])
    hidden = expit(x @ np.array(weights["W"]) + np.array(weights["b"]))
    outputs = hidden @ np.array(weights["V"]) + np.array(weights["c"])
    np.testing.assert_allclose(activations(weights, x), hidden, rtol=0, atol=1e-14)
    np.testing.assert_allclose(scores(weights, x), outputs, rtol=0, atol=1e-12)
    assert (predictions(weights, x) == outputs.argmax(1)).all()


def test_predictions_give_the_accuracy_of_the_result(artificial_result: dict[str, Any]):
    for name in ("nn", "mann"):
        shown, target = artificial_result["shown"][name], artificial_result["target"]
        right = (predictions(shown["weights"], target["x"]) == np.array(target["y"])).mean()
        assert right == pytest.approx(shown["accuracy_target"], abs=1e-12)


def test_saturated_units_do_not_overflow():
    weights = {"W": [[1e4], [0.0]], "b": [0.0]}
    assert activations(weights, [[-1.0, 0.0], [1.0, 0.0]]).tolist() == [[0.0], [1.0]]


def test_the_density_is_scotts_estimate():
    sample, at = np.random.default_rng(0).beta(2, 5, 200), np.linspace(0, 1, 50)
    np.testing.assert_allclose(density(sample, at), gaussian_kde(sample)(at), rtol=1e-10)


def test_a_constant_unit_is_a_narrow_peak():
    values = density(np.full(20, 0.5), [0.5, 0.5 + 6 * NARROWEST])
    assert values[0] == pytest.approx(1 / (NARROWEST * np.sqrt(2 * np.pi)))
    assert values[1] < 1e-5
