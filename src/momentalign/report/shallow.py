"""The shallow network of Algorithm 1, evaluated from its weights alone, and the densities of its hidden units.

Stands for the hidden activations of Section 5 and their kernel density estimates in Fig. 4 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["activations", "density", "predictions", "scores"]

Floats = NDArray[np.float64]

NARROWEST = 0.006
"""The smallest bandwidth: a saturated unit is drawn as a narrow peak, not as a needle without area."""


def activations(weights: Mapping[str, Any], x: ArrayLike) -> Floats:
    r"""Return the hidden activations :math:`\sigma(x W + b)`, shape (rows, hidden)."""
    inputs = np.asarray(x, dtype=float) @ np.asarray(weights["W"], dtype=float) + np.asarray(weights["b"], dtype=float)
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * inputs))


def scores(weights: Mapping[str, Any], x: ArrayLike) -> Floats:
    r"""Return :math:`\sigma(x W + b) V + c`, shape (rows, classes): what the softmax sees."""
    outputs = activations(weights, x) @ np.asarray(weights["V"], dtype=float) + np.asarray(weights["c"], dtype=float)
    return np.asarray(outputs)


def predictions(weights: Mapping[str, Any], x: ArrayLike) -> NDArray[np.intp]:
    """Return the class of highest probability for every row."""
    return np.asarray(scores(weights, x).argmax(axis=1))


def density(sample: ArrayLike, at: ArrayLike) -> Floats:
    r"""Return the Gaussian kernel density estimate of a sample with Scott's bandwidth.

    .. math:: \hat f(t) = \frac{1}{n h} \sum_{i=1}^n \varphi\Big(\frac{t - x_i}{h}\Big), \qquad h = s\, n^{-1/5}

    Examples
    --------
    >>> at = np.linspace(-1, 2, 301)
    >>> round(float(density([0.2, 0.4, 0.9], at).sum() * 0.01), 2)
    1.0
    """
    values = np.asarray(sample, dtype=float)
    width = max(float(values.std(ddof=1)) * len(values) ** -0.2, NARROWEST)
    distances = (np.asarray(at, dtype=float)[:, None] - values) / width
    return np.asarray(np.exp(-0.5 * distances**2).mean(axis=1) / (width * np.sqrt(2 * np.pi)))
