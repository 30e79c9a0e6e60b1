"""Distances on one CPU thread: forward and backward against the formulas as anyone would write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import momentalign as ma
from benchmarks.figure import Figure, interleaved
from momentalign.discrepancies import cross_moments
from momentalign.moments.sample import monomials

# Rows, width, the speed-up over eager torch to reach, rounds, calls a round.
# Small shapes take many calls a turn, so that each form is measured with its own data in the caches.
SHAPES = ((300, 50, 7.0, 20, 100), (1000, 256, 20.0, 10, 20), (10_000, 1024, 20.0, 3, 1), (100_000, 512, 20.0, 2, 1))


def figures() -> Iterator[Figure]:
    """Yield the ratios of the CMD, of its cross-moment forms and of the MMD."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for shape in SHAPES:
            yield from marginal(*shape)
        yield from gram_form()
        yield from full_cross_moments()
        yield from mmd_forms()
    finally:
        torch.set_num_threads(threads)


def samples(rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Two random samples that want gradients."""
    generator = torch.Generator().manual_seed(0)
    source = torch.rand(rows, width, generator=generator).requires_grad_()
    return source, torch.rand(rows, width, generator=generator).square().requires_grad_()


def step(distance: Callable[[Tensor, Tensor], Tensor], source: Tensor, target: Tensor) -> Callable[[], None]:
    """Forward and backward, gradients thrown away before each."""

    def run() -> None:
        source.grad = target.grad = None
        distance(source, target).backward()

    return run


def eager_cmd(source: Tensor, target: Tensor) -> Tensor:
    """The CMD as anyone would write it."""
    mean_source, mean_target = source.mean(0), target.mean(0)
    centred_source, centred_target = source - mean_source, target - mean_target
    distance = (mean_source - mean_target).norm()
    for order in range(2, 6):
        distance = distance + ((centred_source**order).mean(0) - (centred_target**order).mean(0)).norm()
    return distance


def marginal(rows: int, width: int, speed_up: float, repeats: int, calls: int) -> Iterator[Figure]:
    """The marginal CMD against eager torch and, where the data are large, the time to read them and write gradients."""
    source, target = samples(rows, width)
    out = [torch.empty_like(source), torch.empty_like(target)]

    def read_and_write() -> None:
        for sample, gradient in zip((source, target), out, strict=True):
            sample.detach().sum()
            gradient.fill_(1.0)

    functions = {
        "eager": step(eager_cmd, source, target),
        "fused": step(ma.cmd, source, target),
        "bound": read_and_write,
    }
    seconds = interleaved(functions, repeats=repeats, calls=calls)
    name = f"cmd {rows} x {width}"
    yield Figure("distances", f"{name}, eager over fused", seconds["eager"] / seconds["fused"], at_least=speed_up)
    if rows * width > 1_000_000:
        ratio = seconds["fused"] / seconds["bound"]
        yield Figure("distances", f"{name}, over reading data and writing gradients", ratio, at_most=3.0)


def covariance_cmd(source: Tensor, target: Tensor) -> Tensor:
    """CV-CMD by covariance matrices, as anyone would write it."""
    centred = [sample - sample.mean(0) for sample in (source, target)]
    difference = centred[0].T @ centred[0] / len(source) - centred[1].T @ centred[1] / len(target)
    upper = torch.triu_indices(difference.shape[0], difference.shape[0])
    second = difference[upper[0], upper[1]].norm() / 2**0.5
    distance = (source.mean(0) - target.mean(0)).norm() + second
    for order in range(3, 6):
        distance = distance + ((centred[0] ** order).mean(0) - (centred[1] ** order).mean(0)).norm()
    return distance


def gram_form() -> Iterator[Figure]:
    """CV-CMD of few rows and many features: Gram matrices instead of covariances."""
    source, target = samples(128, 4096)
    functions = {
        "ours": step(lambda s, t: ma.cmd(s, t, cross=2), source, target),
        "covariance": step(covariance_cmd, source, target),
    }
    seconds = interleaved(functions, repeats=3)
    yield Figure(
        "distances", "cv-cmd 128 x 4096, over covariances", seconds["ours"] / seconds["covariance"], at_most=0.15
    )


def full_cross_moments() -> Iterator[Figure]:
    """All monomials of orders 2 to 5 by the symmetric-polynomial kernel, against listing those of order 3."""
    source, target = samples(300, 50)

    def listed(s: Tensor, t: Tensor) -> Tensor:
        return (monomials(s - s.mean(0), 3).mean(0) - monomials(t - t.mean(0), 3).mean(0)).norm()

    functions = {
        "kernel": step(lambda s, t: ma.cmd(s, t, cross=5), source, target),
        "listed": step(listed, source, target),
    }
    seconds = interleaved(functions, repeats=5)
    ratio = seconds["kernel"] / seconds["listed"]
    yield Figure("distances", "orders 2 to 5 at 300 x 50, over listing order 3", ratio, at_most=0.15)
    yield Figure("distances", "kernel against listing in float64, largest error", _kernel_error(), at_most=1e-10)


def _kernel_error() -> float:
    source, target = (sample.detach().double()[:, :6] for sample in samples(300, 50))
    listed = ma.cmd_terms(source, target, cross=5)
    limit, cross_moments.LISTED = cross_moments.LISTED, 0
    try:
        return float((ma.cmd_terms(source, target, cross=5) - listed).abs().max())
    finally:
        cross_moments.LISTED = limit


def broadcast_mmd(source: Tensor, target: Tensor) -> Tensor:
    """The Gaussian MMD by broadcasting all differences."""

    def mean_kernel(left: Tensor, right: Tensor) -> Tensor:
        return torch.exp(-((left[:, None] - right[None]) ** 2).sum(-1)).mean()

    return mean_kernel(source, source) + mean_kernel(target, target) - 2 * mean_kernel(source, target)


def mmd_forms() -> Iterator[Figure]:
    """The Gaussian MMD in closed form against broadcasting."""
    source, target = samples(300, 50)
    functions = {
        "ours": step(lambda s, t: ma.mmd(s, t, beta=1.0), source, target),
        "broadcast": step(broadcast_mmd, source, target),
    }
    seconds = interleaved(functions, repeats=5)
    yield Figure("distances", "mmd 300 x 50, over broadcasting", seconds["ours"] / seconds["broadcast"], at_most=0.1)
