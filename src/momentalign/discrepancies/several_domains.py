r"""The CMD of several source and several target domains: moments of each once, differences between them.

Two domains are compared as in Eq. (23) of Zellinger et al. (2019). That the distance to a mixture of sources can be
controlled source by source is the starting point of

    S. Ben-David, J. Blitzer, K. Crammer, A. Kulesza, F. Pereira, J. W. Vaughan: A theory of learning from different
    domains. Machine Learning 79, 2010;

moments of all pairs of domains are matched in

    X. Peng, Q. Bai, X. Xia, Z. Huang, K. Saenko, B. Wang: Moment matching for multi-source domain adaptation.
    ICCV 2019.

Here these are central moments, and the sum of their norms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any, Literal, TypeAlias, get_args, overload

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.sample import (
    Marginals,
    full_precision,
    marginal_terms,
    read_samples,
    refuse_non_finite,
    sample_moments,
)
from momentalign.validation import (
    check_choice,
    check_domain_weights,
    check_interval,
    positive_int,
    refuse_other_count,
)

__all__ = [
    "TEMPERATURE",
    "Between",
    "DomainWeights",
    "MultiDomainCMDLoss",
    "average_over_pairs",
    "mean_of_pairs",
    "multi_domain_cmd",
    "stacked_domains",
]

Between: TypeAlias = Literal["pooled", "pairs", "barycentre"]
DomainWeights: TypeAlias = Literal["equal", "size", "similarity"] | Sequence[float]
Compare: TypeAlias = Callable[[Sequence[int], Sequence[int]], Tensor]

# A source this part of the mean distance farther away weighs 1/e as much.
TEMPERATURE = 0.2
REMEDY = "give the range of the activations as interval=(a, b), scale them, or lower n_moments"


@overload
def multi_domain_cmd(
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    *,
    n_moments: int = ...,
    interval: tuple[float, float] = ...,
    between: Between = ...,
    domain_weights: DomainWeights = ...,
) -> Tensor: ...
@overload
def multi_domain_cmd(
    sources: Sequence[ArrayLike],
    targets: Sequence[ArrayLike],
    *,
    n_moments: int = ...,
    interval: tuple[float, float] = ...,
    between: Between = ...,
    domain_weights: DomainWeights = ...,
) -> float: ...
def multi_domain_cmd(
    sources: Sequence[Any],
    targets: Sequence[Any],
    *,
    n_moments: int = 5,
    interval: tuple[float, float] = (0.0, 1.0),
    between: Between = "pooled",
    domain_weights: DomainWeights = "equal",
) -> Tensor | float:
    r"""Central Moment Discrepancy of several source and several target samples.

    The moments of each domain are computed once; between domains only differences of moments are taken, so that the
    cost grows with the number of rows, not with the number of pairs of domains. With one source and one target each of
    the three is :func:`~momentalign.discrepancies.central_moment.cmd`.

    With weights :math:`u_d \ge 0` of the domains and :math:`\bar u_d = u_d / \sum_e u_e`:

    ``"pooled"``: each of the p sources to all target rows taken as one sample T,

    .. math:: \sum_{s \le p} \frac{u_s}{\sum_{r \le p} u_r} \, \mathrm{cmd}_k(S_s, T).

    ``"pairs"``: the mean over all pairs of domains, sources among themselves and targets among themselves included,

    .. math:: \sum_{d < e} u_d u_e \, \mathrm{cmd}_k(d, e) \Big/ \sum_{d < e} u_d u_e.

    ``"barycentre"``: every domain to the barycentre of moments :math:`\bar c_j = \sum_d \bar u_d\, c_j(d)`; never more
    than ``"pairs"``, by the triangle inequality,

    .. math:: \frac{1}{1 - \sum_d \bar u_d^2} \sum_d \bar u_d
              \sum_{j=1}^k \frac{1}{|b-a|^j} \lVert c_j(d) - \bar c_j \rVert_2.

    Parameters
    ----------
    sources, targets
        Lists of samples (rows, width), of any numbers of rows and of one width. Torch tensors give a differentiable
        scalar, arrays a float. Columns are taken by position; where several samples name them, the names must agree.
    n_moments, interval
        As in :func:`~momentalign.discrepancies.central_moment.cmd`; ``interval="data"`` is not known here.
    between
        Which domains are compared, as above.
    domain_weights
        ``"equal"``: all weigh 1. ``"size"``: as many as they have rows. ``"similarity"``: sources near to the target
        weigh more, :math:`u_s = p \operatorname{softmax}_s(-\delta_s / (0.2\,\bar\delta))` with :math:`\delta_s` the
        mean CMD of source s to the targets (to T for ``"pooled"``) and :math:`\bar\delta` the mean of these; targets
        weigh 1, and no gradient flows through the weights. A sequence: one number per source, of which only the ratios
        count; targets weigh as much as the mean source.

    Examples
    --------
    >>> import momentalign as ma
    >>> near, far, target = [[0.0], [1.0]], [[0.0], [0.0]], [[0.5], [0.5]]
    >>> ma.multi_domain_cmd([near, far], [target], n_moments=2)
    0.375
    >>> ma.multi_domain_cmd([near, far], [target], n_moments=2, domain_weights=[3.0, 1.0])
    0.3125
    """
    settings = _check_settings(n_moments, interval, between, domain_weights)
    named = {**_named(sources, "sources"), **_named(targets, "targets")}
    samples, differentiable = read_samples(named)
    with full_precision(samples[0].device):
        value = stacked_domains(samples[: len(sources)], samples[len(sources) :], **settings)
    refuse_non_finite(value, dict(zip(named, samples, strict=True)), remedy=REMEDY)
    return value if differentiable else float(value)


class MultiDomainCMDLoss(nn.Module):
    """:func:`multi_domain_cmd` as a loss: ``loss = MultiDomainCMDLoss(); loss(sources, targets)`` of lists of batches.

    Parameters
    ----------
    n_moments, interval, between, domain_weights
        As in :func:`multi_domain_cmd`.

    Examples
    --------
    >>> import torch
    >>> loss = MultiDomainCMDLoss(n_moments=3, between="pairs")
    >>> loss([torch.zeros(4, 2), torch.zeros(3, 2)], [torch.ones(4, 2)])
    tensor(0.9428)
    """

    def __init__(
        self,
        n_moments: int = 5,
        interval: tuple[float, float] = (0.0, 1.0),
        between: Between = "pooled",
        domain_weights: DomainWeights = "equal",
    ) -> None:
        super().__init__()
        _check_settings(n_moments, interval, between, domain_weights)
        self.n_moments = n_moments
        self.interval = interval
        self.between: Between = between
        self.domain_weights: DomainWeights = domain_weights

    def forward(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """Return the distance of lists of batches of activations, shapes (rows, width)."""
        return multi_domain_cmd(
            sources,
            targets,
            n_moments=self.n_moments,
            interval=self.interval,
            between=self.between,
            domain_weights=self.domain_weights,
        )

    def extra_repr(self) -> str:
        """Return the settings as torch prints them."""
        return (
            f"n_moments={self.n_moments}, interval={self.interval}, between={self.between!r}, "
            f"domain_weights={self.domain_weights!r}"
        )


def _check_settings(n_moments: object, interval: object, between: object, domain_weights: object) -> dict[str, Any]:
    """The arguments of :func:`stacked_domains`, or what is wrong with them."""
    order = positive_int(n_moments, "n_moments")
    if isinstance(interval, str):
        raise InvalidInputError(
            f"interval must be a pair (a, b) where domains are several, got {interval!r}; try interval=(0.0, 1.0)."
        )
    scale, weights = check_interval(interval), check_domain_weights(domain_weights)
    return {
        "n_moments": order,
        "scale": scale,
        "between": check_choice(between, "between", get_args(Between)),
        "weights": weights,
    }


def stacked_domains(
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    n_moments: int,
    *,
    scale: float = 1.0,
    between: Between = "pooled",
    weights: DomainWeights = "equal",
) -> Tensor:
    """Return the distances (...) of stacked samples (..., rows, width); arguments are taken as checked."""
    if between == "pooled":
        targets = [torch.cat(list(targets), -2)]
    samples = [*sources, *targets]
    domains = _moments_of(samples, n_moments, scale)
    sizes = [sample.shape[-2] for sample in samples]

    def compare(left: Sequence[int], right: Sequence[int]) -> Tensor:
        return marginal_terms(_some(domains, left), _some(domains, right), scale=scale).sum(-1)

    if between != "barycentre":
        return mean_of_pairs(compare, sizes, len(sources), between=between, weights=weights)
    shares = _weights_of(compare, sizes, len(sources), weights)
    shares = shares / shares.sum(0)
    distances = marginal_terms(domains, _barycentre(domains, shares, scale), scale=scale).sum(-1)
    return (_along(shares, distances) * distances).sum(0) / (1.0 - shares.square().sum(0)).to(distances)


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
    >>> positions = torch.tensor([0.0, 1.0, 3.0])
    >>> def compare(left, right):
    ...     return (positions[list(left)] - positions[list(right)]).abs()
    >>> [mean_of_pairs(compare, [9, 9, 9], 2, between=way, weights="equal").item() for way in ("pooled", "pairs")]
    [2.5, 2.0]
    """
    own = _weights_of(compare, sizes, n_sources, weights)
    if between == "pooled":
        pairs = [(source, n_sources) for source in range(n_sources)]
        factors = own[:n_sources]
    else:
        pairs = list(combinations(range(len(sizes)), 2))
        factors = torch.stack([own[left] * own[right] for left, right in pairs])
    left, right = zip(*pairs, strict=True)
    distances = compare(left, right)
    return (_along(factors, distances) * distances).sum(0) / factors.sum(0).to(distances)


