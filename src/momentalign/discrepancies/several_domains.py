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

from collections.abc import Sequence
from typing import Any, overload

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from momentalign.discrepancies.domain_pairs import (
    Between,
    DomainWeights,
    along,
    mean_of_pairs,
    read_between,
    read_domain_weights,
    weights_of,
)
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.readers import read_sample, refuse_differing_names, refuse_non_finite
from momentalign.moments.sample import Marginals, full_precision, marginal_terms, sample_moments
from momentalign.validation import check_interval, positive_int

__all__ = ["MultiDomainCMDLoss", "multi_domain_cmd", "stacked_domains"]

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
    settings = _Settings(n_moments, interval, between, domain_weights)
    given = _read_lists(sources, targets)
    differentiable = isinstance(sources[0], Tensor)
    with full_precision(given[0][0].device):
        value = settings.compute(*given)
    _refuse_non_finite(value, *given)
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
        _Settings(n_moments, interval, between, domain_weights)
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


class _Settings:
    """The arguments of a distance, read and checked."""

    def __init__(self, n_moments: object, interval: object, between: object, domain_weights: object) -> None:
        self.n_moments = positive_int(n_moments, "n_moments")
        if isinstance(interval, str):
            raise InvalidInputError(
                f"interval must be a pair (a, b) where domains are several, got {interval!r}; try interval=(0.0, 1.0)."
            )
        self.scale = check_interval(interval)
        self.between = read_between(between)
        self.weights = read_domain_weights(domain_weights)

    def compute(self, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        return stacked_domains(
            sources, targets, self.n_moments, scale=self.scale, between=self.between, weights=self.weights
        )


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
    shares = weights_of(compare, sizes, len(sources), weights)
    shares = shares / shares.sum(0)
    distances = marginal_terms(domains, _barycentre(domains, shares, scale), scale=scale).sum(-1)
    return (along(shares, distances) * distances).sum(0) / (1.0 - shares.square().sum(0)).to(distances)


def _moments_of(samples: Sequence[Tensor], order: int, scale: float) -> Marginals:
    """Moments of some domains, domains along the first dimension, in units of the scale."""
    every = [sample_moments(sample, order, scale=scale) for sample in samples]
    return Marginals(*(torch.stack([getattr(moments, part) for moments in every]) for part in Marginals._fields))


def _some(domains: Marginals, numbers: Sequence[int]) -> Marginals:
    chosen = torch.tensor(list(numbers), device=domains.shift.device)
    return Marginals(*(part.index_select(0, chosen) for part in domains))


def _barycentre(domains: Marginals, shares: Tensor, scale: float) -> Marginals:
    """The mean of the moments, as one domain."""

    def average(parts: Tensor) -> Tensor:
        return (along(shares, parts) * parts).sum(0, keepdim=True)

    shift = average(domains.shift)
    offsets = (domains.shift - shift) / scale
    magnitude = average(domains.magnitude)
    # The mean is put together from these offsets, each of them rounded.
    magnitude = torch.cat([magnitude[..., :1, :] + average(offsets.abs()), magnitude[..., 1:, :]], -2)
    return Marginals(shift, average(offsets + domains.residual), average(domains.central), magnitude)


def _read_lists(sources: object, targets: object) -> tuple[list[Tensor], list[Tensor]]:
    """Samples as float tensors of one dtype, kind, width and device, or what is wrong with them, by name."""
    named = {**_named(sources, "sources"), **_named(targets, "targets")}
    kinds = {isinstance(sample, Tensor) for sample in named.values()}
    if len(kinds) > 1:
        raise InvalidTypeError("sources and targets must all be torch tensors or all be arrays; convert some of them.")
    if kinds == {False}:
        refuse_differing_names(named)
    read = {name: read_sample(sample, name) for name, sample in named.items()}
    (first, one), *others = read.items()
    for name, sample in others:
        if sample.shape[1] != one.shape[1]:
            raise InvalidInputError(
                f"{first} has {one.shape[1]} columns and {name} has {sample.shape[1]}; give all the same features."
            )
        if sample.device != one.device:
            raise InvalidInputError(f"{first} is on {one.device} and {name} on {sample.device}; move one of them.")
    # float16 and bfloat16 are widened, so that sums and powers keep their accuracy and range.
    wide = any(sample.dtype == torch.float64 for sample in read.values())
    dtype = torch.float64 if wide else torch.float32
    tensors = [sample.to(dtype) for sample in read.values()]
    count = sum(name.startswith("sources") for name in read)
    return tensors[:count], tensors[count:]


def _named(samples: object, name: str) -> dict[str, Any]:
    if not isinstance(samples, (list, tuple)) or not samples:
        shown = f"a {type(samples).__name__}" if not isinstance(samples, (list, tuple)) else "an empty one"
        raise InvalidTypeError(
            f"{name} must be a list of samples, one matrix (rows, features) per domain, got {shown}; try [sample]."
        )
    return {f"{name}[{number}]": sample for number, sample in enumerate(samples)}


def _refuse_non_finite(value: Tensor, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Raise if a distance is not finite, naming the cause; not on accelerators, where a look would stop the queue."""
    if value.device.type != "cpu" or torch.compiler.is_compiling() or bool(torch.isfinite(value.detach())):
        return
    for name, samples in (("sources", sources), ("targets", targets)):
        for number, sample in enumerate(samples):
            if not bool(torch.isfinite(sample.detach()).all()):
                raise InvalidInputError(f"{name}[{number}] holds NaN or infinite values; remove or impute them first.")
    refuse_non_finite(value, torch.cat(list(sources)), torch.cat(list(targets)), remedy=REMEDY)
