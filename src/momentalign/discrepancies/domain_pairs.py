"""Several domains: which of them are compared, and how much each comparison counts, whatever the distance.

The formulas stand in :func:`~momentalign.discrepancies.several_domains.multi_domain_cmd`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = [
    "TEMPERATURE",
    "Between",
    "DomainWeights",
    "along",
    "average_over_pairs",
    "mean_of_pairs",
    "read_between",
    "read_domain_weights",
    "refuse_other_count",
    "weights_of",
]

Between: TypeAlias = Literal["pooled", "pairs", "barycentre"]
DomainWeights: TypeAlias = Literal["equal", "size", "similarity"] | Sequence[float]
Compare: TypeAlias = Callable[[Sequence[int], Sequence[int]], Tensor]

# A source this part of the mean distance farther away weighs 1/e as much.
TEMPERATURE = 0.2


def read_between(value: object) -> Between:
    """Return which domains are compared, or say what can be meant."""
    for known in get_args(Between):
        if isinstance(value, str) and value == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInputError(f'between must be "pooled", "pairs" or "barycentre", got {value!r}.')


def read_domain_weights(value: object) -> Literal["equal", "size", "similarity"] | tuple[float, ...]:
    """Return the weights of the domains as a name or as numbers, or say what is wrong with them."""
    for known in ("equal", "size", "similarity"):
        if isinstance(value, str) and value == known:
            return known
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise InvalidInputError(
            f'domain_weights must be "equal", "size", "similarity" or one number per source, got {value!r}.'
        )
    weights = tuple(value)
    if not all(isinstance(weight, numbers.Real) and not isinstance(weight, bool) for weight in weights):
        raise InvalidTypeError(f"domain_weights must hold numbers, got {value!r}; try [1.0, 2.0] for two sources.")
    found = tuple(float(weight) for weight in weights)
    if not all(math.isfinite(weight) and weight >= 0.0 for weight in found) or sum(found) <= 0.0:
        raise InvalidInputError(
            f"domain_weights must be finite, none negative and one positive at least, got {value!r}."
        )
    return found


def refuse_other_count(weights: DomainWeights, n_sources: int) -> None:
    """Raise where weights are numbers, but not one per source."""
    if not isinstance(weights, str) and len(weights) != n_sources:
        raise InvalidInputError(
            f"domain_weights has {len(weights)} numbers for {n_sources} sources; give one number per source."
        )


def average_over_pairs(
    stacked: Callable[..., Tensor], between: Between, weights: DomainWeights, description: str
) -> Callable[..., Tensor]:
    """Return a stacked distance of two samples as one of lists of them: the mean over pairs of domains."""

    def distances(sources: Sequence[Tensor], targets: Sequence[Tensor], *trained: Tensor) -> Tensor:
        if between == "barycentre":
            raise InvalidInputError(
                'between="barycentre" is a mean of moments, which only discrepancy="cmd" compares, got '
                f'{description}; try between="pairs" or discrepancy="cmd".'
            )
        samples = [*sources, torch.cat(list(targets), -2)] if between == "pooled" else [*sources, *targets]

        def compare(left: Sequence[int], right: Sequence[int]) -> Tensor:
            pairs = zip(left, right, strict=True)
            return torch.stack([stacked(samples[d], samples[e], *trained) for d, e in pairs])

        sizes = [sample.shape[-2] for sample in samples]
        return mean_of_pairs(compare, sizes, len(sources), between=between, weights=weights)

    return distances


def mean_of_pairs(
    compare: Compare, sizes: Sequence[int], n_sources: int, *, between: Between, weights: DomainWeights
) -> Tensor:
    """Return the weighted mean of the distances of pairs of domains, whatever the distance.

    ``compare(left, right)`` gives the distances (pairs, ...) of domains by their numbers, sources first; `sizes` are
    their numbers of rows. For ``"pooled"`` there is one target.

    Examples
    --------
    >>> places = torch.tensor([0.0, 1.0, 3.0])
    >>> def compare(left, right):
    ...     return (places[list(left)] - places[list(right)]).abs()
    >>> [mean_of_pairs(compare, [9, 9, 9], 2, between=way, weights="equal").item() for way in ("pooled", "pairs")]
    [2.5, 2.0]
    """
    own = weights_of(compare, sizes, n_sources, weights)
    if between == "pooled":
        pairs = [(source, n_sources) for source in range(n_sources)]
        factors = own[:n_sources]
    else:
        pairs = list(combinations(range(len(sizes)), 2))
        factors = torch.stack([own[left] * own[right] for left, right in pairs])
    left, right = zip(*pairs, strict=True)
    distances = compare(left, right)
    return (along(factors, distances) * distances).sum(0) / factors.sum(0).to(distances)


def weights_of(compare: Compare, sizes: Sequence[int], n_sources: int, weights: DomainWeights) -> Tensor:
    """Return the weights u of all domains, sources first: (domains,), or (domains, ...) where samples decide."""
    n_targets = len(sizes) - n_sources
    if weights == "similarity":
        return _nearness(compare, n_sources, n_targets)
    if weights == "equal":
        return torch.ones(len(sizes), dtype=torch.float64)
    if weights == "size":
        return torch.tensor(sizes, dtype=torch.float64)
    refuse_other_count(weights, n_sources)
    mean = math.fsum(weights) / n_sources
    return torch.tensor([*(weight / mean for weight in weights), *[1.0] * n_targets], dtype=torch.float64)


def _nearness(compare: Compare, n_sources: int, n_targets: int) -> Tensor:
    """Weights that fall with the distance to the targets; the temperature follows the distances as they shrink."""
    with torch.no_grad():
        left, right = zip(*product(range(n_sources), range(n_sources, n_sources + n_targets)), strict=True)
        pairs = compare(left, right)
        far = pairs.reshape(n_sources, n_targets, *pairs.shape[1:]).mean(1)
        mean = far.mean(0)
        near = n_sources * torch.softmax(-far / (TEMPERATURE * torch.where(mean > 0, mean, 1.0)), 0)
        return torch.cat([near, near.new_ones(n_targets, *near.shape[1:])])


def along(factors: Tensor, values: Tensor) -> Tensor:
    """Return factors (n,) or (n, ...) as they multiply values (n, ...)."""
    return factors.to(values).reshape(*factors.shape, *[1] * (values.ndim - factors.ndim))
