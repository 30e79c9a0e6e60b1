"""The symmetric-polynomial kernel tile by tile: compiled loops and torch against plain torch and against listing."""

from __future__ import annotations

import pytest
import torch

from momentalign.discrepancies import cross_moments as symmetric
from momentalign.discrepancies.cross_moments import _kernel_squares, add_kernels, slopes_in_place
from momentalign.moments.sample import monomials


def _joined(rows: int, others: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + others)
    joined = torch.rand(rows + others, width, generator=generator, dtype=torch.float64) - 0.5
    return joined, torch.cat([torch.full((rows,), 1.0 / rows), torch.full((others,), -1.0 / others)]).double()


@pytest.mark.parametrize("tile", [1, 40, 100, 2**16])
@pytest.mark.parametrize("highest", [2, 3, 5, 7])
def test_tiles_give_the_whole_kernel(monkeypatch: pytest.MonkeyPatch, tile: int, highest: int) -> None:
    joined, signs = _joined(9, 14, 4)
    monkeypatch.setattr(symmetric, "CPU_TILE", tile)
    squares, own = symmetric.squares_and_sizes(joined, signs, highest)
    leaf = joined.clone().requires_grad_()
    expected, sizes = _kernel_squares(leaf, signs, highest)
    torch.testing.assert_close(squares, expected.detach(), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(own, sizes, rtol=1e-12, atol=1e-15)
    upstream = torch.linspace(-1.0, 2.0, highest - 1, dtype=torch.float64)
    (slopes,) = torch.autograd.grad(expected, leaf, upstream)
    found = symmetric.squares_gradient(joined, signs, highest, upstream)
    torch.testing.assert_close(found, slopes, rtol=1e-11, atol=1e-15)


def test_squares_are_those_of_listed_monomials() -> None:
    joined, signs = _joined(20, 30, 5)
    squares, _ = symmetric.squares_and_sizes(joined, signs, 6)
    listed = [(signs @ monomials(joined, order)).square().sum() for order in range(2, 7)]
    torch.testing.assert_close(squares, torch.stack(listed), rtol=1e-10, atol=1e-16)


@pytest.mark.parametrize("known", [1, 3, 4])
def test_loops_and_torch_agree_on_a_tile(known: int) -> None:
    generator = torch.Generator().manual_seed(known)
    grams = torch.rand(known, 6, 11, generator=generator, dtype=torch.float64)
    signs = torch.rand(6, generator=generator, dtype=torch.float64) - 0.5
    weights = torch.rand(known + 2, generator=generator, dtype=torch.float64)
    sums, own = torch.zeros(2, known + 2, 11).double(), torch.zeros(2, known + 2, 6).double()
    add_kernels(grams.numpy(), signs.numpy(), sums[0].numpy(), own[0].numpy())
    symmetric._add_kernels_in_torch(grams, signs, sums[1], own[1])
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(own[0], own[1], rtol=1e-13, atol=1e-15)
    slopes = [grams.clone(), grams.clone()]
    slopes_in_place(slopes[0].numpy(), weights.numpy())
    symmetric._slopes_in_torch(slopes[1], weights)
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-13, atol=1e-15)


def test_other_devices_take_torch() -> None:
    """A device without values stands for them."""
    joined, signs = (tensor.to("meta") for tensor in _joined(9, 14, 4))
    squares, own = symmetric.squares_and_sizes(joined, signs, 5)
    gradient = symmetric.squares_gradient(joined, signs, 5, torch.ones(4, dtype=torch.float64, device="meta"))
    assert [(found.shape, found.device.type) for found in (squares, own, gradient)] == [
        ((4,), "meta"),
        ((4,), "meta"),
        ((23, 4), "meta"),
    ]


@pytest.mark.gpu
def test_on_a_gpu_as_on_the_cpu() -> None:
    joined, signs = _joined(40, 50, 7)
    expected = [*symmetric.squares_and_sizes(joined, signs, 5)]
    expected.append(symmetric.squares_gradient(joined, signs, 5, torch.ones(4).double()))
    found = [*symmetric.squares_and_sizes(joined.cuda(), signs.cuda(), 5)]
    found.append(symmetric.squares_gradient(joined.cuda(), signs.cuda(), 5, torch.ones(4).double().cuda()))
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left.cpu(), right, rtol=1e-11, atol=1e-15)
