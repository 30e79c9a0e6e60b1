r"""How far a sample of n rows may be from its law: deviations of means and of central moments on [a, b].

Hoeffding (1963), *Probability inequalities for sums of bounded random variables*, for rows drawn independently from one
law and a function that was fixed before they were drawn. Rows that a model was trained on are not such rows.
"""

from __future__ import annotations

import math

from momentalign.errors import InvalidInputError
from momentalign.moments.intervals import interval_length
from momentalign.moments.sample import read_order

__all__ = ["central_moment_deviation", "mean_deviation", "read_confidence"]


def mean_deviation(
    rows: int, *, confidence: float = 0.95, interval: tuple[float, float] = (0.0, 1.0), statements: int = 1
) -> float:
    r"""Return Hoeffding's t: the sample mean is less than t below the expectation.

    .. math:: t = |b - a| \sqrt{\frac{\ln (s / \delta)}{2 n}}, \qquad
        P\big( \mathbb E[x] - \bar x \ge t \big) \le \frac{\delta}{s}

    Parameters
    ----------
    rows
        The number n of independent rows.
    confidence
        :math:`1 - \delta`.
    interval
        The values lie in [a, b].
    statements
        The number s of one-sided statements that shall hold together with this confidence; "not more than t above" is
        another one.

    Examples
    --------
    >>> round(mean_deviation(1000), 4), round(mean_deviation(1000, statements=2), 4)
    (0.0387, 0.0429)
    """
    count, several = read_order(rows, "rows", example="1000"), read_order(statements, "statements", example="1")
    return interval_length(interval) * math.sqrt(
        math.log(several / (1.0 - read_confidence(confidence))) / (2.0 * count)
    )


def central_moment_deviation(
    order: int, rows: int, *, confidence: float = 0.95, interval: tuple[float, float] = (0.0, 1.0), statements: int = 1
) -> float:
    r"""Return t with :math:`|\hat c_j - c_j| \le t` for the mean (j = 1) or the central moment of one feature.

    .. math:: t = |b - a|^j \sqrt{\frac{\ln (2 s / \delta)}{2 n}} \quad (j = 1), \qquad
        t = (1 + j)\, |b - a|^j \sqrt{\frac{\ln (4 s / \delta)}{2 n}} \quad (j \ge 2)

    Parameters
    ----------
    order
        The order j.
    rows, confidence, interval, statements
        As in :func:`mean_deviation`; here a statement is two-sided.

    Notes
    -----
    For :math:`j \ge 2` the sample mean stands where the expectation should. With
    :math:`q(t) = \frac1n \sum_i (x_i - t)^j` the error is

    .. math:: \hat c_j - c_j = \big( q(\mu) - c_j \big) + \big( q(\bar x) - q(\mu) \big).

    The first part is the deviation of a mean of :math:`(x - \mu)^j`, whose values fill an interval no longer than
    :math:`|b - a|^j`; the second is at most :math:`\sup |q'| \, |\bar x - \mu| \le j |b-a|^{j-1} |\bar x - \mu|`.
    Both are held by Hoeffding, each on two sides: four statements. No bias is left out.

    Examples
    --------
    >>> round(central_moment_deviation(1, 1000), 4), round(central_moment_deviation(2, 1000), 4)
    (0.0429, 0.1404)
    """
    length, j = interval_length(interval), read_order(order, "order")
    sides, factor = (2, 1.0) if j == 1 else (4, 1.0 + j)
    return factor * length**j * mean_deviation(rows, confidence=confidence, statements=sides * statements)


def read_confidence(confidence: float) -> float:
    """Return a confidence between 0 and 1, or say what is wrong with it."""
    if isinstance(confidence, (int, float)) and 0.0 < confidence < 1.0:
        return float(confidence)
    raise InvalidInputError(f"confidence must be between 0 and 1, got {confidence!r}; try confidence=0.95.")
