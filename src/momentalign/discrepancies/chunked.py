"""The Central Moment Discrepancy of data that are read in chunks: each domain becomes moments, which are compared.

Eq. (23) of Zellinger et al. (2019) needs of a domain nothing but its moments, so neither has to fit into memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.chunks import HIGHEST_ORDER, is_lazy
from momentalign.moments.columns import refuse_differing_names, refuse_other_names

__all__ = ["chunked_terms"]


def chunked_terms(
    source: Any, target: Any, n_moments: int, *, interval: Any, cross: int, unbiased: bool
) -> NDArray[np.float64] | None:
    """Return the terms of two domains of which one at least is read in chunks; None where both lie in memory.

    Memory maps whose moments do not suffice are left to be read as arrays, which they are too.

    Examples
    --------
    >>> batches = (np.full((2, 1), value) for value in (0.0, 1.0))
    >>> chunked_terms(batches, [[0.5], [0.5]], 2, interval=(0.0, 1.0), cross=1, unbiased=False).tolist()
    [0.0, 0.25]
    >>> chunked_terms([[0.0]], [[0.5]], 2, interval=(0.0, 1.0), cross=1, unbiased=False)
    """
    if isinstance(source, Tensor) and isinstance(target, Tensor):
        return None
    lazy = [data for data in (source, target) if is_lazy(data)]
    if not lazy:
        return None
    lacking = _lacking(n_moments, interval, cross, unbiased=unbiased)
    if lacking and all(isinstance(data, np.memmap) for data in lazy):
        return None
    if lacking:
        raise InvalidInputError(f"data that are read in chunks have no {lacking}, or read both domains into memory.")
    _refuse_tensors(source, target)
    return _terms(source, target, n_moments, interval, cross)


def _lacking(n_moments: int, interval: Any, cross: int, *, unbiased: bool) -> str:
    """What moments do not tell, and the remedy; empty where they suffice."""
    if n_moments > HIGHEST_ORDER:
        return f"moments above order {HIGHEST_ORDER}, got n_moments={n_moments}; lower n_moments"
    if unbiased:
        return "unbiased estimate, got unbiased=True; set unbiased=False"
    if cross > 2:
        return f"moments of more than two features, got cross={cross}; set cross=2"
    if isinstance(interval, str):
        return f"known range, got interval={interval!r}; give it as interval=(a, b)"
    return ""


def _refuse_tensors(source: Any, target: Any) -> None:
    for name, data in (("source", source), ("target", target)):
        if isinstance(data, Tensor):
            raise InvalidTypeError(
                f"{name} is a torch tensor and the other domain is read in chunks, which gives no gradient; give an "
                f"array, for instance {name}.detach().numpy()."
            )


def _terms(source: Any, target: Any, n_moments: int, interval: Any, cross: int) -> NDArray[np.float64]:
    # Its compiled loops take time to import, which tensors do not need.
    from momentalign.moments.running import Moments

    refuse_differing_names({"source": source, "target": target})
    found = {"source": Moments(n_moments, cross), "target": Moments(n_moments, cross)}
    for (name, moments), data in zip(found.items(), (source, target), strict=True):
        moments._read(data, name)
        if not moments.count:
            raise InvalidInputError(f"{name} has no rows; give at least one.")
    widths = [len(moments.mean) for moments in found.values()]
    if widths[0] != widths[1]:
        raise InvalidInputError(
            f"source has {widths[0]} columns and target has {widths[1]}; give both the same features."
        )
    # Batches of an iterator name their columns only when they are read.
    refuse_other_names(found["target"]._columns, "target", found["source"]._columns, "source")
    return found["source"].cmd_terms(found["target"], interval=interval)
