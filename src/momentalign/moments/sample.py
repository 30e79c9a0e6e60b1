r"""Sample moments: the mean, central moments and monomials that every distance is built from.

Stands for c_j of Theorem 2 and the monomial vector of Eqs. (6) and (17) in Zellinger et al. (2019).

All functions take tensors of shape ``(..., rows, width)``; leading dimensions are a stack of samples treated one by
one. Moments are computed about a rough mean that is corrected afterwards: raw powers lose everything at an offset,
and a rounded mean alone spoils the odd orders by :math:`3 c_2 \delta`.

The distances of Theorem 2 are sums of norms, not of squared norms, so their gradients keep ordinary size up to
equality. The norms here know their rounding level: where two samples coincide, a term and its gradient are zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations_with_replacement
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.centre import ROUNDING_ERRORS
from momentalign.moments.readers import refuse_differing_names

__all__ = [
    "Marginals",
    "RowWeights",
    "SampleMoments",
    "exponents",
    "full_precision",
    "guarded_norm",
    "guarded_root",
    "level_of",
    "magnitudes",
    "marginal_terms",
    "mean_difference",
    "monomials",
    "read_pair",
    "read_row_weights",
    "read_sample",
    "read_samples",
    "refuse_non_finite",
    "row_mean",
    "sample_moments",
]

RowWeights: TypeAlias = tuple[Tensor | None, Tensor | None]
"""Weights (rows,) of source and target, with the sum 1; None where all rows count alike."""


class SampleMoments(NamedTuple):
    """Moments of one sample (or a stack of samples), all but the shift in units of `scale`."""

    shift: Tensor
    """(..., 1, width): the rough mean the sample was shifted by, as it is; a constant for gradients."""
    residual: Tensor
    """(..., 1, width): mean minus shift, at rounding size."""
    centred: Tensor
    """(..., rows, width): the sample minus its mean."""
    central: Tensor
    """(..., order - 1, width): central moments of orders 2 to order."""
    magnitude: Tensor
    """(..., order, width): the size of the summands of each order; it sets the rounding level of a difference."""
    scale: float
    """What the sample was divided by."""


def sample_moments(sample: Tensor, order: int, *, scale: float = 1.0, weights: Tensor | None = None) -> SampleMoments:
    r"""Return mean and central moments up to `order` of ``sample / scale``.

    .. math:: c_1 = \sum_i w_i x_i, \qquad c_j = \sum_i w_i (x_i - c_1)^j, \quad j \ge 2

    Parameters
    ----------
    sample
        Shape (..., rows, width), float32 or float64.
    order
        Highest order, at least 1.
    scale
        The sample is divided by it; |b - a| gives the weights 1/|b - a|^j of Proposition 1.
    weights
        Shape (rows,): the weights of the rows, whose sum is 1; None: one over the number of rows each.

    Examples
    --------
    >>> moments = sample_moments(torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64), 3)
    >>> (moments.shift + moments.residual).item(), [round(c, 3) for c in moments.central.flatten().tolist()]
    (2.0, [4.667, 6.0])
    """
    shift = row_mean(sample.detach(), weights).unsqueeze(-2)
    shifted = sample - shift
    if scale != 1.0:
        shifted = shifted / scale
    residual = row_mean(shifted, weights).unsqueeze(-2)
    centred = shifted - residual
    power = centred
    central = []
    for _ in range(2, order + 1):
        power = power * centred
        central.append(row_mean(power, weights))
    stacked = torch.stack(central, -2) if central else centred.new_empty((*centred.shape[:-2], 0, centred.shape[-1]))
    even = [moment.detach() for moment in central[::2]]
    if order % 2:
        even.append(row_mean(power.detach() * centred.detach(), weights))
    return SampleMoments(shift, residual, centred, stacked, magnitudes(even, order), scale)


def row_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean over the rows, (..., width), with `weights` (rows,) that sum to 1 the weighted one."""
    return values.mean(-2) if weights is None else (weights[:, None] * values).sum(-2)


