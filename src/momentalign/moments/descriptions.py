"""Central sums as plain JSON, to the last bit, and back with every value checked.

Earlier files hold central moments of orders 2 to 5 (``count``, ``mean``, ``central``) instead of sums; they are read
too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, InvalidTypeError
from momentalign.moments.central_sums import CentralSums

__all__ = ["Description", "read_description", "write_description"]

Floats = NDArray[np.float64]


class Description(NamedTuple):
    """What a description holds; `state` is None before the first batch."""

    order: int
    cross: int
    state: CentralSums | None


def write_description(order: int, cross: int, state: CentralSums | None) -> dict[str, Any]:
    """Return order, cross and sums as plain JSON.

    Examples
    --------
    >>> write_description(2, 1, None)
    {'order': 2, 'cross': 1, 'count': 0}
    """
    description: dict[str, Any] = {"order": order, "cross": cross, "count": 0 if state is None else state.count}
    if state is not None:
        arrays = {"mean": state.mean, "rest": state.rest, "sums": state.sums, "products": state.products}
        description |= {name: array.tolist() for name, array in arrays.items() if array is not None}
    return description


def read_description(description: object, *, highest: int) -> Description:
    """Return what :func:`write_description`, or an earlier version, described; anything else raises.

    Examples
    --------
    >>> read_description({"count": 2, "mean": [1.0], "central": [[4.0], [0.0], [9.0], [0.0]]}, highest=10).state.sums[0]
    array([8.])
    """
    if not isinstance(description, Mapping):
        raise InvalidTypeError(
            f"moments are described by a dictionary, got {type(description).__name__}; give what to_dict() returned."
        )
    try:
        return _read_earlier(description) if "central" in description else _read(description, highest)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(f"this does not describe moments ({error}); compute them again.") from error


def _read(description: Mapping[str, Any], highest: int) -> Description:
    order, cross = description["order"], description["cross"]
    if type(order) is not int or not 1 <= order <= highest:
        raise ValueError(f"order {order!r:.40}")
    if type(cross) is not int or not 1 <= cross <= min(order, 2):
        raise ValueError(f"cross {cross!r:.40}")
    if "mean" not in description and description["count"] == 0:
        return Description(order, cross, None)
    mean = _mean(description)
    rest = _array(description, "rest", mean.shape)
    sums = _array(description, "sums", (max(order, 2) - 1, *mean.shape))
    products = _products(description, sums[0]) if cross == 2 else None
    state = CentralSums(_count(description), mean, rest, sums, products)
    _refuse_impossible(state)
    return Description(order, cross, state)


def _read_earlier(description: Mapping[str, Any]) -> Description:
    count, mean = _count(description), _mean(description)
    central = _array(description, "central", (4, *mean.shape))
    state = CentralSums(count, mean, np.zeros_like(mean), count * central, None)
    _refuse_impossible(state)
    return Description(5, 1, state)


def _count(description: Mapping[str, Any]) -> int | float:
    count = description["count"]
    if type(count) not in (int, float) or not 0 <= count <= sys.float_info.max:
        raise ValueError(f"moments of {count!r:.40} rows")
    return count  # type: ignore[no-any-return]


def _mean(description: Mapping[str, Any]) -> Floats:
    mean = np.asarray(description["mean"], dtype=np.float64)
    if mean.ndim != 1 or not mean.size or not np.isfinite(mean).all():
        raise ValueError(f"a mean of shape {mean.shape}, or one that is not finite")
    return mean


def _array(description: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Floats:
    array = np.asarray(description[name], dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name} of shape {array.shape} instead of {shape}, or not finite")
    return array


def _products(description: Mapping[str, Any], squares: Floats) -> Floats:
    products = _array(description, "products", (len(squares), len(squares)))
    if not np.allclose(products, products.T, rtol=1e-9, atol=1e-9 * float(squares.max())):
        raise ValueError("products that are not symmetric")
    return products


def _refuse_impossible(state: CentralSums) -> None:
    if (state.sums[::2] < 0.0).any():
        raise ValueError("even central sums below zero")
    if not state.count and (state.sums.any() or state.mean.any()):
        raise ValueError("moments of no rows")
