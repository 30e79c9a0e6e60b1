import numpy as np
import pytest
import torch

import momentalign as ma
from momentalign.discrepancies.coral import stacked_coral


def _published(source, target):
    difference = np.atleast_2d(np.cov(source, rowvar=False)) - np.atleast_2d(np.cov(target, rowvar=False))
    return (difference**2).sum() / (4 * source.shape[1] ** 2)


@pytest.mark.parametrize(("rows", "other_rows", "width"), [(7, 5, 3), (2, 2, 1), (50, 20, 10)])
def test_it_is_the_distance_of_numpys_covariances(pair, rows, other_rows, width):
    source, target = (sample.numpy() for sample in pair(rows, other_rows, width))
    assert ma.coral(source, target) == pytest.approx(_published(source, target), rel=1e-11)


def test_float32_far_from_zero_keeps_four_digits(rng):
    source, target = ((1e4 + rng.random((200, 3)) * size).astype(np.float32) for size in (10, 20))
    assert ma.coral(source, target) == pytest.approx(_published(source.astype(float), target.astype(float)), rel=1e-4)


def test_it_does_not_see_means_nor_the_order_of_rows(pair):
    source, target = pair(8, 6)
    value = ma.coral(source, target)
    torch.testing.assert_close(ma.coral(source.flip(0) + 3, target - 1), value, rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(ma.coral(target, source), value)
    assert ma.coral(source, source + 0.5) < 1e-30


def test_the_loss_is_the_function(pair):
    source, target = pair(dtype=torch.float32)
    assert ma.CORALLoss()(source, target) == ma.coral(source, target)
    assert ma.coral(source, target).dtype == torch.float32


def test_a_stack_is_treated_pair_by_pair(rng):
    source, target = torch.tensor(rng.random((3, 6, 2))), torch.tensor(rng.random((3, 5, 2)))
    expected = [ma.coral(s, t) for s, t in zip(source, target, strict=True)]
    torch.testing.assert_close(stacked_coral(source, target), torch.stack(expected), rtol=1e-12, atol=0)


def test_coinciding_samples_have_no_gradient(pair):
    source, _ = pair(20, 1)
    source.requires_grad_()
    ma.coral(source, source.detach().flip(0)).backward()
    assert source.grad.abs().max() < 1e-15
