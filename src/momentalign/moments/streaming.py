r"""Moments of a sample that need not be in memory at once: streams are added batch by batch, shards are merged.

What is kept per feature is the count, the mean and the central sums up to an order (and, where asked for, those of all
products of two features), from which the Central Moment Discrepancy of Eq. (23) in Zellinger et al. (2019) follows. The
formulas and their references stand in :mod:`momentalign.moments.sums`.

They are described as plain JSON, to the last bit, and read back with every value checked. A block of a Dask array or
data frame becomes moments where it lies, and moments, whose size does not depend on the rows, are merged as a tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.moments.readers import (
    HIGHEST_ORDER,
    column_names,
    is_dask,
    read_blocks,
    read_chunks,
    read_matrix,
    refuse_other_names,
)
from momentalign.moments.sums import CentralSums, dense_sums, difference_terms, merged, no_rows, scaled, sparse_sums
from momentalign.validation import check_int, check_interval, check_number

__all__ = ["Moments", "described_array"]

Floats = NDArray[np.float64]


class Moments:
    r"""Count, mean and central moments of each feature, of any number of rows, batch by batch.

    .. math:: m = \frac1n \sum_i x_i, \qquad c_j = \frac1n \sum_i (x_i - m)^j, \quad 2 \le j \le \text{order}

    Batches are added by :meth:`update`, the moments of shards by :meth:`merge` or ``+``; in any order and cut they give
    the moments of all rows, to rounding, also far from zero (Chan et al. 1983, Pébay et al. 2016). All is
    kept in float64, and an update that raises changes nothing. Columns are taken by position; the names of the first
    batch that has any are remembered while the moments are in memory, and others are refused.

    Parameters
    ----------
    order
        The highest order, 1 to 10.
    cross
        1: moments of each feature. 2: the covariance of all pairs of features too, as CV-CMD needs them (Section 6.5).

    Examples
    --------
    >>> import numpy as np
    >>> import momentalign as ma
    >>> moments = ma.Moments(order=3).update(np.array([[0.0], [1.0]])).update(np.array([[5.0]]))
    >>> moments.count, moments.mean.tolist(), moments.central.round(3).ravel().tolist()
    (3, [2.0], [4.667, 6.0])
    >>> shards = [ma.Moments().update(np.full((4, 2), value)) for value in (0.0, 1.0)]
    >>> (shards[0] + shards[1]).deviation.tolist()
    [0.5, 0.5]
    >>> round(shards[0].cmd(shards[1]), 4)
    1.4142
    """

    def __init__(self, order: int = 5, cross: int = 1) -> None:
        self._order = check_int(order, "order", least=1, most=HIGHEST_ORDER, example=HIGHEST_ORDER)
        self._cross = check_int(cross, "cross", least=1, most=2, example=1)
        if self._cross > self._order:
            raise InvalidInputError(f"cross=2 needs the second order, got order={order}; try order=2.")
        self._state: CentralSums | None = None
        self._columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, data: Any, *, order: int = 5, cross: int = 1) -> Self:
        """Return the moments of data of any size, read in chunks.

        Parameters
        ----------
        data
            Whatever :meth:`update` takes, a ``numpy.memmap``, a PyArrow table, dataset, scanner or record batch reader,
            an iterator or list of batches, or a Dask array or data frame, whose blocks are reduced as a tree where they
            lie.
        order, cross
            As in :class:`Moments`.

        Examples
        --------
        >>> import numpy as np
        >>> Moments.of(np.ones((rows, 2)) for rows in (3, 4)).count
        7
        """
        return cls(order, cross)._read(data, "data")

    @classmethod
    def of_sums(cls, sums: CentralSums) -> Self:
        """Return the moments of a sample whose central sums are known."""
        found = cls(len(sums.sums) + 1, 1 if sums.products is None else 2)
        found._state = sums
        return found

    def _read(self, data: Any, name: str) -> Self:
        columns = self._read_columns(data, name)
        if is_dask(data):
            return self.merge(_tree_moments(data, self.copy(), name))
        for chunk in read_chunks(data, name):
            self._update(chunk, None, name)
        self._columns = columns or self._columns
        return self

    def update(self, batch: Any, weights: ArrayLike | None = None) -> Self:
        """Add a batch of rows and return the moments themselves.

        Parameters
        ----------
        batch
            Shape (rows, width): an array, a memory map, a tensor, a data frame or a CSR matrix, which stays sparse.
            It may have no rows.
        weights
            Shape (rows,): how much each row counts, finite and not negative; a row of weight 2 is a row given twice.
        """
        self._update(batch, weights, "batch")
        return self

    def _update(self, batch: Any, weights: ArrayLike | None, name: str) -> None:
        matrix = read_matrix(batch, name)
        rows, width = matrix.shape
        self._check_width(width, name)
        columns = self._read_columns(batch, name)
        state = self._state or no_rows(width, self._orders, crossed=self._cross == 2)
        with np.errstate(over="ignore", invalid="ignore"):
            row_weights = None if weights is None else _read_weights(weights, rows)
            for part, block in read_blocks(matrix, name):
                state = merged(state, self._sums(block, None if row_weights is None else row_weights[part]))
                self._refuse_non_finite(state, block, name)
        self._state, self._columns = state, columns

    def _sums(self, block: Any, weights: Floats | None) -> CentralSums:
        if not block.shape[0] or (weights is not None and not weights.any()):
            return no_rows(block.shape[1], self._orders, crossed=self._cross == 2)
        compute = sparse_sums if hasattr(block, "tocsr") else dense_sums
        return compute(block, weights, self._orders, crossed=self._cross == 2)

    def merge(self, other: Moments) -> Self:
        """Add the rows of other moments of the same order, cross and width, and return the moments themselves."""
        self._check_alike(other)
        if other._state is not None:
            self._check_width(len(other._state.mean), "other")
            with np.errstate(over="ignore", invalid="ignore"):
                state = other._state if self._state is None else merged(self._state, other._state)
            self._refuse_non_finite(state, other._state.mean, "other")
            self._state, self._columns = state, self._columns or other._columns
        return self

    def __add__(self, other: Moments) -> Self:
        return self.copy().merge(other) if isinstance(other, Moments) else NotImplemented

    def forget(self, factor: float) -> Self:
        r"""Multiply the weight of all rows so far by `factor` and return the moments themselves.

        Called before every update it forgets exponentially: a batch that is k updates old counts
        :math:`\text{factor}^k`.

        Examples
        --------
        >>> import numpy as np
        >>> moments = Moments().update(np.zeros((4, 1))).forget(0.5).update(np.ones((2, 1)))
        >>> moments.count, moments.mean.tolist()
        (4.0, [0.5])
        """
        kept = check_number(factor, "factor", above=0.0, most=1.0, example=0.9)
        if self._state is not None:
            self._state = scaled(self._state, kept)
        return self

    def copy(self) -> Self:
        """Return moments of their own with the same rows."""
        copied = type(self)(self._order, self._cross)
        copied._state, copied._columns = self._state, self._columns  # They are replaced, never changed.
        return copied

    @property
    def order(self) -> int:
        """The highest order."""
        return self._order

    @property
    def cross(self) -> int:
        """1, or 2 where covariances are kept."""
        return self._cross

    @property
    def count(self) -> int | float:
        """The number of rows, or the sum of their weights once there were any."""
        return 0 if self._state is None else self._state.count

    @property
    def mean(self) -> Floats:
        """The mean of each feature, (width,)."""
        return self._filled.mean.copy()

    @property
    def central(self) -> Floats:
        """The central moments of orders 2 to `order`, (order - 1, width)."""
        return self._filled.sums[: self._order - 1] / self.count

    @property
    def variance(self) -> Floats:
        """The variance of each feature, (width,): the sum of squares over the count."""
        return np.asarray(self._filled.sums[0] / self.count)

    @property
    def deviation(self) -> Floats:
        """The standard deviation of each feature, (width,)."""
        return np.asarray(np.sqrt(self.variance))

    @property
    def covariance(self) -> Floats:
        """The covariances of all pairs of features, (width, width); needs ``cross=2``."""
        products = self._filled.products
        if products is None:
            raise InvalidInputError("covariances are kept with cross=2 only, got cross=1; use Moments(cross=2).")
        return products / self.count

    def cmd(self, other: Moments, *, interval: tuple[float, float] = (0.0, 1.0), n_moments: int | None = None) -> float:
        """Return the Central Moment Discrepancy, Eq. (23): ``ma.cmd`` of all rows of both.

        Parameters
        ----------
        other
            Moments of the same order, cross and width.
        interval
            The range [a, b] of the values: order j is weighted by ``1/|b - a|^j`` (Proposition 1).
        n_moments
            The number of moments, at most the order, which is the default.
        """
        return float(self.cmd_terms(other, interval=interval, n_moments=n_moments).sum())

    def cmd_terms(
        self, other: Moments, *, interval: tuple[float, float] = (0.0, 1.0), n_moments: int | None = None
    ) -> Floats:
        """Return the weighted terms of :meth:`cmd`, orders 1 to `n_moments`, one by one; their sum is the distance."""
        self._check_alike(other)
        orders = (
            self._order
            if n_moments is None
            else check_int(n_moments, "n_moments", least=self._cross, most=self._order, example=self._order)
        )
        if isinstance(interval, str):
            raise InvalidInputError(
                f"moments do not know the range of the values, got interval={interval!r}; give it as interval=(a, b)."
            )
        scale, pair = check_interval(interval), (self._filled, other._filled)
        self._check_width(len(pair[1].mean), "other")
        return difference_terms(*pair, orders, scale=scale)

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON, to the last bit.

        Examples
        --------
        >>> import numpy as np
        >>> Moments.from_dict(Moments().update(np.ones((3, 2))).to_dict())
        Moments(order=5, cross=1) of 3 rows, 2 features
        """
        description: dict[str, Any] = {"order": self._order, "cross": self._cross, "count": self.count}
        if self._state is not None:
            arrays = {name: getattr(self._state, name) for name in ("mean", "rest", "sums", "products")}
            description |= {name: array.tolist() for name, array in arrays.items() if array is not None}
        return description

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Return the moments that :meth:`to_dict` described; anything else raises.

        Raises
        ------
        DamagedFileError
            If a value is missing, of another shape, or cannot be.
        """
        if not isinstance(description, Mapping):
            raise InvalidTypeError(
                f"moments are described by a dictionary, got {type(description).__name__}; give what to_dict() "
                "returned."
            )
        try:
            return cls._described(description)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DamagedFileError(f"this does not describe moments ({error}); compute them again.") from error

    @classmethod
    def _described(cls, description: Mapping[str, Any]) -> Self:
        earlier = "central" in description  # Of version 0.1: central moments of orders 2 to 5 instead of sums.
        found = cls() if earlier else cls(description["order"], description["cross"])
        count = description["count"]
        check_number(count, "count", least=0.0)
        if not earlier and "mean" not in description and count == 0:
            return found
        mean = described_array(description, "mean", (len(description["mean"]),))
        if earlier:
            sums, rest = count * described_array(description, "central", (4, *mean.shape)), np.zeros_like(mean)
        else:
            sums = described_array(description, "sums", (found._orders - 1, *mean.shape))
            rest = described_array(description, "rest", mean.shape)
        products = described_array(description, "products", 2 * mean.shape) if found._cross == 2 else None
        if (sums[::2] < 0.0).any() or not mean.size or (not count and (sums.any() or mean.any())):
            raise ValueError("even central sums below zero, no features, or moments of no rows")
        if products is not None and not np.allclose(products, products.T, 1e-9, 1e-9 * float(sums[0].max())):
            raise ValueError("products that are not symmetric")
        found._state = CentralSums(count, mean, rest, sums, products)
        return found

    def __repr__(self) -> str:
        content = "no rows" if self._state is None else f"{self.count} rows, {len(self._state.mean)} features"
        return f"Moments(order={self._order}, cross={self._cross}) of {content}"

    @property
    def _orders(self) -> int:
        """Orders of the sums: the rounding level of means takes variances."""
        return max(self._order, 2)

    @property
    def _filled(self) -> CentralSums:
        if self._state is None or not self._state.count:
            raise InvalidInputError("these moments have no rows yet; update them with a batch first.")
        return self._state

    def _refuse_non_finite(self, state: CentralSums, block: Any, name: str) -> None:
        """Raise for NaN, infinite and too large values; all of them show in the sums, so few numbers are looked at."""
        if np.isfinite(state.sums).all() and math.isfinite(state.count):
            return
        if not np.isfinite(block.data if hasattr(block, "tocsr") else block).all():
            raise InvalidInputError(f"{name} holds NaN or infinite values; remove or impute them first.")
        raise InvalidInputError(
            f"powers up to order {self._order} of the values overflow float64; scale them or lower the order."
        )

    def _check_width(self, width: int, name: str) -> None:
        if self._state is not None and len(self._state.mean) != width:
            raise InvalidInputError(
                f"{name} has {width} columns and the moments have {len(self._state.mean)}; give the same features."
            )

    def _read_columns(self, batch: Any, name: str) -> tuple[str, ...] | None:
        """The names of the first batch that has any."""
        columns = column_names(batch)
        refuse_other_names(columns, name, self._columns, "the sample of these moments")
        return self._columns or columns

    def _check_alike(self, other: object) -> None:
        if not isinstance(other, Moments):
            raise InvalidTypeError(f"other must be Moments, got {type(other).__name__}; make them with Moments.of().")
        if (self._order, self._cross) != (other._order, other._cross):
            raise InvalidInputError(
                f"moments of order={self._order}, cross={self._cross} do not go with those of order={other._order}, "
                f"cross={other._cross}; make both alike."
            )
        refuse_other_names(other._columns, "other", self._columns, "the sample of these moments")


def described_array(description: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Floats:
    """Return described numbers as an array; of another shape, or not finite, they raise ValueError."""
    array = np.asarray(description[name], dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name} of shape {array.shape} instead of {shape}, or not finite")
    return array


def _read_weights(weights: ArrayLike, rows: int) -> Floats:
    try:
        values = np.ascontiguousarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"weights cannot be read as numbers ({error}); give one number for each row.") from None
    if values.shape != (rows,):
        raise InvalidInputError(f"weights has shape {values.shape} for {rows} rows; give one number for each row.")
    if not math.isfinite(values.sum()) or (values < 0.0).any():
        raise InvalidInputError("weights holds NaN, infinite or negative values; give finite ones from 0 up.")
    return values


# Moments that one task merges.
SPLIT_EVERY = 8
# Bytes of a block that is put together from blocks of columns.
_BLOCK_BYTES = 2**25


def _tree_moments(data: Any, empty: Moments, name: str) -> Moments:
    """The moments of all rows of a Dask array or data frame, by whichever scheduler is in charge."""
    from dask.delayed import delayed

    parts = [delayed(_block_moments)(block, empty, name) for block in _row_blocks(data, name)]
    while len(parts) > 1:
        groups = [parts[first : first + SPLIT_EVERY] for first in range(0, len(parts), SPLIT_EVERY)]
        parts = [delayed(_merged)(group) for group in groups]
    found: Moments = parts[0].compute()
    return found


def _block_moments(block: Any, empty: Moments, name: str) -> Moments:
    found = empty.copy()
    found._update(block, None, name)
    return found


def _merged(parts: list[Moments]) -> Moments:
    found = parts[0].copy()
    for part in parts[1:]:
        found.merge(part)
    return found


def _row_blocks(data: Any, name: str) -> list[Any]:
    """The blocks of rows, each a promise of a matrix with all columns."""
    if getattr(data, "ndim", 0) != 2 or not hasattr(data, "to_delayed"):
        raise InvalidTypeError(
            f"{name} must be a Dask array or data frame of two dimensions, got {type(data).__name__}; make one of it."
        )
    if not hasattr(data, "numblocks"):  # a data frame, which is cut along rows alone
        return list(data.to_delayed())
    whole = data if data.numblocks[1] == 1 else _with_whole_rows(data, name)
    return list(whole.to_delayed()[:, 0])


def _with_whole_rows(data: Any, name: str) -> Any:
    if any(math.isnan(size) for sizes in data.chunks for size in sizes):
        raise InvalidInputError(
            f"the columns of {name} lie in {data.numblocks[1]} blocks of unknown sizes; call compute_chunk_sizes() "
            "first, or make the array with all columns in one block."
        )
    return data.rechunk({0: "auto", 1: -1}, block_size_limit=_BLOCK_BYTES)
