r"""The Maximum Mean Discrepancy (MMD): the distance of two mean embeddings in a reproducing kernel Hilbert space.

The peer method of Sections 6.3 to 6.6 in Zellinger et al. (2019). References: A. Gretton et al., A kernel method for
the two-sample problem, 2006 (quadratic and linear-time estimators); M. Long et al., Learning transferable features
with deep adaptation networks, 2015 (sums of Gaussian kernels).

.. math:: \mathrm{MMD}^2(S, T) = \mathbb E\,\kappa(x, x') + \mathbb E\,\kappa(y, y') - 2\,\mathbb E\,\kappa(x, y)
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, TypeAlias, get_args, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from momentalign.discrepancies.base import Compiled, Constants, DistanceLoss, Stacked
from momentalign.errors import InvalidInputError
from momentalign.moments.sample import full_precision, read_pair, refuse_non_finite
from momentalign.validation import positive_int

__all__ = ["MEDIAN_ROWS", "Kernel", "MMDLoss", "mmd", "stacked_median_betas", "stacked_mmd"]

Kernel: TypeAlias = Literal["gaussian", "gaussians", "polynomial", "linear"]
KernelFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# The widths of "gaussians", as factors of the median heuristic.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
# The median heuristic looks at the distances of at most this many rows.
MEDIAN_ROWS = 1000


@overload
def mmd(
    source: Tensor,
    target: Tensor,
    *,
    kernel: Kernel = ...,
    beta: float | Sequence[float] | Literal["median"] = ...,
    degree: int = ...,
    unbiased: bool = ...,
    linear_time: bool = ...,
) -> Tensor: ...
@overload
def mmd(
    source: ArrayLike,
    target: ArrayLike,
    *,
    kernel: Kernel = ...,
    beta: float | Sequence[float] | Literal["median"] = ...,
    degree: int = ...,
    unbiased: bool = ...,
    linear_time: bool = ...,
) -> float: ...
def mmd(
    source: Any,
    target: Any,
    *,
    kernel: Kernel = "gaussian",
    beta: float | Sequence[float] | Literal["median"] = "median",
    degree: int = 2,
    unbiased: bool = False,
    linear_time: bool = False,
) -> Tensor | float:
    r"""Squared Maximum Mean Discrepancy of two samples.

    Parameters
    ----------
    source, target
        Shapes (rows, width) and (other rows, width). Torch tensors give a differentiable scalar, arrays a float.
        Columns are taken by position; where both samples name them, the names must agree.
    kernel
        ``"gaussian"``: :math:`\exp(-\beta \lVert x - y \rVert^2)`, summed over `beta` where it is a sequence.
        ``"gaussians"``: the sum over 1/4, 1/2, 1, 2 and 4 times `beta`.
        ``"polynomial"``: :math:`(1 + \langle x, y \rangle)^d` with `degree` d. ``"linear"``: :math:`\langle x, y
        \rangle`.
    beta
        The width parameter of the Gaussian kernels; ``"median"`` takes 1 over the median squared distance of the rows.
    degree
        Degree of the polynomial kernel.
    unbiased
        Leave the diagonal out of the means within a sample; the result can be negative. Needs two rows in each sample.
    linear_time
        Average over disjoint pairs of rows instead of all pairs (unbiased by construction): linear cost, larger
        variance.

    Examples
    --------
    >>> import momentalign as ma
    >>> ma.mmd([[0.0], [1.0]], [[1.0], [2.0]], kernel="linear")
    1.0
    """
    _check(kernel, beta, degree)
    source, target, differentiable = read_pair(source, target)
    _check_rows(source, target, needed=2 if unbiased or linear_time else 1)
    with full_precision(source.device):
        function = _kernel_function(kernel, _betas(kernel, beta, source, target), degree)
        if linear_time:
            value = _linear_time(function, source, target)
        else:
            value = _quadratic(function, source, target, unbiased=unbiased)
    refuse_non_finite(value, {"source": source, "target": target})
    return value if differentiable else float(value)


class MMDLoss(DistanceLoss):
    """:func:`mmd` as a loss: ``loss = MMDLoss(beta=1.2); loss(source_activations, target_activations)``.

    Parameters
    ----------
    kernel, beta, degree, unbiased, linear_time
        As in :func:`mmd`.

    Examples
    --------
    >>> import torch
    >>> loss = MMDLoss(beta=1.0)
    >>> loss(torch.zeros(4, 2), torch.ones(4, 2))
    tensor(1.7293)
    """

    name = "mmd"
    settings = ("kernel", "beta", "degree", "unbiased", "linear_time")

    def __init__(
        self,
        kernel: Kernel = "gaussian",
        beta: float | Sequence[float] | Literal["median"] = "median",
        degree: int = 2,
        unbiased: bool = False,
        linear_time: bool = False,
    ) -> None:
        super().__init__()
        _check(kernel, beta, degree)
        self.kernel: Kernel = kernel
        self.beta = beta
        self.degree = degree
        self.unbiased = unbiased
        self.linear_time = linear_time

    @property
    def stack_key(self) -> Hashable | None:
        """Biased estimates with one Gaussian of fixed width are computed together, as are those of median widths."""
        if self.unbiased or self.linear_time or not self.kernel.startswith("gaussian"):
            return None
        if isinstance(self.beta, str):
            return f"{self.kernel} of median width"
        return "gaussian of fixed width" if self.kernel == "gaussian" and isinstance(self.beta, numbers.Real) else None

    @staticmethod
    def stack(losses: Sequence[MMDLoss]) -> Stacked:
        """Return the distances of stacked samples, each with its own width."""
        kernel = losses[0].kernel
        if isinstance(losses[0].beta, str):
            return lambda source, target: stacked_mmd(source, target, stacked_median_betas(source, target, kernel))
        betas = Constants([float(loss.beta) for loss in losses])  # type: ignore[arg-type]
        return lambda source, target: stacked_mmd(source, target, betas.to(source.device, source.dtype))

    def compiled(self) -> Compiled | None:
        """Return its kind in the compiled training loops, which know one Gaussian of fixed or of median width."""
        if self.stack_key == "gaussian of median width":
            return Compiled("mmd", beta=0.0)
        fixed = self.stack_key == "gaussian of fixed width"
        return Compiled("mmd", beta=float(self.beta)) if fixed else None  # type: ignore[arg-type]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the distance of two batches of activations, shapes (rows, width)."""
        value: Tensor = mmd(source, target, **self.given_settings())
        return value


