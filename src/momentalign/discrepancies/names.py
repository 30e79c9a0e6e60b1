"""The names of the distances: one table, for the estimators, for ``ma.adapt`` and for the command."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.base import DistanceLoss, Interval
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.coral import CORALLoss
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.discrepancies.several_domains import MultiDomainCMDLoss
from momentalign.errors import InvalidInputError
from momentalign.validation import positive_int

__all__ = ["DISTANCES", "named_class", "named_distance"]

DISTANCES: dict[str, type[DistanceLoss]] = {
    "cmd": CMDLoss,
    "cv-cmd": CMDLoss,
    "mmd": MMDLoss,
    "coral": CORALLoss,
    "dann": AdversarialLoss,
}


def named_distance(
    discrepancy: Any, n_moments: int = 5, *, width: int | None = None, interval: Interval = (0.0, 1.0)
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return the distance of `width` activations with values in `interval` that a name stands for.

    ``"cmd"``: :class:`~momentalign.CMDLoss` of `n_moments`; ``"cv-cmd"``: with all cross-variances; ``"mmd"``:
    :class:`~momentalign.MMDLoss`, one Gaussian kernel, its width by the median heuristic; ``"coral"``:
    :class:`~momentalign.CORALLoss`; ``"dann"``: :class:`~momentalign.AdversarialLoss`, a logistic regression that tells
    the domains apart. A callable is taken as it is, of a module a copy: training must not change what the caller gave.
    None stays None.

    Examples
    --------
    >>> named_distance("cv-cmd", 3)
    CMDLoss(n_moments=3, interval=(0.0, 1.0), cross=2, unbiased=False)
    """
    if discrepancy is None:
        return None
    if isinstance(discrepancy, MultiDomainCMDLoss):
        raise InvalidInputError(
            f'discrepancy compares two samples, {discrepancy} takes lists of them; give discrepancy="cmd" with between '
            "and domain_weights."
        )
    if callable(discrepancy):
        return copy.deepcopy(discrepancy) if isinstance(discrepancy, nn.Module) else discrepancy
    if isinstance(discrepancy, str) and discrepancy in DISTANCES:
        order = positive_int(n_moments, "n_moments")
        return DISTANCES[discrepancy].from_name(discrepancy, n_moments=order, interval=interval, width=width)
    names = ", ".join(f'"{name}"' for name in DISTANCES)
    raise InvalidInputError(f'discrepancy must be {names}, None or a callable, got {discrepancy!r}; try "cmd".')


def named_class(discrepancy: object) -> type[DistanceLoss] | None:
    """Return the class a name stands for, which says what it has to be told; None for what is no name."""
    return DISTANCES.get(discrepancy) if isinstance(discrepancy, str) else None
