"""What an estimator keeps of each domain it was fitted to: the moments of its hidden activations.

Section 3 of Zellinger et al. (2019): they are what the alignment made alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.estimators.domains import Domains, domain_ids
from momentalign.moments.running import Moments
from momentalign.networks.shallow import Layer, Matrix, activations

__all__ = ["hidden_moments", "moments_by_domain", "read_moments", "write_moments"]

# Rows whose activations are in memory at once.
CHUNK = 16384


def moments_by_domain(
    domains: Domains, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]
) -> dict[int, Moments]:
    """Return the moments of the last hidden layer for every id, sources first; labelled target rows are target rows."""
    sides = ((domains.source, domains.source_ids), (domains.target, domains.target_ids))
    return {
        int(number): hidden_moments(rows[: len(ids)][ids == number], coefs, intercepts)
        for rows, ids in sides
        if rows is not None and ids is not None
        for number in domain_ids(ids)
    }


def hidden_moments(rows: Matrix, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]) -> Moments:
    """Return the moments up to order 5 of the hidden activations of some rows, a chunk of them at a time.

    Examples
    --------
    >>> weights, biases = [np.ones((1, 2)), np.ones((2, 2))], [np.zeros(2), np.zeros(2)]
    >>> hidden_moments(np.zeros((3, 1)), weights, biases).mean.tolist()
    [0.5, 0.5]
    """
    layers = [Layer(w.astype(np.float64), b.astype(np.float64)) for w, b in zip(coefs, intercepts, strict=True)]
    moments = Moments()
    for start in range(0, rows.shape[0], CHUNK):
        moments.update(activations(layers, rows[start : start + CHUNK].astype(np.float64)))
    return moments


def write_moments(estimator: Any) -> dict[str, Any]:
    """Return ``domains_`` and ``moments_`` as plain JSON; empty where an estimator has none."""
    moments = getattr(estimator, "moments_", {})
    return {"domains": list(moments), "moments": [found.to_dict() for found in moments.values()]}


def read_moments(description: Mapping[str, Any], width: int) -> dict[int, Moments]:
    """Return what :func:`write_moments` described, checked; nothing where a model was saved without."""
    ids, found = description.get("domains", []), description.get("moments", [])
    if len(set(ids)) != len(found) or any(type(number) is not int or number == 0 for number in ids):
        raise ValueError("the moments of every domain, and an id for each, are expected")
    moments = {number: Moments.from_dict(part) for number, part in zip(ids, found, strict=True)}
    if any(len(part.mean) != width for part in moments.values()):
        raise ValueError(f"moments of {width} hidden units are expected")
    return moments