def stacked_mmd(source: Tensor, target: Tensor, betas: Tensor) -> Tensor:
    """Return the biased Gaussian MMD, (stack,), of stacked samples (stack, rows, width).

    Each has its own `betas`, (stack,), or (stack, kernels) where kernels are summed.
    """
    widths = betas.reshape(len(betas), -1).T[:, :, None, None]

    def mean_kernel(left: Tensor, right: Tensor) -> Tensor:
        squares = _squared_distances(left, right)
        return torch.stack([torch.exp(-width * squares).mean((-2, -1)) for width in widths]).sum(0)

    return mean_kernel(source, source) + mean_kernel(target, target) - 2 * mean_kernel(source, target)


def stacked_median_betas(source: Tensor, target: Tensor, kernel: Kernel) -> Tensor:
    """Return the betas (stack, kernels) of stacked samples by the median heuristic, each by its own rows."""
    median = _median_squared_distance(source, target)
    # Factor by factor: a recorded epoch may not copy from the host.
    return torch.stack([factor / median for factor in (FACTORS if kernel == "gaussians" else (1.0,))], -1)


def _check(kernel: object, beta: object, degree: object) -> None:
    if kernel not in get_args(Kernel):
        raise InvalidInputError(f"kernel must be one of {', '.join(get_args(Kernel))}, got {kernel!r}.")
    positive_int(degree, "degree")
    if not (isinstance(beta, str) and beta == "median"):
        _check_betas(beta)


def _check_betas(beta: object) -> list[float]:
    """Return the widths as a list of positive numbers, or say what is wrong with them."""
    try:
        if isinstance(beta, (str, bool)):
            raise TypeError
        betas = [float(width) for width in np.atleast_1d(np.asarray(beta, dtype=np.float64))]
    except (TypeError, ValueError, OverflowError):
        betas = []
    if not betas or not all(math.isfinite(width) and width > 0 for width in betas):
        raise InvalidInputError(f'beta must be a positive number, a sequence of them or "median", got {beta!r}.')
    return betas


