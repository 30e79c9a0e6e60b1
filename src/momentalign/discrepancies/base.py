"""What a distance of this library knows of itself, so that nothing else has to ask for its type.

A distance is a loss of two batches of activations. Whoever trains may ask it for its form for a stack of networks, for
several domains and for the compiled loops; :mod:`~momentalign.discrepancies.names` gives it a name. To add one, derive
a class from :class:`DistanceLoss`, override what it can do faster than network by network, and add it to that table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from momentalign.discrepancies.several_domains import Between, DomainWeights, average_over_pairs

__all__ = [
    "Compiled",
    "Constants",
    "DistanceLoss",
    "Interval",
    "Stacked",
    "StackedDomains",
    "compiled_form",
]

Interval: TypeAlias = tuple[float, float] | Literal["data"]
# Of samples (networks, rows, width), and the weights the distance trains; gives one value per network.
Stacked: TypeAlias = Callable[..., Tensor]
# The same of lists of samples, sources first.
StackedDomains: TypeAlias = Callable[..., Tensor]


class Compiled(NamedTuple):
    """How the compiled training loops compute a distance.

    `kind` is its name in :mod:`~momentalign.training.compiled_engine`, `several` that of its form for several domains,
    None where the loops have none. A `beta` of 0 is the median heuristic.
    """

    kind: str
    order: int = 1
    scale: float = 1.0
    beta: float = 1.0
    several: str | None = None


class DistanceLoss(nn.Module):
    """A distance of two batches of activations (rows, width), ``loss(source, target)``, and what it knows of itself.

    A subclass with a `forward` of its own inherits neither the stacked nor the compiled form: they are of another
    formula.
    """

    needs_width: ClassVar[bool] = False
    """Whether it has to be told the number of features beforehand."""
    needs_interval: ClassVar[bool] = False
    """Whether it has to be told the range of the activations."""

    settings: ClassVar[tuple[str, ...]] = ()
    """The names of its settings, each an attribute and an argument of its function."""

    interval: Interval | None = None
    """The range of the activations, for distances that are scaled by it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forward" in vars(cls):
            for form in ("stack_key", "compiled", "orders"):
                if form not in vars(cls):
                    setattr(cls, form, vars(DistanceLoss)[form])

    @property
    def name(self) -> str | None:
        """The name of this distance in the table of names; None where it has none."""
        return None

    @classmethod
    def from_name(cls, name: str, *, n_moments: int, interval: Interval, width: int | None) -> Self:  # noqa: ARG003
        """Return the distance a name of the table stands for."""
        return cls()

    @property
    def stack_key(self) -> Hashable | None:
        """Distances of one class with equal keys are computed together; None: network by network."""
        return None

    @staticmethod
    def stack(losses: Sequence[Any]) -> Stacked:
        """Return the distances of stacked samples as a function, for losses of equal keys, one per network."""
        raise NotImplementedError

    @classmethod
    def for_domains(cls, losses: Sequence[Any], between: Between, weights: DomainWeights) -> StackedDomains:
        """Return the stacked distances of several sources and several targets as a function."""
        return average_over_pairs(cls.stack(losses), between, weights, repr(losses[0]))

    @staticmethod
    def stack_weights(width: int) -> tuple[tuple[int, ...], ...]:  # noqa: ARG004
        """Return the shapes of weights that each network of a stack trains for its distance, from zero."""
        return ()

    def compiled(self) -> Compiled | None:
        """Return how the compiled training loops compute this distance; None where they do not."""
        return None

    def orders(self, source: Tensor, target: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the terms the distance is a sum of; None where it is no such sum."""
        return None

    def given_settings(self) -> dict[str, Any]:
        """Return the settings by their names."""
        return {name: getattr(self, name) for name in self.settings}

    def extra_repr(self) -> str:
        """Return the settings as torch prints them."""
        return ", ".join(f"{name}={value!r}" for name, value in self.given_settings().items())

    def join_ranks(self, group: dist.ProcessGroup | None) -> None:
        """Compute the distance of the batch that the processes of a group have together, where that is known."""


def compiled_form(distance: object) -> Compiled | None:
    """Return how the compiled training loops compute a distance; None where they do not know it."""
    return distance.compiled() if isinstance(distance, DistanceLoss) else None


class Constants:
    """Numbers put on a device once, when they are first needed: a recorded epoch may not copy from the host."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = torch.tensor(list(values), dtype=torch.float64)
        self._kept: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def to(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the numbers on a device."""
        key = (device, dtype)
        if key not in self._kept:
            self._kept[key] = self._values.to(device, dtype)
        return self._kept[key]
