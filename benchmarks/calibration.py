"""Calibration transfer between two generated instruments: target error of MANNRegressor over that of a plain network.

``python -m benchmarks.calibration`` prints, for two pairs of instruments and 5 seeds each, the root mean squared error
of the protein content in percent of mass. Everything but the instruments was chosen on the pair "tuned on": spectra by
standard normal variate, channels standardised by the master's, 20 units, Adam 0.01, batches of 150; the weight is 1.
The bar holds for the other pair too, whose differences were written down before. About 5 minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

import momentalign as ma
from benchmarks.figure import Figure
from momentalign.paper.spectra import FIELD, Calibration, Instrument, calibration_transfer, standard_normal_variate

PAIRS = {
    "field": FIELD,
    "tuned on": Instrument(
        shift=-0.8, resolution=13.0, stray_light=0.003, gain=0.98, offset=-0.02, slope=-0.03, noise=0.0003
    ),
}
SEEDS = 5
PROTEIN = 2
SETTINGS: dict[str, Any] = {
    "hidden": (20,),
    "optimizer": "adam",
    "learning_rate": 0.01,
    "batch_size": 150,
    "max_epochs": 1000,
    "patience": 50,
    "device": "cpu",
}


def figures() -> Iterator[Figure]:
    """Yield errors in percent of mass and their ratio, which is to be a half at most."""
    for name, instrument in PAIRS.items():
        each = [errors(calibration_transfer(seed, field=instrument), seed) for seed in range(SEEDS)]
        means = {kind: float(np.mean([one[kind] for one in each])) for kind in each[0]}
        for kind, value in means.items():
            yield Figure("calibration", f"{name}: error of {kind}", value)
        ratio = means["MANNRegressor"] / means["plain network"]
        yield Figure("calibration", f"{name}: MANNRegressor over plain network", ratio, at_most=0.5)


def errors(data: Calibration, seed: int) -> dict[str, float]:
    """Root mean squared errors on the field instrument, and of the plain network on the master's own spectra."""
    spectra, others = (standard_normal_variate(part) for part in (data.master, data.field))
    contents, truth = data.master_contents[:, PROTEIN], data.field_contents[:, PROTEIN]
    scaler = StandardScaler().fit(spectra)
    X, X_target = scaler.transform(spectra), scaler.transform(others)
    plain = ma.MANNRegressor(discrepancy=None, random_state=seed, **SETTINGS).fit(X, contents)
    aligned = ma.MANNRegressor(random_state=seed, **SETTINGS).fit(X, contents, X_target)
    fresh = calibration_transfer(seed + SEEDS)
    X_fresh = scaler.transform(standard_normal_variate(fresh.master))
    return {
        "plain network": _error(plain.predict(X_target), truth),
        "MANNRegressor": _error(aligned.predict(X_target), truth),
        # Means and deviations of the channels alone, a two-moment alignment of the inputs.
        "plain network, field channels standardised by their own": _error(
            plain.predict(StandardScaler().fit_transform(others)), truth
        ),
        "plain network on the master": _error(plain.predict(X_fresh), fresh.master_contents[:, PROTEIN]),
    }


def _error(predicted: Any, truth: Any) -> float:
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


def main() -> int:
    """Print every figure as a JSON line; 1 if one misses its bar."""
    failed = 0
    for figure in figures():
        print(figure.line(), flush=True)
        failed += not figure.passed
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