def _weights_of(compare: Compare, sizes: Sequence[int], n_sources: int, weights: DomainWeights) -> Tensor:
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


def _along(factors: Tensor, values: Tensor) -> Tensor:
    """Return factors (n,) or (n, ...) as they multiply values (n, ...)."""
    return factors.to(values).reshape(*factors.shape, *[1] * (values.ndim - factors.ndim))


def _moments_of(samples: Sequence[Tensor], order: int, scale: float) -> Marginals:
    """Moments of some domains, domains along the first dimension, in units of the scale."""
    every = [sample_moments(sample, order, scale=scale) for sample in samples]
    return Marginals(*(torch.stack([getattr(moments, part) for moments in every]) for part in Marginals._fields))


def _some(domains: Marginals, indices: Sequence[int]) -> Marginals:
    chosen = torch.tensor(list(indices), device=domains.shift.device)
    return Marginals(*(part.index_select(0, chosen) for part in domains))


def _barycentre(domains: Marginals, shares: Tensor, scale: float) -> Marginals:
    """The mean of the moments, as one domain."""

    def average(parts: Tensor) -> Tensor:
        return (_along(shares, parts) * parts).sum(0, keepdim=True)

    shift = average(domains.shift)
    offsets = (domains.shift - shift) / scale
    magnitude = average(domains.magnitude)
    # The mean is put together from these offsets, each of them rounded.
    magnitude = torch.cat([magnitude[..., :1, :] + average(offsets.abs()), magnitude[..., 1:, :]], -2)
    return Marginals(shift, average(offsets + domains.residual), average(domains.central), magnitude)


def _named(samples: object, name: str) -> dict[str, Any]:
    """A list of samples by what an error calls each."""
    if not isinstance(samples, (list, tuple)) or not samples:
        shown = f"a {type(samples).__name__}" if not isinstance(samples, (list, tuple)) else "an empty one"
        raise InvalidTypeError(
            f"{name} must be a list of samples, one matrix (rows, features) per domain, got {shown}; try [sample]."
        )
    return {f"{name}[{index}]": sample for index, sample in enumerate(samples)}
