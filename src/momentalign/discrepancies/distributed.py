r"""The Central Moment Discrepancy of a batch that is spread over ranks: moments are reduced, not losses.

Eq. (23) of Zellinger et al. (2019) is a sum of norms, so the average of the distances of the shards is not the distance
of the joined batch. Sums are additive: each rank adds up the powers of its rows about a shift :math:`a` that all ranks
share, one all-reduce makes them the raw moments :math:`\mu_i = E z^i` of :math:`z = x - a` over the joined batch, and
with :math:`\delta = \mu_1` the central moments follow from

.. math:: T_{0,i} = \mu_i, \quad T_{j,i} = T_{j-1,i+1} - \delta\, T_{j-1,i} = E (z - \delta)^j z^i, \quad c_j = T_{j,0}

The shift is the joined mean, rounded, from a first all-reduce of counts and sums. It is a constant for gradients, so
there are two collectives on the way forward and one on the way back, whatever the number of moments. Their size is that
of the moments, never that of the batch, and nothing but they makes an accelerator wait.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from momentalign.discrepancies.cross_moments import norm_of_covariances
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.sample import Marginals, full_precision, magnitudes, marginal_terms, read_pair

__all__ = ["check_group", "joined_range", "joined_sum", "joined_terms"]


def check_group(group: object, *, cross: int, unbiased: bool) -> dist.ProcessGroup | None:
    """Return the process group, or say why the distance cannot be computed over it."""
    if group is None:
        return None
    if not isinstance(group, dist.ProcessGroup):
        raise InvalidTypeError(
            f"process_group must be a torch.distributed.ProcessGroup this process belongs to, or None, got {group!r}; "
            "try process_group=torch.distributed.group.WORLD after torch.distributed.init_process_group()."
        )
    if cross > 2:
        raise InvalidInputError(
            f"joined batches of several processes have cross=1 or cross=2, got cross={cross}; lower cross."
        )
    if unbiased:
        raise InvalidInputError("joined batches of several processes have no unbiased estimate; set unbiased=False.")
    return group


def joined_terms(
    source: Tensor, target: Tensor, *, n_moments: int, scale: float, cross: int, group: dist.ProcessGroup
) -> Tensor:
    """Return the terms of the joined batch, the same on every rank; settings are taken as checked.

    `source` and `target` are the shards of this rank, shapes (rows, width) and (other rows, width), rows from zero up.
    Their gradient is that of the sum of what the ranks make of them, see :class:`~momentalign.CMDLoss`.

    Examples
    --------
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> source, target = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5]])
    >>> joined_terms(source, target, n_moments=2, scale=1.0, cross=1, group=dist.group.WORLD).tolist()
    [0.0, 0.25]
    >>> dist.destroy_process_group()
    """
    source, target = _read_shards(source, target)
    with full_precision(source.device):
        terms = _joined_terms(source, target, n_moments, scale, cross, group)
    if terms.device.type == "cpu" and not math.isfinite(terms.detach().sum().item()):
        _refuse(source, target, group)
    return terms


def joined_range(source: Tensor, target: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the smallest and the largest value of both domains over all ranks."""
    source, target = _read_shards(source, target)
    values = torch.cat([source.detach().flatten(), target.detach().flatten()])
    bounds = torch.stack([-values, values]).amax(1) if len(values) else values.new_full((2,), -math.inf)
    # The maximum of NaN and a number may be either, and ranks that see different ones would part ways.
    bounds = bounds.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
    dist.all_reduce(bounds, dist.ReduceOp.MAX, group=group)
    if not bool(bounds.isfinite().all()):
        _refuse(source, target, group)
    return torch.stack([-bounds[0], bounds[1]])