def _check_rows(source: Tensor, target: Tensor, *, needed: int) -> None:
    for name, sample in (("source", source), ("target", target)):
        if sample.shape[0] < needed:
            raise InvalidInputError(
                f"this estimator of the MMD needs at least {needed} rows, {name} has {sample.shape[0]}; "
                "use the biased quadratic estimator for single rows."
            )


def _betas(
    kernel: Kernel, beta: float | Sequence[float] | Literal["median"], source: Tensor, target: Tensor
) -> list[Tensor | float]:
    if not kernel.startswith("gaussian"):
        return []
    widths: list[Any] = _check_betas(beta) if not isinstance(beta, str) else []
    if isinstance(beta, str):
        widths = [1.0 / _median_squared_distance(source, target)]
    return [factor * width for width in widths for factor in (FACTORS if kernel == "gaussians" else (1.0,))]


def _median_squared_distance(source: Tensor, target: Tensor) -> Tensor:
    """Median squared distance of distinct rows of each joined sample; 1 where all rows are equal."""
    joined = torch.cat([source, target], -2).detach()
    joined = joined[..., :: math.ceil(joined.shape[-2] / MEDIAN_ROWS), :]
    rows, columns = torch.triu_indices(joined.shape[-2], joined.shape[-2], offset=1, device=joined.device)
    if rows.numel() == 0:
        return joined.new_ones(joined.shape[:-2])
    squares = _squared_distances(joined, joined)[..., rows, columns]
    # An accelerator sorts in less time than it finds the median without; both give the lower of two middle ones.
    median = squares.sort(-1).values[..., (rows.numel() - 1) // 2] if squares.is_cuda else squares.median(-1).values
    return torch.where(median > 0, median, torch.ones_like(median))


def _kernel_function(kernel: Kernel, betas: list[Tensor | float], degree: int) -> KernelFunction:
    if kernel == "linear":
        return lambda left, right: left @ right.transpose(-1, -2)
    if kernel == "polynomial":
        return lambda left, right: (1.0 + left @ right.transpose(-1, -2)) ** degree

    def gaussians(left: Tensor, right: Tensor) -> Tensor:
        squares = _squared_distances(left, right)
        first, *others = (torch.exp(-beta * squares) for beta in betas)
        return torch.stack([first, *others]).sum(0) if others else first

    return gaussians


def _squared_distances(left: Tensor, right: Tensor) -> Tensor:
    # About the mean of one of them the expansion of the squares loses least to rounding.
    centre = left.detach().mean(-2, keepdim=True)
    left, right = left - centre, right - centre
    sums = left.square().sum(-1)[..., :, None] + right.square().sum(-1)[..., None, :]
    if left.ndim == 2:  # Product and sum in one pass.
        return torch.addmm(sums, left, right.T, alpha=-2.0).clamp_min(0.0)
    return (sums - 2.0 * (left @ right.transpose(-1, -2))).clamp_min(0.0)


def _quadratic(function: KernelFunction, source: Tensor, target: Tensor, *, unbiased: bool) -> Tensor:
    own = [_own_mean(function(sample, sample), unbiased=unbiased) for sample in (source, target)]
    return own[0] + own[1] - 2 * function(source, target).mean()


def _own_mean(kernel: Tensor, *, unbiased: bool) -> Tensor:
    if not unbiased:
        return kernel.mean()
    rows = kernel.shape[0]
    return (kernel.sum() - kernel.diagonal().sum()) / (rows * (rows - 1))


def _linear_time(function: KernelFunction, source: Tensor, target: Tensor) -> Tensor:
    """Gretton et al. (2012), Lemma 14: rows 2i and 2i + 1 of both samples form one independent term."""
    pairs = min(source.shape[0], target.shape[0]) // 2
    # One kernel value per pair: a stack of one-row samples.
    x, y = (sample[: 2 * pairs : 2, None] for sample in (source, target))
    x_next, y_next = (sample[1 : 2 * pairs : 2, None] for sample in (source, target))
    return (function(x, x_next) + function(y, y_next) - function(x, y_next) - function(x_next, y)).mean()
