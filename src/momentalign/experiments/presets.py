"""The methods of the sentiment experiment as estimators to take elsewhere, with the paper's settings (Section 6.3).

Zellinger et al. (2019); the weights of DANN and CORAL are ours, see docs/paper.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from momentalign.discrepancies.maximum_mean import MMDLoss
from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.experiments.sentiment import METHODS
from momentalign.selection.search import ReverseValidationSearch

__all__ = ["PRESETS", "preset"]

PRESETS: dict[str, Callable[[int | None], Any]] = {
    "nn": lambda seed: MANNClassifier(discrepancy=None, random_state=seed),
    "cmd": lambda seed: MANNClassifier(weight=METHODS["cmd"].weights[0], random_state=seed),
    "cv-cmd": lambda seed: MANNClassifier(discrepancy="cv-cmd", weight=METHODS["cv-cmd"].weights[0], random_state=seed),
    "coral": lambda seed: MANNClassifier(discrepancy="coral", weight=METHODS["coral"].weights[0], random_state=seed),
    "dann": lambda seed: MANNClassifier(discrepancy="dann", weight=METHODS["dann"].weights[0], random_state=seed),
    "mmd": lambda seed: ReverseValidationSearch(
        MANNClassifier(random_state=seed),
        {
            "weight": list(METHODS["mmd"].weights),
            "discrepancy": [MMDLoss(beta=beta) for beta in METHODS["mmd"].betas],
        },
        random_state=seed,
    ),
    "auto": lambda seed: MANNClassifier(weight="auto", random_state=seed),
}
"""Name of a method -> what makes its estimator from a seed. MMD is a search over the paper's grid."""


def preset(method: str, *, random_state: int | None = None) -> Any:
    """Return a method as an estimator with ``fit(X, y, X_target=...)``.

    Examples
    --------
    >>> preset("cv-cmd", random_state=0)
    MANNClassifier(discrepancy='cv-cmd', random_state=0)
    """
    if method not in PRESETS:
        raise InvalidInputError(f"there is no preset {method!r}; choose among {', '.join(PRESETS)}.")
    return PRESETS[method](random_state)
