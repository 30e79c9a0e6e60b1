"""The example of mean over-penalisation: which of two targets a metric takes to be nearer to the source.

Stands for Section 7.1 and Fig. 2 of Zellinger et al. (2019). The source is 0.8 Y + 0.1 with Y of law Beta(0.4, 0.4),
the left target a Normal law of mean 0.5 and standard deviation 0.27, the right target the source shifted by 0.02.

Every preference the paper claims is right, but four of its six printed chains are not true to the letter, and are
reported so: d_P1 and cmd_4 of the right target are 0.02 exactly, where the paper has strict inequalities with 0.02; the
MMDs of the left target are 0.000256 and 0.00421, where the paper has less than 0.00025 and less than 0.004.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from momentalign.theory.exact_moments import (
    RawMoments,
    affine_moments,
    beta_moments,
    cmd_of_moments,
    ipm_of_moments,
    mmd_of_moments,
    normal_moments,
)

__all__ = ["CLAIMS", "LEFT", "RIGHT", "SOURCE", "Claim", "run"]

_SHAPE, _SCALE, _MEAN, _DEVIATION = Fraction("0.4"), Fraction("0.8"), Fraction("0.5"), Fraction("0.27")
_START, _SHIFTED_START = Fraction("0.1"), Fraction("0.12")

SOURCE = affine_moments(beta_moments(_SHAPE, _SHAPE, 4), _SCALE, _START)
LEFT = normal_moments(_MEAN, _DEVIATION**2, 4)
RIGHT = affine_moments(beta_moments(_SHAPE, _SHAPE, 4), _SCALE, _SHIFTED_START)


class Claim(NamedTuple):
    """One line of Section 7.1."""

    metric: str
    chain: str
    """The inequalities as printed, left and right standing for the distances of the two targets."""
    distance: Callable[[RawMoments, RawMoments, int], Fraction]
    order: int
    remark: str = ""


CLAIMS = (
    Claim("d_P1", "left = 0 < 0.02 < right", ipm_of_moments, 1, "not quite: right is 0.02 exactly"),
    Claim("d_P2", "left < 0.016 < 0.02 < right", ipm_of_moments, 2),
    Claim("d_P4", "left < 0.02 < 0.021 < right", ipm_of_moments, 4),
    Claim("MMD (1 + xy)^2", "left < 0.00025 < 0.0012 < right", mmd_of_moments, 2, "not quite: left is 0.000256"),
    Claim("MMD (1 + xy)^4", "left < 0.004 < 0.006 < right", mmd_of_moments, 4, "not quite: left is 0.00421"),
    Claim("mean feature matching", "left < right", ipm_of_moments, 1, "coincides with d_P1"),
    Claim("covariance feature matching", "left < right", ipm_of_moments, 2, "coincides with d_P2"),
    Claim("cmd_4", "left > 0.0207 > 0.02 > right", cmd_of_moments, 4, "not quite: right is 0.02 exactly"),
)

_RELATIONS = {"<": operator.lt, "=": operator.eq, ">": operator.gt}


def run() -> dict[str, Any]:
    """Return every metric of Section 7.1 beside the printed inequality, and the densities of Fig. 2, ready for JSON.

    Each row has ``metric``, the distances ``left`` and ``right`` of the two targets from the source, the inequality of
    the ``paper`` (with a remark in brackets), whether it ``holds`` to the letter in exact numbers, and which target
    the metric ``prefers``, that is, takes to be nearer.

    Examples
    --------
    >>> for row in run()["rows"]:
    ...     print(f"{row['metric']:27} {row['left']:.6f} {row['right']:.6f} {row['prefers']}")
    d_P1                        0.000000 0.020000 left
    d_P2                        0.015989 0.020400 left
    d_P4                        0.019268 0.021496 left
    MMD (1 + xy)^2              0.000256 0.001216 left
    MMD (1 + xy)^4              0.004206 0.006313 left
    mean feature matching       0.000000 0.020000 left
    covariance feature matching 0.015989 0.020400 left
    cmd_4                       0.020704 0.020000 right
    """
    return {
        "kind": "overpenalization",
        "rows": [_row(claim) for claim in CLAIMS],
        "densities": _densities(),
        "versions": {name: version(name) for name in ("momentalign", "numpy", "scipy")},
    }


def _row(claim: Claim) -> dict[str, Any]:
    left, right = (claim.distance(SOURCE, target, claim.order) for target in (LEFT, RIGHT))
    return {
        "metric": claim.metric,
        "left": float(left),
        "right": float(right),
        "paper": f"{claim.chain} ({claim.remark})" if claim.remark else claim.chain,
        "holds": _is_true(claim.chain, left=left, right=right),
        "prefers": "left" if left < right else "right",
    }


def _is_true(chain: str, **distances: Fraction) -> bool:
    """Decide a chain such as ``left < 0.016 < 0.02 < right`` in exact numbers."""
    words = chain.split()
    values = [distances[word] if word in distances else Fraction(word) for word in words[::2]]
    relations = zip(pairwise(values), words[1::2], strict=True)
    return all(_RELATIONS[sign](*pair) for pair, sign in relations)


def _densities() -> dict[str, list[float]]:
    # Midpoints of cells of 0.005: the Beta densities are infinite at 0.1, 0.12, 0.9 and 0.92, which are cell borders.
    x = -0.4 + 0.005 * (np.arange(360) + 0.5)
    shape, scale = float(_SHAPE), float(_SCALE)
    return {
        "x": x.tolist(),
        "source": stats.beta.pdf(x, shape, shape, loc=float(_START), scale=scale).tolist(),
        "left": stats.norm.pdf(x, loc=float(_MEAN), scale=float(_DEVIATION)).tolist(),
        "right": stats.beta.pdf(x, shape, shape, loc=float(_SHIFTED_START), scale=scale).tolist(),
    }
