r"""How the weight of the alignment grows during training: not at all, as in the paper, or as in DANN.

The ramp of Y. Ganin et al., Domain-adversarial training of neural networks, 2016, Section 5.2.2:
:math:`2 / (1 + e^{-10 p}) - 1` at progress :math:`p` from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from momentalign.errors import InvalidInputError

__all__ = ["Schedule", "read_schedule"]

Schedule: TypeAlias = Literal["constant", "ramp"] | Callable[[float], float]


def read_schedule(schedule: Schedule) -> Callable[[float], float]:
    """Return the factor on the weight as a function of progress.

    Examples
    --------
    >>> ramp = read_schedule("ramp")
    >>> ramp(0.0), round(ramp(0.5), 4), round(ramp(1.0), 4)
    (0.0, 0.9866, 0.9999)
    """
    if callable(schedule):
        return schedule
    if schedule == "constant":
        return _constant
    if schedule == "ramp":
        return _ramp
    raise InvalidInputError(
        f"schedule must be 'constant', 'ramp' or a function of the progress in [0, 1], got {schedule!r}."
    )


def _constant(_progress: float) -> float:
    return 1.0


def _ramp(progress: float) -> float:
    return 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0