def _read_shards(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The checks of a pair of samples, except that a shard may have no rows: it is looked at as if it had one."""
    read_source, read_target, _ = read_pair(_with_a_row(source), _with_a_row(target))
    return read_source[: len(source)], read_target[: len(target)]


def _with_a_row(sample: Any) -> Any:
    if isinstance(sample, Tensor) and sample.ndim == 2 and sample.shape[0] == 0:
        return torch.cat([sample, sample.new_zeros((1, sample.shape[1]))])
    return sample


def _joined_terms(
    source: Tensor, target: Tensor, n_moments: int, scale: float, cross: int, group: dist.ProcessGroup
) -> Tensor:
    """The terms (n_moments,). Where a tensor has two rows, they belong to source and target."""
    counts, shifts = _counts_and_shifts(source, target, group)
    shifted = [(sample - shift) / scale for sample, shift in zip((source, target), shifts, strict=True)]
    raw, products = _raw_moments(shifted, counts, n_moments, cross, group)
    central = _about_the_mean(raw)
    even = [moment.detach().clamp_min(0.0) for moment in central[:, 1::2].unbind(1)]
    parts = shifts[:, None], raw[:, :1], central[:, 1:n_moments], magnitudes(even, n_moments)
    source_moments, target_moments = (Marginals(*(part[domain] for part in parts)) for domain in (0, 1))
    terms = marginal_terms(source_moments, target_moments, scale=scale)
    if cross == 1:
        return terms
    of_source, of_target = (torch.outer(residual, residual) for residual in raw[:, 0])
    difference = products.view_as(of_source) - (of_source - of_target)
    crossed = norm_of_covariances(difference, central[:, 1].detach().sum(), rows=counts.max()) / math.sqrt(2.0)
    return torch.cat([terms[:1], crossed.unsqueeze(0), terms[2:]])


def _counts_and_shifts(source: Tensor, target: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Rows of the joined samples, (2,), and their means rounded to the samples' dtype, (2, width)."""
    samples = source.detach(), target.detach()
    # In float64 the shift is off by no more than its own rounding, and counts above 2 ** 24 stay exact.
    sums = torch.stack([sample.sum(0, dtype=torch.float64) for sample in samples])
    rows = torch.stack([sums.new_full((1,), len(sample)) for sample in samples])
    total = torch.cat([rows, sums], 1)
    dist.all_reduce(total, group=group)
    return total[:, 0].to(source.dtype), (total[:, 1:] / total[:, :1]).to(source.dtype)


def _raw_moments(
    shifted: list[Tensor], counts: Tensor, n_moments: int, cross: int, group: dist.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """E z^i of the joined samples, (2, orders, width), and for `cross` 2 the difference of E z_i z_j, flat."""
    # The even order above an odd one sets its rounding level.
    orders = n_moments + n_moments % 2
    sums = torch.stack([_PowerSums.apply(shard, orders) for shard in shifted])  # type: ignore[no-untyped-call]
    powers = sums / counts[:, None, None]
    parts = [powers.flatten()]
    if cross == 2:
        products = [shard.T @ shard / count for shard, count in zip(shifted, counts, strict=True)]
        parts.append((products[0] - products[1]).flatten())
    local = torch.cat(parts)
    if torch.is_grad_enabled():
        # A rank without gradients of its own still has to take part in the all-reduce of the others' gradients.
        local.requires_grad_()
    total = joined_sum(local, group)
    return total[: powers.numel()].view_as(powers), total[powers.numel() :]


def _about_the_mean(raw: Tensor) -> Tensor:
    """Central moments 1 to k (the first is zero) from the raw ones, (2, k, width)."""
    residual = raw[:, :1]
    table = torch.cat([torch.ones_like(residual), raw], 1)
    central = []
    for _ in range(raw.shape[1]):
        table = table[:, 1:] - residual * table[:, :-1]
        central.append(table[:, 0])
    return torch.stack(central, 1)


def _refuse(source: Tensor, target: Tensor, group: dist.ProcessGroup) -> None:
    rank = dist.get_rank(group)
    for name, sample in (("source", source), ("target", target)):
        if not bool(torch.isfinite(sample.detach()).all()):
            raise InvalidInputError(f"{name} holds NaN or infinite values on rank {rank}; remove or impute them first.")
    raise InvalidInputError(
        f"the joined batch has no finite distance, though the shards of rank {rank} are finite: another rank holds NaN "
        f"or infinite values, a domain has no rows on any rank, or powers overflow {source.dtype}; mend the data, or "
        "give the range of the activations as interval=(a, b)."
    )


def joined_sum(local: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Return the sum over the ranks of a group; its gradient is that of the sum of all ranks' losses."""
    return cast(Tensor, _SumOverRanks.apply(local, group))  # type: ignore[no-untyped-call]


class _SumOverRanks(torch.autograd.Function):
    """All-reduce whose gradient is the all-reduced gradient: the derivative of the sum of all ranks' losses."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = local.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return _SumOverRanks.apply(upstream, ctx.group), None  # type: ignore[no-untyped-call]


class _PowerSums(torch.autograd.Function):
    """Sums over the rows of the powers 1 to `orders`, (orders, width); the gradient is a polynomial, by Horner."""

    @staticmethod
    def forward(ctx: Any, shifted: Tensor, orders: int) -> Tensor:
        ctx.save_for_backward(shifted)
        power = shifted
        sums = [power.sum(0)]
        for _ in range(orders - 1):
            power = power * shifted
            sums.append(power.sum(0))
        return torch.stack(sums)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (shifted,) = ctx.saved_tensors
        slope = torch.zeros_like(shifted)
        for order in range(len(upstream), 0, -1):
            slope = torch.addcmul(order * upstream[order - 1], slope, shifted)
        return slope, None
