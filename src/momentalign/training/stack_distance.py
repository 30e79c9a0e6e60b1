"""The distance term of Eq. (24) for a stack of networks: one value per network, each with its own distance.

Networks that use a distance of this library are computed together; any other callable is called network by network.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from momentalign.discrepancies.base import DistanceLoss, Stacked, StackedDomains, stack_key
from momentalign.discrepancies.several_domains import Between, average_over_pairs
from momentalign.errors import InvalidInputError
from momentalign.training.config import Distance, NetworkSpec

__all__ = ["StackDistance", "own_distances", "stack_weights"]

StackWeights: TypeAlias = Mapping[type, Sequence[Tensor]]


class StackDistance:
    """Distances (stack,) of stacked activations (stack, rows, width).

    `weights` are those of :func:`stack_weights`, which the distances train along with the networks.
    """

    def __init__(self, specs: Sequence[NetworkSpec], weights: StackWeights | None = None) -> None:
        together: dict[tuple[Any, bool, Between, Any], list[int]] = {}
        for index, spec in enumerate(specs):
            if spec.distance is not None and spec.weight:
                domain_weights = spec.domain_weights
                numbers = domain_weights if isinstance(domain_weights, str) else tuple(domain_weights)
                own_key = stack_key(spec.distance)
                key = (index if own_key is None else own_key, own_key is not None, spec.between, numbers)
                together.setdefault(key, []).append(index)
        self._groups = [
            _Group([specs[index] for index in indices], indices, weights or {}, stacked=key[1])
            for key, indices in together.items()
        ]

    @property
    def needed(self) -> bool:
        """Whether any network has a distance at all."""
        return bool(self._groups)

    def __call__(
        self, source: Tensor, target: Tensor, sizes: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> Tensor:
        """Return one distance per network; zero for a network without.

        `sizes` are the numbers of rows of each source and of each target, one after the other in the batches, where
        there are several.
        """
        values = source.new_zeros(source.shape[0])
        for group in self._groups:
            if len(group.indices) == source.shape[0]:
                return group.distances(source, target, sizes, None)
            chosen = group.chosen(source.device)
            parts = source.index_select(0, chosen), target.index_select(0, chosen)
            values = values.index_put((chosen,), group.distances(*parts, sizes, chosen))
        return values


class _Group:
    """Networks of a stack whose distances are computed together, and what is compared where domains are several."""

    def __init__(self, own: Sequence[NetworkSpec], indices: list[int], weights: StackWeights, *, stacked: bool) -> None:
        losses = [spec.distance for spec in own]
        first, between, domain_weights = losses[0], own[0].between, own[0].domain_weights
        self.indices = indices
        self._chosen: Tensor | None = None
        self._weights: Sequence[Tensor] = ()
        self._stacked: Stacked
        self._for_domains: StackedDomains
        if isinstance(first, DistanceLoss) and stacked:
            self._weights = weights.get(type(first), ())
            self._stacked = first.stack(losses)
            self._for_domains = first.for_domains(losses, between, domain_weights)
        else:
            assert first is not None  # noqa: S101  (networks without a distance are in no group)
            self._stacked = partial(_call, first)
            self._for_domains = average_over_pairs(self._stacked, between, domain_weights, repr(first))

    def chosen(self, device: torch.device) -> Tensor:
        """Return the indices as a tensor, put on the device once: a recorded epoch may not copy from the host."""
        if self._chosen is None:
            self._chosen = torch.tensor(self.indices, device=device)
        return self._chosen

    def distances(
        self,
        source: Tensor,
        target: Tensor,
        sizes: tuple[Sequence[int], Sequence[int]] | None,
        chosen: Tensor | None,
    ) -> Tensor:
        """Return the distances of the networks of this group, whose activations are given."""
        weights = self._weights if chosen is None else [part.index_select(0, chosen) for part in self._weights]
        if sizes is None:
            return self._stacked(source, target, *weights)
        return self._for_domains(
            torch.split(source, list(sizes[0]), -2), torch.split(target, list(sizes[1]), -2), *weights
        )


def own_distances(specs: Sequence[NetworkSpec]) -> list[NetworkSpec]:
    """Return the networks with copies of the distances that are called one by one: some learn from what they are given.

    So a network in a stack is the network alone, and training changes no object of the caller's.
    """
    return [
        replace(spec, distance=copy.deepcopy(spec.distance))
        if isinstance(spec.distance, nn.Module) and stack_key(spec.distance) is None
        else spec
        for spec in specs
    ]


def stack_weights(
    specs: Sequence[NetworkSpec], width: int, *, dtype: torch.dtype, device: torch.device
) -> dict[type, list[Tensor]]:
    """Return the weights that the distances of a stack train, by the class of the distance; all start from zero.

    Every network has some, also one that does not use them. They are those of no loss object, whatever its state.
    """
    kinds = {type(spec.distance): spec.distance for spec in specs if isinstance(spec.distance, DistanceLoss)}
    shapes = {kind: distance.stack_weights(width) for kind, distance in kinds.items()}
    return {
        kind: [torch.zeros(len(specs), *shape, dtype=dtype, device=device, requires_grad=True) for shape in own]
        for kind, own in shapes.items()
        if own
    }


def _call(distance: Distance, source: Tensor, target: Tensor) -> Tensor:
    if isinstance(distance, nn.Module) and any(True for _ in distance.parameters()):
        raise InvalidInputError(
            f"discrepancy {type(distance).__name__} has weights of its own, which a stack does not train; use "
            '"dann" or AdversarialLoss without hidden layers, or train with your own loop.'
        )
    value = distance(source[0], target[0])
    attached = isinstance(value, Tensor) and (value.requires_grad or not source.requires_grad)
    if isinstance(value, Tensor) and value.ndim == 0 and (attached or not torch.is_grad_enabled()):
        return value[None]
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    raise InvalidInputError(
        "discrepancy must return a scalar torch tensor that depends on the activations it was given, got "
        f"{type(value).__name__}{shape}; return for instance difference.square().sum()."
    )
