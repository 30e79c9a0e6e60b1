r"""The Central Moment Discrepancy (CMD): a sum of norms of differences of central moments.

Definition in Eq. (12), dual form in Theorem 2 (Eq. 13), empirical estimate in Eq. (23) of

    W. Zellinger, B. A. Moser, T. Grubinger, E. Lughofer, T. Natschläger, S. Saminger-Platz: Robust unsupervised domain
    adaptation for neural networks via moment alignment. Information Sciences 483, 2019.

.. math:: \mathrm{cmd}_k(S, T) = \sum_{j=1}^k \frac{1}{|b-a|^j} \lVert c_j(S) - c_j(T) \rVert_2

The estimate needs of a domain nothing but its moments, so data that do not fit into memory are read in chunks.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, Self, overload

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from momentalign.discrepancies.base import Compiled, Constants, DistanceLoss, Interval, Stacked, StackedDomains
from momentalign.discrepancies.cross_moments import cross_variance_norm, monomial_norms
from momentalign.discrepancies.distributed import check_group, joined_range, joined_terms
from momentalign.discrepancies.fused import fast_terms
from momentalign.discrepancies.several_domains import Between, DomainWeights, stacked_domains
from momentalign.discrepancies.unbiased import unbiased_terms
from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.moments.readers import HIGHEST_ORDER, is_lazy, refuse_differing_names, refuse_other_names
from momentalign.moments.sample import (
    RowWeights,
    full_precision,
    marginal_terms,
    read_pair,
    read_row_weights,
    refuse_non_finite,
    sample_moments,
)
from momentalign.validation import check_interval, positive_int

__all__ = ["CMDLoss", "Interval", "cmd", "cmd_terms", "stacked_terms"]


REMEDY = "give the range of the activations as interval=(a, b), scale them, or lower the order"


@overload
def cmd(
    source: Tensor,
    target: Tensor,
    *,
    n_moments: int = ...,
    interval: Interval = ...,
    cross: int = ...,
    unbiased: bool = ...,
    source_weight: ArrayLike | Tensor | None = ...,
    target_weight: ArrayLike | Tensor | None = ...,
) -> Tensor: ...
@overload
def cmd(
    source: ArrayLike,
    target: ArrayLike,
    *,
    n_moments: int = ...,
    interval: Interval = ...,
    cross: int = ...,
    unbiased: bool = ...,
    source_weight: ArrayLike | Tensor | None = ...,
    target_weight: ArrayLike | Tensor | None = ...,
) -> float: ...
def cmd(
    source: Any,
    target: Any,
    *,
    n_moments: int = 5,
    interval: Interval = (0.0, 1.0),
    cross: int = 1,
    unbiased: bool = False,
    source_weight: Any = None,
    target_weight: Any = None,
) -> Tensor | float:
    r"""Central Moment Discrepancy of two samples, Eq. (23).

    Parameters
    ----------
    source, target
        Shapes (rows, width) and (other rows, width): hidden activations, or any bounded features. Torch tensors give a
        differentiable scalar, arrays a float. float16 and bfloat16 are accumulated in float32. Data that need not fit
        into memory are read in chunks: Dask arrays and data frames, PyArrow tables, datasets, scanners and record batch
        readers, memory maps and iterators of batches (one of the two may be an array in memory). Columns are taken by
        position; where both samples name them, the names must agree.
    n_moments
        The number k of moments, at least 1.
    interval
        The range [a, b] of the values: (0, 1) for sigmoid, (-1, 1) for tanh. Order j is weighted by ``1/|b - a|^j``
        (Proposition 1). ``"data"`` takes the smallest and largest value of both samples and says so in a warning.
    cross
        1: marginal moments, Eq. (17). 2: all cross-variances, that term divided by sqrt(2) (CV-CMD, Section 6.5).
        j > 2: every monomial once for every order up to j, Eq. (6), and marginal moments above.
    unbiased
        The squared norms, each estimated without bias, so that two samples of one distribution average to zero; the
        result can be negative. Needs at least ``2 * n_moments`` rows in each sample, and `cross` at most 2.
    source_weight, target_weight
        Shapes (rows,) and (other rows,): how much each row counts, finite and not negative. With
        :math:`w_i = u_i / \sum_l u_l` of the given weights :math:`u_i` the moments are

        .. math:: c_1 = \sum_i w_i x_i, \qquad c_j = \sum_i w_i (x_i - c_1)^j, \quad j \ge 2,

        and cross-moments alike: a row of weight 2 is a row given twice. No gradient flows to the weights. They are not
        known to ``unbiased=True`` nor to data that are read in chunks, for which
        :meth:`Moments.update <momentalign.Moments.update>` has them.

    Notes
    -----
    A term at the rounding level of its moments counts as zero: its value and its gradient vanish, where the gradient of
    the bare norm would be noise of ordinary size (or NaN, where the samples coincide).

    Examples
    --------
    >>> import momentalign as ma
    >>> ma.cmd([[0.0], [1.0]], [[0.5], [0.5]], n_moments=2)
    0.25
    """
    total, differentiable = _terms(
        source, target, n_moments, interval, cross, unbiased, (source_weight, target_weight), summed=True
    )
    return total if differentiable else float(total)


@overload
def cmd_terms(
    source: Tensor,
    target: Tensor,
    *,
    n_moments: int = ...,
    interval: Interval = ...,
    cross: int = ...,
    unbiased: bool = ...,
    source_weight: ArrayLike | Tensor | None = ...,
    target_weight: ArrayLike | Tensor | None = ...,
) -> Tensor: ...
@overload
def cmd_terms(
    source: ArrayLike,
    target: ArrayLike,
    *,
    n_moments: int = ...,
    interval: Interval = ...,
    cross: int = ...,
    unbiased: bool = ...,
    source_weight: ArrayLike | Tensor | None = ...,
    target_weight: ArrayLike | Tensor | None = ...,
) -> NDArray[np.floating[Any]]: ...
def cmd_terms(
    source: Any,
    target: Any,
    *,
    n_moments: int = 5,
    interval: Interval = (0.0, 1.0),
    cross: int = 1,
    unbiased: bool = False,
    source_weight: Any = None,
    target_weight: Any = None,
) -> Tensor | NDArray[np.floating[Any]]:
    """Return the weighted terms of :func:`cmd`, orders 1 to `n_moments`, one by one; their sum is the distance.

    Examples
    --------
    >>> import momentalign as ma
    >>> ma.cmd_terms([[0.0], [1.0]], [[0.5], [0.5]], n_moments=3).tolist()
    [0.0, 0.25, 0.0]
    """
    terms, differentiable = _terms(
        source, target, n_moments, interval, cross, unbiased, (source_weight, target_weight), summed=False
    )
    return terms if differentiable else terms.numpy()


class CMDLoss(DistanceLoss):
    """:func:`cmd` as a loss: ``loss = CMDLoss(); loss(source_activations, target_activations)``.

    With ``interval="data"`` the range of the first pair of batches is kept for all later ones.

    Parameters
    ----------
    n_moments, interval, cross, unbiased
        As in :func:`cmd`.
    process_group
        None: the activations of this process are the batch. A ``torch.distributed`` process group: they are this rank's
        shards of one joined batch, and the loss is the distance of the joined batch on every rank. Shards may differ in
        size between ranks and domains and may have no rows. Needs ``cross=1`` or ``cross=2`` and ``unbiased=False``.
        ``torch.distributed.group.WORLD`` is a group only after ``init_process_group()``; before, it is None.

    Notes
    -----
    With a process group the gradient that reaches the activations of a rank is that of the *sum of the losses of all
    ranks*, as for the collectives of ``torch.distributed.nn``. Where all ranks back-propagate the same loss, it is the
    number of ranks times the rows of the joined gradient. That is what DistributedDataParallel needs: it averages the
    gradients of the weights over the ranks, and the average of these is the gradient of one process with the joined
    batch, just as the average of the gradients of per-rank means (cross-entropy on shards of equal size) is that of the
    joined mean. Without DistributedDataParallel, average the gradients of the weights yourself.

    Every rank must call the loss, and its backward pass, equally often, also one with empty shards; its loss can always
    be back-propagated unless gradients are switched off. Two all-reduces run forward (counts and sums, then sums of
    powers), one runs backward; with ``interval="data"`` the first call has one more.

    Examples
    --------
    >>> import torch
    >>> loss = CMDLoss(n_moments=3)
    >>> loss(torch.zeros(4, 2), torch.ones(4, 2))
    tensor(1.4142)
    """

    needs_interval = True
    settings = ("n_moments", "interval", "cross", "unbiased")

    def __init__(
        self,
        n_moments: int = 5,
        interval: Interval = (0.0, 1.0),
        cross: int = 1,
        unbiased: bool = False,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        _check_settings(n_moments, interval, cross, unbiased=unbiased)
        self.n_moments = n_moments
        self.interval: Interval = interval
        self.cross = cross
        self.unbiased = unbiased
        self.process_group: dist.ProcessGroup | None = None
        if process_group is not None:
            self.process_group = check_group(process_group, cross=cross, unbiased=unbiased)

    def forward(self, source: Tensor, target: Tensor, source_weight: Any = None, target_weight: Any = None) -> Tensor:
        """Return the distance of two batches of activations (rows, width); weights as in :func:`cmd`."""
        if self.process_group is not None:
            if source_weight is not None or target_weight is not None:
                raise InvalidInputError(
                    "joined batches of several processes have no weights of rows; leave out source_weight and "
                    "target_weight, or set process_group=None."
                )
            if isinstance(self.interval, str):
                bounds = joined_range(source, target, self.process_group)
                self.interval = _data_interval(bounds, bounds)
            return self._joined_terms(source, target, self.process_group).sum()
        if isinstance(self.interval, str):
            pair = read_pair(source, target)[:2]
            self.interval = _data_interval(*pair, _read_row_weights((source_weight, target_weight), *pair))
        value: Tensor = cmd(
            source, target, source_weight=source_weight, target_weight=target_weight, **self.given_settings()
        )
        return value

    def orders(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the terms of the distance, orders 1 to `n_moments`."""
        if self.process_group is None or isinstance(self.interval, str):
            terms: Tensor = cmd_terms(source, target, **self.given_settings())
            return terms
        return self._joined_terms(source, target, self.process_group)

    def _joined_terms(self, source: Tensor, target: Tensor, group: dist.ProcessGroup) -> Tensor:
        return joined_terms(source, target, n_moments=self.n_moments, scale=self._scale, cross=self.cross, group=group)

    @property
    def _scale(self) -> float:
        """|b - a| of the interval, which was checked before."""
        return abs(float(self.interval[1]) - float(self.interval[0]))

    @property
    def name(self) -> str:
        """Its name in the table of names."""
        return "cmd" if self.cross == 1 else "cv-cmd"

    @classmethod
    def from_name(cls, name: str, *, n_moments: int, interval: Interval, width: int | None) -> Self:  # noqa: ARG003
        """Return the CMD, or with ``"cv-cmd"`` that of all cross-variances."""
        return cls(n_moments, interval, cross=2 if name == "cv-cmd" else 1)

    @property
    def stack_key(self) -> Hashable | None:
        """Distances that differ in their orders alone are computed together."""
        if self.unbiased or isinstance(self.interval, str) or self.process_group is not None:
            return None
        return self.cross, self._scale

    @staticmethod
    def stack(losses: Sequence[CMDLoss]) -> Stacked:
        """Return the distances of stacked samples: all up to the highest order, each sums its own orders only."""
        orders, scale, cross = [loss.n_moments for loss in losses], losses[0]._scale, losses[0].cross
        highest = max(orders)
        counted = None
        if min(orders) < highest:
            counted = Constants([float(order < own) for own in orders for order in range(highest)])

        def distances(source: Tensor, target: Tensor) -> Tensor:
            terms = stacked_terms(source, target, highest, scale=scale, cross=cross)
            if counted is None:
                return terms.sum(-1)
            return (terms * counted.to(terms.device, terms.dtype).view_as(terms)).sum(-1)

        return distances

    @classmethod
    def for_domains(cls, losses: Sequence[CMDLoss], between: Between, weights: DomainWeights) -> StackedDomains:
        """Return the distances of lists of samples: at once where the orders are the same, else one by one."""
        if losses[0].cross > 1:
            return super().for_domains(losses, between, weights)
        scale = losses[0]._scale
        together = len({loss.n_moments for loss in losses}) == 1
        parts = [slice(None)] if together else [slice(index, index + 1) for index in range(len(losses))]

        def distances(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
            samples = [([s[part] for s in sources], [t[part] for t in targets]) for part in parts]
            return torch.cat(
                [
                    stacked_domains(*own, loss.n_moments, scale=scale, between=between, weights=weights)
                    for own, loss in zip(samples, losses, strict=False)
                ]
            )

        return distances

    def compiled(self) -> Compiled | None:
        """Return its kind in the compiled training loops, which know the CMD and the CV-CMD."""
        if self.stack_key is None or self.cross > 2:
            return None
        if self.cross == 2:
            return Compiled("cv-cmd", self.n_moments, self._scale)
        return Compiled("cmd", self.n_moments, self._scale, several="cmd of several domains")

    def join_ranks(self, group: dist.ProcessGroup | None) -> None:
        """Compute the distance of the batch that the processes of a group have together."""
        self.process_group = check_group(group, cross=self.cross, unbiased=self.unbiased)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = type(self).__new__(type(self))
        # A group is a connection to other processes: the copy talks through the same one.
        memo |= {id(self): copied, id(self.process_group): self.process_group}
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def extra_repr(self) -> str:
        """Return the settings as torch prints them."""
        group = self.process_group
        return super().extra_repr() + ("" if group is None else f", process_group of {group.size()} ranks")


def _terms(
    source: Any,
    target: Any,
    n_moments: int,
    interval: Interval,
    cross: int,
    unbiased: bool,
    row_weights: tuple[Any, Any],
    *,
    summed: bool,
) -> tuple[Tensor, bool]:
    """The terms, or their sum, and whether the samples came as tensors."""
    n_moments, cross, scale = _check_settings(n_moments, interval, cross, unbiased=unbiased)
    weighted = row_weights[0] is not None or row_weights[1] is not None
    if weighted and unbiased:
        raise InvalidInputError(
            "unbiased=True has no estimate for weighted rows; leave out source_weight and target_weight, or set "
            "unbiased=False."
        )
    if is_lazy(source) or is_lazy(target):
        chunked = _chunked_terms(source, target, n_moments, interval, cross, unbiased=unbiased, weighted=weighted)
        if chunked is not None:
            return chunked.sum() if summed else chunked, False
    # An accelerator reads half precision as it is; everything else works on widened copies.
    accelerated = isinstance(source, Tensor) and source.device.type == "cuda" and not weighted
    source, target, differentiable = read_pair(source, target, widened=not accelerated)
    weights = _read_row_weights(row_weights, source, target) if weighted else (None, None)
    if scale is None:
        a, b = _data_interval(source, target, weights)
        scale = b - a
    terms = None
    if cross <= 2 and not unbiased and not weighted:
        terms = fast_terms(source, target, n_moments, scale=scale, summed=summed and cross == 1, plain=_plain_terms)
    if terms is None or cross == 2:
        with full_precision(source.device):
            if terms is None:
                settings: dict[str, Any] = {"cross": cross, "unbiased": unbiased, "weights": weights}
                terms = _plain_terms(source, target, n_moments, scale=scale, **settings)
            else:
                centred = [sample_moments(sample, 1, scale=scale).centred for sample in _widened(source, target)]
                terms = _with_cross_variances(terms, centred[0], centred[1])
        terms = terms.sum() if summed else terms
    refuse_non_finite(terms, {"source": source, "target": target}, remedy=REMEDY)
    return terms, differentiable


def _check_settings(
    n_moments: object, interval: object, cross: object, *, unbiased: bool
) -> tuple[int, int, float | None]:
    """Return `n_moments`, `cross` and the length of the interval, None for that of the data."""
    orders, crossed = positive_int(n_moments, "n_moments"), positive_int(cross, "cross")
    scale = None if isinstance(interval, str) and interval == "data" else check_interval(interval)
    if crossed > orders:
        raise InvalidInputError(f"cross={crossed} asks for more orders than n_moments={orders}; raise n_moments.")
    if unbiased and crossed > 2:
        raise InvalidInputError(f"unbiased=True is defined for cross=1 and cross=2, got cross={crossed}; lower cross.")
    return orders, crossed, scale


def _read_row_weights(row_weights: tuple[Any, Any], source: Tensor, target: Tensor) -> RowWeights:
    of_source = read_row_weights(row_weights[0], "source_weight", source)
    return of_source, read_row_weights(row_weights[1], "target_weight", target)


def _data_interval(source: Tensor, target: Tensor, weights: RowWeights = (None, None)) -> tuple[float, float]:
    """The smallest and the largest value of the rows that count."""
    pairs = zip((source.detach(), target.detach()), weights, strict=True)
    rows = [sample if own is None else sample[own > 0.0] for sample, own in pairs]
    a, b = torch.stack([s.min() for s in rows]).min().item(), torch.stack([s.max() for s in rows]).max().item()
    if not math.isfinite(b - a):
        broken = source.new_tensor(math.nan, device="cpu")
        refuse_non_finite(broken, {"source": source, "target": target}, remedy=REMEDY)
    if a == b:  # All values equal: every term is zero whatever the scale.
        a, b = a - 0.5, b + 0.5
    warnings.warn(
        f"the interval of the activations is estimated from the data: [{a:.6g}, {b:.6g}]; "
        "pass interval=(a, b) to fix it.",
        MomentAlignWarning,
        stacklevel=4,
    )
    return a, b


def _plain_terms(
    source: Tensor,
    target: Tensor,
    n_moments: int,
    *,
    scale: float,
    cross: int = 1,
    unbiased: bool = False,
    weights: RowWeights = (None, None),
) -> Tensor:
    """The terms in plain torch, in float32 at least."""
    source, target = _widened(source, target)
    if unbiased:
        return unbiased_terms(source, target, n_moments, scale=scale, cross=cross)
    return stacked_terms(source, target, n_moments, scale=scale, cross=cross, weights=weights)


def _widened(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return (source, target) if source.dtype.itemsize >= 4 else (source.float(), target.float())


def stacked_terms(
    source: Tensor,
    target: Tensor,
    n_moments: int,
    *,
    scale: float = 1.0,
    cross: int = 1,
    weights: RowWeights = (None, None),
) -> Tensor:
    """Return the terms (..., n_moments) of stacked samples (..., rows, width); arguments are taken as checked.

    `weights` are those of the rows, with the sum 1 for each sample.
    """
    of_source = sample_moments(source, n_moments, scale=scale, weights=weights[0])
    of_target = sample_moments(target, n_moments, scale=scale, weights=weights[1])
    terms = marginal_terms(of_source, of_target, scale=scale)
    if cross == 1:
        return terms
    if cross == 2:
        return _with_cross_variances(terms, of_source.centred, of_target.centred, weights)
    crossed = monomial_norms(of_source.centred, of_target.centred, cross, weights)
    return torch.cat([terms[..., :1], crossed, terms[..., cross:]], -1)


def _with_cross_variances(terms: Tensor, source: Tensor, target: Tensor, weights: RowWeights = (None, None)) -> Tensor:
    """Put the second term of CV-CMD, which is of centred samples, in the place of that of the variances."""
    crossed = cross_variance_norm(source, target, weights).unsqueeze(-1) / math.sqrt(2.0)
    return torch.cat([terms[..., :1], crossed, terms[..., 2:]], -1)


def _chunked_terms(
    source: Any, target: Any, n_moments: int, interval: Any, cross: int, *, unbiased: bool, weighted: bool
) -> Tensor | None:
    """The terms of two domains of which one at least is read in chunks.

    None for memory maps whose moments do not suffice: they are left to be read as arrays, which they are too.
    """
    beyond = (  # what moments do not tell, and the remedy
        (
            n_moments > HIGHEST_ORDER,
            f"moments above order {HIGHEST_ORDER}, got n_moments={n_moments}; lower n_moments",
        ),
        (unbiased, "unbiased estimate, got unbiased=True; set unbiased=False"),
        (weighted, "weights in one call; add them with Moments().update(batch, weights)"),
        (cross > 2, f"moments of more than two features, got cross={cross}; set cross=2"),
        (isinstance(interval, str), f"known range, got interval={interval!r}; give it as interval=(a, b)"),
    )
    samples = {"source": source, "target": target}
    lacking = next((text for is_asked, text in beyond if is_asked), None)
    if lacking is not None:
        if all(isinstance(data, np.memmap) for data in samples.values() if is_lazy(data)):
            return None
        raise InvalidInputError(f"data that are read in chunks have no {lacking}, or read both domains into memory.")
    for name, data in samples.items():
        if isinstance(data, Tensor):
            raise InvalidTypeError(
                f"{name} is a torch tensor and the other domain is read in chunks, which gives no gradient; give an "
                f"array, for instance {name}.detach().numpy()."
            )
    # Its compiled loops take time to import, which tensors do not need.
    from momentalign.moments.streaming import Moments

    refuse_differing_names(samples)
    found = {name: Moments(n_moments, cross)._read(data, name) for name, data in samples.items()}
    for name, moments in found.items():
        if not moments.count:
            raise InvalidInputError(f"{name} has no rows; give at least one.")
    widths = [len(moments.mean) for moments in found.values()]
    if widths[0] != widths[1]:
        raise InvalidInputError(
            f"source has {widths[0]} columns and target has {widths[1]}; give both the same features."
        )
    # Batches of an iterator name their columns only when they are read.
    refuse_other_names(found["target"]._columns, "target", found["source"]._columns, "source")
    return torch.from_numpy(found["source"].cmd_terms(found["target"], interval=interval))
