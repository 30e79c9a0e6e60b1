"""The distance term of Eq. (24) for a stack: one value per network, each with its own distance.

Networks that use a distance of this library are computed together; any other callable is called network by network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from momentalign.discrepancies.adversarial import AdversarialLoss, stacked_adversarial
from momentalign.discrepancies.central_moment import CMDLoss, stacked_terms
from momentalign.discrepancies.correlation import CORALLoss, stacked_coral
from momentalign.discrepancies.domain_pairs import Between, DomainWeights, mean_of_pairs
from momentalign.discrepancies.maximum_mean import MMDLoss, stacked_median_betas, stacked_mmd
from momentalign.discrepancies.several_domains import stacked_domains
from momentalign.errors import InvalidInputError
from momentalign.moments.intervals import interval_length
from momentalign.training.recipe import Distance, Member

__all__ = ["StackDistance", "adversaries"]


class _Way(NamedTuple):
    """How some networks are computed together: the kind of distance, and what it compares where domains are several."""

    kind: str
    between: Between
    weights: DomainWeights


class StackDistance:
    """Distances (stack,) of stacked activations (stack, rows, width).

    `adversaries` are the weights (stack, width, 1) and biases (stack, 1, 1) of :func:`adversaries`. The MMD compares
    all pairs of rows; of samples larger than `mmd_rows` so many are drawn by `generator`, anew for every call.
    """

    def __init__(
        self,
        members: Sequence[Member],
        adversaries: Sequence[Tensor] = (),
        *,
        mmd_rows: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.members = list(members)
        self._adversaries = list(adversaries)
        self._mmd_rows, self._generator = mmd_rows, generator
        self._groups = _group(members)
        self._kept: dict[str, Tensor] = {}

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
        for way, indices in self._groups.items():
            if len(indices) == source.shape[0]:
                return self._compare(way, indices, source, target, sizes)
            chosen = self._constant(f"{way} members", indices, source)
            parts = source.index_select(0, chosen), target.index_select(0, chosen)
            values = values.index_put((chosen,), self._compare(way, indices, *parts, sizes))
        return values

    def _compare(
        self,
        way: _Way,
        indices: Sequence[int],
        source: Tensor,
        target: Tensor,
        sizes: tuple[Sequence[int], Sequence[int]] | None,
    ) -> Tensor:
        if sizes is None or way.kind == "dann":  # One domain classifier tells all sources from all targets.
            return self._evaluate(way.kind, indices, source, target)
        sources, targets = torch.split(source, list(sizes[0]), -2), torch.split(target, list(sizes[1]), -2)
        if way.kind.startswith("cmd cross=1 "):
            return self._domains_cmd(way, indices, sources, targets)
        if way.between == "barycentre":
            raise InvalidInputError(
                'between="barycentre" is a mean of moments, which only discrepancy="cmd" compares, got '
                f'{self.members[indices[0]].distance!r}; try between="pairs" or discrepancy="cmd".'
            )
        samples = [*sources, target] if way.between == "pooled" else [*sources, *targets]
        return mean_of_pairs(
            lambda left, right: torch.stack(
                [self._evaluate(way.kind, indices, samples[d], samples[e]) for d, e in zip(left, right, strict=True)]
            ),
            [sample.shape[-2] for sample in samples],
            len(sources),
            between=way.between,
            weights=way.weights,
        )

    def _domains_cmd(
        self, way: _Way, indices: Sequence[int], sources: Sequence[Tensor], targets: Sequence[Tensor]
    ) -> Tensor:
        """The CMD of several domains: networks together where their orders are the same, else one by one."""
        losses = [loss for loss in (self.members[index].distance for index in indices) if isinstance(loss, CMDLoss)]
        scale = interval_length(losses[0].interval)
        together = len({loss.n_moments for loss in losses}) == 1
        parts = [slice(None)] if together else [slice(place, place + 1) for place in range(len(losses))]
        return torch.cat(
            [
                stacked_domains(
                    [sample[part] for sample in sources],
                    [sample[part] for sample in targets],
                    loss.n_moments,
                    scale=scale,
                    between=way.between,
                    weights=way.weights,
                )
                for part, loss in zip(parts, losses, strict=False)
            ]
        )

    def _constant(self, name: str, numbers: Sequence[float], like: Tensor) -> Tensor:
        """Numbers as a tensor, put on the device once: a recorded epoch may not copy from the host."""
        if name not in self._kept:
            dtype = torch.float64 if isinstance(numbers[0], float) else torch.int64
            self._kept[name] = torch.tensor(numbers, device=like.device, dtype=dtype)
        return self._kept[name]

    def _evaluate(self, key: str, indices: Sequence[int], source: Tensor, target: Tensor) -> Tensor:
        distances = [self.members[index].distance for index in indices]
        if key.startswith("cmd"):
            return self._cmd(key, [d for d in distances if isinstance(d, CMDLoss)], source, target)
        if key.startswith("mmd"):
            losses = [d for d in distances if isinstance(d, MMDLoss)]
            return self._mmd(losses, self._some_rows(source), self._some_rows(target))
        if key == "coral":
            return stacked_coral(source, target)
        if key == "dann":
            return stacked_adversarial(source, target, *self._adversaries_of(indices, source))
        (distance,) = distances
        return _call(distance, source[0], target[0])

    def _mmd(self, losses: Sequence[MMDLoss], source: Tensor, target: Tensor) -> Tensor:
        if losses[0].has_median_widths:
            return stacked_mmd(source, target, stacked_median_betas(source, target, losses[0].kernel))
        betas = self._constant("betas", [float(d.beta) for d in losses], source)  # type: ignore[arg-type]
        return stacked_mmd(source, target, betas.to(source.dtype))

    def _some_rows(self, sample: Tensor) -> Tensor:
        if self._mmd_rows is None or sample.shape[1] <= self._mmd_rows:
            return sample
        chosen = torch.randperm(sample.shape[1], generator=self._generator, device=sample.device)[: self._mmd_rows]
        return sample.index_select(1, chosen)

    def _adversaries_of(self, indices: Sequence[int], source: Tensor) -> list[Tensor]:
        if len(indices) == len(self.members):
            return self._adversaries
        return [part.index_select(0, self._constant("dann members", indices, source)) for part in self._adversaries]

    def _cmd(self, key: str, losses: Sequence[CMDLoss], source: Tensor, target: Tensor) -> Tensor:
        """All networks up to the highest order among them; each counts its own orders only."""
        orders = [loss.n_moments for loss in losses]
        scale = interval_length(losses[0].interval)
        terms = stacked_terms(source, target, max(orders), scale=scale, cross=losses[0].cross)
        if min(orders) == max(orders):
            return terms.sum(-1)
        limits = self._constant(f"{key} orders", orders, terms)
        return (terms * (torch.arange(max(orders), device=terms.device) < limits[:, None])).sum(-1)


def _group(members: Sequence[Member]) -> dict[_Way, list[int]]:
    """Indices of the networks that can be computed together, by how."""
    groups: dict[_Way, list[int]] = {}
    for index, member in enumerate(members):
        if member.distance is not None and member.weight:
            weights = member.domain_weights
            numbers = weights if isinstance(weights, str) else tuple(weights)
            way = _Way(_key(member.distance, index), member.between, numbers)
            groups.setdefault(way, []).append(index)
    return groups


def _key(distance: Distance, index: int) -> str:
    if type(distance) is CMDLoss and not distance.unbiased and distance.interval != "data":
        return f"cmd cross={distance.cross} scale={interval_length(distance.interval)}"
    if type(distance) is MMDLoss and distance.is_plain_gaussian:
        return "mmd"
    if type(distance) is MMDLoss and distance.has_median_widths:
        return f"mmd {distance.kernel} median"
    if type(distance) is AdversarialLoss and not distance.hidden:
        return "dann"
    return "coral" if type(distance) is CORALLoss else f"call {index}"


def adversaries(members: Sequence[Member], width: int, *, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return the domain classifiers of a stack, weights and biases from zero, to be trained; none where none is used.

    Each is a linear classifier of its own, whatever the state of the :class:`AdversarialLoss` that asks for it.
    """
    if not any(type(member.distance) is AdversarialLoss for member in members):
        return []
    weight = torch.zeros(len(members), width, 1, dtype=dtype, device=device)
    bias = torch.zeros(len(members), 1, 1, dtype=dtype, device=device)
    return [weight.requires_grad_(), bias.requires_grad_()]


def _call(distance: Distance | None, source: Tensor, target: Tensor) -> Tensor:
    if isinstance(distance, nn.Module) and any(True for _ in distance.parameters()):
        raise InvalidInputError(
            f"discrepancy {type(distance).__name__} has weights of its own, which a stack does not train; use "
            '"dann" or AdversarialLoss without hidden layers, or train with your own loop.'
        )
    value = distance(source, target) if distance is not None else None
    attached = isinstance(value, Tensor) and (value.requires_grad or not source.requires_grad)
    if isinstance(value, Tensor) and value.ndim == 0 and (attached or not torch.is_grad_enabled()):
        return value[None]
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    raise InvalidInputError(
        "discrepancy must return a scalar torch tensor that depends on the activations it was given, got "
        f"{type(value).__name__}{shape}; return for instance difference.square().sum()."
    )
