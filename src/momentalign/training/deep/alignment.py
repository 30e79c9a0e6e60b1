r"""The alignment term of a deep network: weighted distances between the domains, summed over the named layers.

Eq. (24) of Zellinger et al. (2019) with any number of layers and of distances:

.. math:: \sum_{\text{layer}} \sum_i w_i\, d_i(h(X_s), h(X_t)).

The weights are constant, as in the paper, or grow with the progress :math:`p` from 0 to 1 as in DANN:
:math:`2 / (1 + e^{-10 p}) - 1` (Y. Ganin et al., Domain-adversarial training of neural networks, 2016, Section 5.2.2).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from momentalign.discrepancies.base import DistanceLoss, Interval
from momentalign.discrepancies.names import named_class, named_distance
from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.moments.streaming import Moments
from momentalign.networks.layers import activation_interval, eval_mode, find_layer, network_outputs, recorded
from momentalign.training.deep.ranks import number_of_ranks
from momentalign.training.deep.source_free import MomentsLoss
from momentalign.validation import check_number, positive_int

__all__ = ["Alignment", "Discrepancy", "Schedule", "check_layers", "check_schedule", "check_weights", "distances_of"]


Distance: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Discrepancy: TypeAlias = Literal["cmd", "cv-cmd", "mmd", "coral", "dann"] | Distance | None


def check_layers(model: nn.Module, layer: str | Sequence[str]) -> list[str]:
    """Return the names of the layers to align, each of which the network has."""
    if not isinstance(layer, (str, Sequence)):
        raise InvalidTypeError(f"layer must be the name of a layer, or several, got {layer!r}; try layer='fc'.")
    names = [layer] if isinstance(layer, str) else list(layer)
    if not names or len(set(names)) != len(names):
        raise InvalidInputError(f"layer must name one or more different layers, got {layer!r}; try layer='fc'.")
    for name in names:
        find_layer(model, name)
    return names


class Alignment(nn.Module):
    """Distances at named layers: ``alignment(source, target)`` with activations by the layer's name.

    Parameters
    ----------
    model
        The network, looked at for the ranges of its layers.
    layers
        The names of the layers.
    discrepancy
        One distance or several: ``"cmd"``, ``"cv-cmd"``, ``"mmd"``, ``"coral"``, ``"dann"`` with the meaning of
        :func:`~momentalign.discrepancies.names.named_distance`, any callable of two matrices, or None for no distance.
        Every layer has a copy of its own.
    weight
        The weight of the distance, or one for each of several.
    n_moments, interval
        Settings of the CMD. An interval of None is taken from the layer's activation.
    example
        A batch of inputs, from which ``"dann"`` learns the widths of the layers.
    source_moments
        What is known of the source where its activations are not: the only distance then is ``"cmd"`` or ``"cv-cmd"``.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str],
        *,
        discrepancy: Discrepancy | Sequence[Discrepancy] = "cmd",
        weight: float | Sequence[float] = 1.0,
        n_moments: int = 5,
        interval: Interval | None = None,
        example: Any = None,
        source_moments: Moments | None = None,
    ) -> None:
        super().__init__()
        chosen = distances_of(discrepancy)
        if source_moments is not None and (len(layers) > 1 or chosen not in (["cmd"], ["cv-cmd"])):
            raise InvalidInputError(
                f"source_moments go with one layer and discrepancy 'cmd' or 'cv-cmd', got {discrepancy!r:.80} at "
                f"{', '.join(map(repr, layers))}; change these."
            )
        weights = check_weights(weight, len(chosen))
        wanted = [(kind, factor) for kind, factor in zip(chosen, weights, strict=True) if kind is not None]
        _refuse_without_effect([kind for kind, _ in wanted], n_moments, interval)
        self.weights = [factor for _, factor in wanted]
        self.layers = list(layers)

        needs_width = any(known.needs_width for known in map(named_class, chosen) if known is not None)
        widths = {} if example is None or not needs_width else _layer_widths(model, self.layers, example)

        def build(name: str, kind: Discrepancy) -> Distance:
            """The distance of one layer."""
            known, own, width = named_class(kind), interval, widths.get(name)
            if known is not None and known.needs_width and width is None:
                raise InvalidInputError(
                    f"discrepancy {kind!r} has to know the width of layer {name!r} to build its domain classifier; "
                    "give a batch of inputs as example=, or an AdversarialLoss(width)."
                )
            if known is not None and known.needs_interval:
                own = _interval(interval, find_layer(model, name), name, data_at_hand=source_moments is None)
            if source_moments is not None:
                return MomentsLoss(source_moments, n_moments, own, cross=2 if kind == "cv-cmd" else 1)
            distance = named_distance(kind, n_moments, width=width, interval=own or (0.0, 1.0))
            assert distance is not None  # noqa: S101
            return distance

        self._losses = [[build(name, kind) for kind, _ in wanted] for name in self.layers]
        self._is_joined = False
        self._joined_terms: dict[nn.Module, Tensor] = {}  # of the newest batch of all ranks
        # Losses with weights or buffers are trained, moved and saved with the network.
        self.modules_of_losses = nn.ModuleList(
            loss for losses in self._losses for loss in losses if isinstance(loss, nn.Module)
        )

    @property
    def needed(self) -> bool:
        """Whether there is any distance."""
        return bool(self.weights)

    def forward(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the weighted sum, to be minimised, and the plain sum, to be looked at.

        Where the source is known by its moments, `source` is empty.
        """
        values = [
            [self._distance(loss, source.get(name), target[name]) for loss in losses]
            for name, losses in zip(self.layers, self._losses, strict=True)
        ]
        by_loss = [sum(column[1:], column[0]) for column in zip(*values, strict=True)]
        weighted = [factor * value for factor, value in zip(self.weights, by_loss, strict=True)]
        return sum(weighted[1:], weighted[0]), sum(by_loss[1:], by_loss[0]).detach()

    def _distance(self, loss: Distance, source: Tensor | None, target: Tensor) -> Tensor:
        if self._is_joined and isinstance(loss, DistanceLoss) and not isinstance(loss.interval, str):
            terms = loss.orders(source, target)  # type: ignore[arg-type]
            if terms is not None:
                self._joined_terms[loss] = terms.detach()
                return terms.sum()
        return _scalar(loss, source, target)

    @torch.no_grad()
    def orders(self, source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the CMD of every order, with the layer's name and the distance's number where there are several.

        What the ranks have found together in the same step is not reduced again.
        """
        terms: dict[str, Tensor] = {}
        for name, losses in zip(self.layers, self._losses, strict=True):
            known = {
                number: self._joined_terms[loss]
                if loss in self._joined_terms
                else loss.orders(source[name].detach() if source else None, target[name].detach())  # type: ignore[arg-type]
                for number, loss in enumerate(losses, 1)
                if isinstance(loss, DistanceLoss)
            }
            found = {number: values for number, values in known.items() if values is not None}
            for number, values in found.items():
                path = (f"{name}/" if len(self.layers) > 1 else "") + (f"{number}/" if len(found) > 1 else "")
                terms |= {f"distance/{path}{order}": value for order, value in enumerate(values, 1)}
        return terms

    def join_ranks(self) -> None:
        """Compute the CMD of the joined batch where several processes train together."""
        self._is_joined = number_of_ranks() > 1
        if self._is_joined:
            for loss in self.modules_of_losses:
                if isinstance(loss, DistanceLoss):
                    loss.join_ranks(dist.group.WORLD)

    def intervals(self) -> list[Any]:
        """Return the intervals as they are now; those taken from data belong to the state of a run."""
        return [loss.interval if isinstance(loss.interval, str) else list(loss.interval) for loss in self._scaled()]  # type: ignore[arg-type]

    def set_intervals(self, intervals: Sequence[Any]) -> None:
        """Put back what :meth:`intervals` returned."""
        for loss, interval in zip(self._scaled(), intervals, strict=True):
            loss.interval = interval if interval == "data" else (interval[0], interval[1])

    def _scaled(self) -> list[DistanceLoss]:
        """The distances that have an interval."""
        known = [loss for loss in self.modules_of_losses if isinstance(loss, DistanceLoss)]
        return [loss for loss in known if loss.interval is not None]


def distances_of(discrepancy: Any) -> list[Any]:
    """Return the distances that are named or given, None among them."""
    several = isinstance(discrepancy, Sequence) and not isinstance(discrepancy, str)
    chosen = list(discrepancy) if several else [discrepancy]
    if not chosen:
        raise InvalidInputError("discrepancy is empty; give a distance, or None for the plain network.")
    return chosen


def _refuse_without_effect(distances: Sequence[Any], n_moments: int, interval: Interval | None) -> None:
    """Raise an error for settings of the CMD that would change nothing, as no distance is one by name."""
    positive_int(n_moments, "n_moments")
    known = [named_class(distance) for distance in distances]
    if not distances or any(kind is not None and kind.needs_interval for kind in known):
        return
    for name, value, default in (("n_moments", n_moments, 5), ("interval", interval, None)):
        if value != default:
            raise InvalidInputError(
                f"{name}={value!r} has no effect where no distance is 'cmd' or 'cv-cmd', got {distances!r:.80}; "
                "leave it out, or give it to the distance itself."
            )


def check_weights(weight: Any, count: int) -> list[float]:
    """Return one weight for each of so many distances."""
    weights = list(weight) if isinstance(weight, Sequence) and not isinstance(weight, str) else [weight] * count
    if len(weights) != count:
        raise InvalidInputError(f"weight has {len(weights)} numbers for {count} distances; give one for each.")
    return [check_number(value, "weight", least=0.0, example=1.0) for value in weights]


def _layer_widths(model: nn.Module, layers: Sequence[str], inputs: Any) -> dict[str, int]:
    """The features of named layers, from a pass that changes nothing in the network."""
    with eval_mode(model), torch.no_grad(), recorded(model, layers) as activations:
        network_outputs(model, inputs)
    return {name: values.shape[1] for name, values in activations.items()}


def _interval(interval: Interval | None, layer: nn.Module, name: str, *, data_at_hand: bool) -> Interval:
    """The range of a layer: the one given, else that of its activation, else that of the data."""
    found = activation_interval(layer) if interval is None else interval
    unseen = f"layer {name!r} ({type(layer).__name__}) has no bounded activation that can be seen"
    if not data_at_hand and (found is None or isinstance(found, str)):
        raise InvalidInputError(
            f"{unseen}, and moments do not know the range of the source's; give it as interval=(a, b)."
        )
    if found is not None:
        return found
    warnings.warn(
        f"{unseen}, so the range of its first pair of batches is taken as interval; pass interval=(a, b), or "
        'interval="data" if this is meant.',
        MomentAlignWarning,
        stacklevel=2,
    )
    return "data"


def _scalar(loss: Distance, source: Tensor | None, target: Tensor) -> Tensor:
    value = loss(source, target)  # type: ignore[arg-type]
    if isinstance(value, Tensor) and value.ndim == 0:
        return value
    raise InvalidTypeError(
        f"discrepancy must return a scalar torch tensor, got {value!r:.80}; "
        "return for instance difference.square().sum()."
    )


Schedule: TypeAlias = Literal["constant", "ramp"] | Callable[[float], float]


def check_schedule(schedule: Schedule, name: str = "schedule") -> Callable[[float], float]:
    """Return the factor on the weight as a function of progress.

    Examples
    --------
    >>> ramp = check_schedule("ramp")
    >>> ramp(0.0), round(ramp(0.5), 4), round(ramp(1.0), 4)
    (0.0, 0.9866, 0.9999)
    """
    if callable(schedule):
        return schedule
    if schedule == "constant":
        return lambda _progress: 1.0
    if schedule == "ramp":
        return lambda progress: 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0
    raise InvalidInputError(
        f"{name} must be 'constant', 'ramp' or a function of the progress in [0, 1], got {schedule!r}."
    )
