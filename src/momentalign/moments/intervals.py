"""The interval [a, b] that values lie in: its length weighs the orders of the distance (Proposition 1)."""

from __future__ import annotations

import math

from momentalign.errors import InvalidInputError

__all__ = ["interval_length"]


def interval_length(interval: object) -> float:
    """Return |b - a| of an interval given as a pair, or say what is wrong with it."""
    try:
        if isinstance(interval, str):
            raise TypeError
        a, b = (float(bound) for bound in interval)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f'interval must be a pair (a, b) or "data", got {interval!r}; try interval=(0.0, 1.0).'
        ) from None
    if not math.isfinite(b - a) or a == b:
        raise InvalidInputError(f"interval must be finite and not empty, got {interval!r}; try interval=(0.0, 1.0).")
    return abs(b - a)
