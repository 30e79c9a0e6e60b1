r"""MomentMetric: the Central Moment Discrepancy of everything that was seen, as a torchmetrics metric.

Means of per-batch or per-rank distances are no distance of the whole; moments merge exactly. A sample is one tensor,
float64, with a row for each order p = 0, 1, 2, ...: the count, the mean and the central sums, which merge by the
formulas of :mod:`momentalign.moments.sums` over batches and over ranks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from momentalign.errors import InvalidInputError, InvalidTypeError, MissingExtraError
from momentalign.moments.sample import sample_moments
from momentalign.validation import check_interval, positive_int

try:
    from torchmetrics import Metric
except ModuleNotFoundError as error:
    raise MissingExtraError.of("MomentMetric is a torchmetrics metric", "deep") from error

__all__ = ["MomentMetric", "merge_samples"]


class MomentMetric(Metric):
    r"""The Central Moment Discrepancy of all source and target rows seen since the last reset.

    .. math:: \sum_{j=1}^{k} \frac{1}{|b - a|^j} \lVert c_j(S) - c_j(T) \rVert_2

    (Zellinger et al. 2019, Eq. (23)), of the rows of all batches and all ranks together, to rounding, however they are
    cut. ``forward`` gives the distance of one batch, as for every metric; ``self.log("distance", metric)`` logs that of
    an epoch in Lightning. No gradient flows through it: to train with the distance there is :class:`CMDLoss`.

    Parameters
    ----------
    width
        The number of features.
    n_moments
        The number of moments k.
    interval
        The range [a, b] of the values.
    process_group
        The ranks whose rows belong together; all by default.

    Examples
    --------
    >>> import momentalign as ma
    >>> rows = torch.rand(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> metric = ma.MomentMetric(3)
    >>> for start in (0, 20, 40):
    ...     metric.update(rows[start : start + 20], rows[start : start + 10] ** 2)
    >>> halves = torch.cat([rows[start : start + 10] for start in (0, 20, 40)]) ** 2
    >>> bool((metric.compute() - ma.cmd(rows, halves)).abs() < 1e-12)
    True
    """

    full_state_update = False
    higher_is_better = False
    is_differentiable = False

    source: Tensor
    target: Tensor

    def __init__(
        self,
        width: int,
        n_moments: int = 5,
        interval: tuple[float, float] = (0.0, 1.0),
        process_group: Any = None,
    ) -> None:
        super().__init__(process_group=process_group)
        self.width = positive_int(width, "width", example="64")
        self.n_moments = positive_int(n_moments, "n_moments")
        self.interval = interval
        self._length = check_interval(interval)
        for domain in ("source", "target"):
            empty = torch.zeros(self.n_moments + 1, self.width, dtype=torch.float64)
            self.add_state(domain, default=empty, dist_reduce_fx=merge_samples)

    def update(self, source: Tensor, target: Tensor) -> None:
        """Add rows of both domains, (rows, width) each; either may have none."""
        found = [self._read(source, "source"), self._read(target, "target")]
        self.source, self.target = (
            merge_samples(torch.stack(pair))
            for pair in zip((self.source.double(), self.target.double()), found, strict=True)
        )

    def compute(self) -> Tensor:
        """Return the distance of all rows seen on all ranks, float64."""
        for domain in ("source", "target"):
            if not getattr(self, domain)[0, 0]:
                raise InvalidInputError(f"{domain} has no rows yet; update the metric with some first.")
        moments = [_moments(sample) for sample in (self.source, self.target)]
        terms = torch.linalg.vector_norm(moments[0] - moments[1], dim=1)
        orders = torch.arange(1, self.n_moments + 1, dtype=terms.dtype, device=terms.device)
        return torch.sum(terms / torch.pow(self._length, orders))

    def _read(self, rows: Tensor, name: str) -> Tensor:
        if not isinstance(rows, Tensor) or not rows.is_floating_point():
            kind = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
            raise InvalidTypeError(f"{name} must be a tensor of floating-point numbers, got {kind}; convert it.")
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InvalidInputError(
                f"{name} must have shape (rows, {self.width}), got {tuple(rows.shape)}; give the number of features as "
                "width."
            )
        sample = _sample(rows.detach().double(), self.n_moments)
        # A look at the values would stop the queue of an accelerator; there NaN shows in the distance.
        if sample.device.type == "cpu" and not bool(sample.isfinite().all()):
            raise InvalidInputError(
                f"{name} holds NaN or infinite values, or ones whose powers are; remove or scale them."
            )
        return sample


def merge_samples(samples: Tensor) -> Tensor:
    """Return the state of all samples together from their states, (samples, orders + 1, width).

    Examples
    --------
    >>> states = torch.tensor([[[2.0], [0.5], [0.5]], [[1.0], [5.0], [0.0]]])
    >>> merge_samples(states).flatten().tolist()
    [3.0, 2.0, 14.0]
    """
    counts, means = samples[:, 0], samples[:, 1]
    total = counts.sum(0)
    # About the mean of a sample that has rows, so that a common offset takes no digits.
    point = means[counts[:, 0].argmax()]
    mean = point + (counts / total.clamp(min=1.0) * (means - point)).sum(0)
    step = torch.where(counts > 0.0, means - mean, 0.0)[:, None]
    table = torch.cat([counts[:, None], torch.zeros_like(counts)[:, None], samples[:, 2:]], 1)
    for order in range(1, table.shape[1]):  # Pascal's triangle row by row.
        moved = step * table[:, order - 1 : -1]
        table = torch.cat([table[:, :order], table[:, order:] + moved], 1)
    return torch.cat([total[None], mean[None], table[:, 2:].sum(0)])


def _sample(rows: Tensor, orders: int) -> Tensor:
    """The state of some rows."""
    if not len(rows):
        return rows.new_zeros(orders + 1, rows.shape[1])
    found = sample_moments(rows, orders)
    mean = found.shift + found.residual
    return torch.cat([torch.full_like(mean, len(rows)), mean, len(rows) * found.central])


def _moments(sample: Tensor) -> Tensor:
    """Mean and central moments, (orders, width)."""
    return torch.cat([sample[1:2], sample[2:] / sample[0]])