def magnitudes(even: Sequence[Tensor], order: int) -> Tensor:
    """Return E|z|^j of orders 1 to `order`, (..., order, width), from the central moments of orders 2, 4, ...

    That of an odd order lies between its neighbours; the product of those could leave the range of the numbers.
    """
    one = torch.ones_like(even[0])
    known, roots = [one, *even], [one, *(moment.sqrt() for moment in even)]
    return torch.stack(
        [known[j // 2] if j % 2 == 0 else roots[j // 2] * roots[j // 2 + 1] for j in range(1, order + 1)], -2
    )


def mean_difference(source: SampleMoments, target: SampleMoments) -> Tensor:
    """Return the difference of two means, (..., width), without the rounding of either mean."""
    return ((source.shift - target.shift) / source.scale + (source.residual - target.residual)).squeeze(-2)


def exponents(width: int, order: int) -> list[tuple[int, ...]]:
    """Return the exponent vectors of all monomials of one order in lexicographic order, as in Eq. (6).

    There are C(order + width - 1, order) of them.

    Examples
    --------
    >>> exponents(2, 3)
    [(3, 0), (2, 1), (1, 2), (0, 3)]
    """
    return [
        tuple(chosen.count(feature) for feature in range(width))
        for chosen in combinations_with_replacement(range(width), order)
    ]


def monomials(sample: Tensor, order: int) -> Tensor:
    r"""Return :math:`\boldsymbol\nu^{(j)}` of each row: every monomial once, in the order of :func:`exponents`.

    Examples
    --------
    >>> monomials(torch.tensor([[2.0, 3.0]]), 3)
    tensor([[ 8., 12., 18., 27.]])
    """
    columns = [sample[..., feature : feature + 1] for feature in range(sample.shape[-1])]
    blocks = columns
    for _ in range(order - 1):
        blocks = [column * torch.cat(blocks[first:], -1) for first, column in enumerate(columns)]
    return torch.cat(blocks, -1)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Keep products in the precision of their factors where autocast would lower it."""
    if not torch.is_autocast_enabled(device.type):
        yield
        return
    with torch.autocast(device.type, enabled=False):
        yield


def guarded_norm(difference: Tensor, level: Tensor) -> Tensor:
    """Return the Euclidean norm over the last dimension; zero, with zero gradient, where it does not exceed `level`."""
    peak = _peak(difference.detach())
    # Squares of tiny or huge differences would leave the range of the numbers.
    squares = (difference / peak.unsqueeze(-1)).square().sum(-1)
    return peak * _root(squares, (peak * squares.detach().sqrt() <= level) & (level < math.inf))


def guarded_root(squares: Tensor, level: Tensor) -> Tensor:
    """Return the square root; zero, with zero gradient, where `squares` does not exceed `level`. NaN stays NaN."""
    return _root(squares, (squares.detach() <= level) & (level < math.inf))


def _root(squares: Tensor, noise: Tensor) -> Tensor:
    """The square root, zero where it is noise; a level that has overflowed makes none, so that this stays visible."""
    # The inner `where` keeps the infinite slope of the root at zero out of the gradient: 0 * inf is NaN.
    root = torch.where(noise, 1.0, squares).sqrt()
    return torch.where(noise, 0.0, root)


def level_of(sizes: Tensor) -> Tensor:
    """Return the rounding level of the norm of a vector whose entries are differences of values of such `sizes`."""
    level = ROUNDING_ERRORS * torch.finfo(sizes.dtype).eps
    if sizes.dtype == torch.float32:
        wide: Tensor = torch.linalg.vector_norm(sizes, dim=-1, dtype=torch.float64)
        return level * wide
    peak = _peak(sizes)
    norm: Tensor = torch.linalg.vector_norm(sizes / peak.unsqueeze(-1), dim=-1)
    return norm * (level * peak)


def _peak(values: Tensor) -> Tensor:
    """The largest absolute value over the last dimension; 1 where all are zero."""
    peak = values.abs().amax(-1)
    return torch.where(peak > 0, peak, 1.0)


class Marginals(NamedTuple):
    """Moments of each feature of a sample or of a stack of samples, as in :class:`SampleMoments`."""

    shift: Tensor
    residual: Tensor
    central: Tensor
    magnitude: Tensor


def marginal_terms(source: Marginals | SampleMoments, target: Marginals | SampleMoments, *, scale: float) -> Tensor:
    """Return the terms (..., order) of moments in units of `scale`, zero where they are at their rounding level."""
    between = (source.shift - target.shift) / scale
    means = between + (source.residual - target.residual)
    # The difference of the means is put together from these parts, each of them rounded.
    parts = between.abs() + source.residual.detach().abs() + target.residual.detach().abs()
    sizes = source.magnitude + target.magnitude
    sizes = torch.cat([sizes[..., :1, :] + parts, sizes[..., 1:, :]], -2)
    differences = torch.cat([means, source.central - target.central], -2)
    return guarded_norm(differences, level_of(sizes))


def read_pair(source: Any, target: Any, *, widened: bool = True) -> tuple[Tensor, Tensor, bool]:
    """Return two samples as :func:`read_samples` does, and whether they came as tensors."""
    tensors, differentiable = read_samples({"source": source, "target": target}, widened=widened)
    return tensors[0], tensors[1], differentiable


def read_samples(samples: Mapping[str, Any], *, widened: bool = True) -> tuple[list[Tensor], bool]:
    """Return samples, given by what an error calls them, as float tensors of one dtype, width and device.

    Anything numpy can read as a matrix of numbers is welcome, whole numbers become float64; the second value says
    whether they came as tensors. float16 and bfloat16 are widened to float32, so that sums and powers keep their
    accuracy and range, unless `widened` is False. Columns are taken by position; where samples name them, the names
    must agree.
    """
    first, one = next(iter(samples.items()))
    differentiable = isinstance(one, Tensor)
    for name, other in samples.items():
        if isinstance(other, Tensor) != differentiable:
            raise InvalidTypeError(
                f"{first} and {name} must both be torch tensors or both be arrays, got {type(one).__name__} and "
                f"{type(other).__name__}; convert one of them."
            )
    if not differentiable:
        refuse_differing_names(samples)
    read = {name: read_sample(sample, name) for name, sample in samples.items()}
    width, device, dtype = read[first].shape[1], read[first].device, read[first].dtype
    for name, tensor in read.items():
        if tensor.shape[1] != width:
            raise InvalidInputError(
                f"{first} has {width} columns and {name} has {tensor.shape[1]}; give both the same features."
            )
        if tensor.device != device:
            raise InvalidInputError(f"{first} is on {device} and {name} on {tensor.device}; move one of them.")
        dtype = torch.promote_types(dtype, tensor.dtype)
    if widened and dtype in (torch.float16, torch.bfloat16):
        dtype = torch.float32
    return [tensor.to(dtype) for tensor in read.values()], differentiable


def read_sample(sample: Any, name: str) -> Tensor:
    """Return one sample as a floating-point tensor of shape (rows, width), or say what is wrong with it."""
    tensor = sample if isinstance(sample, Tensor) else _from_array(sample, name)
    shape = tensor.shape
    if len(shape) != 2:
        raise InvalidInputError(
            f"{name} must be a matrix (rows, features), got shape {tuple(shape)}; reshape it to two dimensions."
        )
    if tensor.is_meta:
        raise InvalidTypeError(f"{name} is on the meta device and holds no numbers; give a tensor that does.")
    if tensor.layout is not torch.strided:
        raise InvalidTypeError(f"{name} is a sparse tensor; give a dense one, for instance {name}.to_dense().")
    if 0 in shape:
        raise InvalidInputError(f"{name} is empty, its shape is {tuple(shape)}; give at least one row and one column.")
    if not tensor.is_floating_point():
        raise InvalidTypeError(
            f"{name} must hold real floating-point numbers, got {tensor.dtype}; convert it with .float()."
        )
    return tensor


def _from_array(sample: Any, name: str) -> Tensor:
    if hasattr(sample, "tocsr"):
        raise InvalidTypeError(f"{name} is a scipy sparse matrix; give a dense array, for instance {name}.toarray().")
    if np.ma.is_masked(sample):
        raise InvalidInputError(f"{name} has masked values; remove or impute them first.")
    try:
        array = np.asarray(sample)
    except ValueError as error:
        raise InvalidInputError(f"{name} cannot be read as a matrix of numbers ({error}).") from None
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float first.")
    # Torch knows neither foreign byte order nor negative strides nor read-only memory.
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    array = np.require(array, requirements=["C", "W"])
    if any(stride < 0 for stride in array.strides):  # an axis of one entry counts as contiguous whatever its stride
        array = array.copy()
    return torch.from_numpy(array)


def read_row_weights(weights: Any, name: str, sample: Tensor) -> Tensor | None:
    """Return the weights of the rows of a sample with the sum 1, or say what is wrong with them; None stays None."""
    if weights is None:
        return None
    given = weights
    if not isinstance(weights, Tensor):
        try:
            given = torch.from_numpy(np.array(weights, dtype=np.float64))
        except (TypeError, ValueError):
            raise InvalidTypeError(f"{name} must be an array of numbers, got {type(weights).__name__}.") from None
    rows = len(sample)
    if given.shape != (rows,):
        raise InvalidInputError(f"{name} has shape {tuple(given.shape)} for {rows} rows; give one number per row.")
    values: Tensor = given.detach().to(sample.device, torch.float64)
    total = values.sum()
    if _has_values(total) and not (bool((values >= 0.0).all()) and 0.0 < total.item() < math.inf):
        raise InvalidInputError(f"{name} must be finite, none negative and one positive at least; look at those rows.")
    return (values / total).to(sample.dtype)


def refuse_non_finite(value: Tensor, samples: Mapping[str, Tensor], *, remedy: str = "scale them down") -> None:
    """Raise if a distance of some samples is not finite, naming the cause.

    One look at the result replaces a look at every input. It is left out on accelerators, where it would stop the
    queue, and inside function transforms, where there is no value to look at.
    """
    if not _has_values(value):
        return
    numbers = value.tolist()
    if all(map(math.isfinite, numbers if isinstance(numbers, list) else [numbers])):
        return
    for name, sample in samples.items():
        if not bool(torch.isfinite(sample.detach()).all()):
            raise InvalidInputError(f"{name} holds NaN or infinite values; remove or impute them first.")
    peak = max(sample.detach().abs().max().item() for sample in samples.values())
    dtype = next(iter(samples.values())).dtype
    raise InvalidInputError(f"the powers of values as large as {peak:.3g} overflow {dtype}; {remedy}.")


def _has_values(tensor: Tensor) -> bool:
    """Whether a look at the values is possible and cheap."""
    transformed: Any = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed
