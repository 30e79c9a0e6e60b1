"""Equations (7), (11) and (12) in numbers."""

import math

import numpy as np
import pytest
import torch

from momentalign.discrepancies.central_moment import cmd
from momentalign.errors import InvalidInputError
from momentalign.theory.definitions import cmd_by_definition, polynomial_ipm


def samples(width, *, rows=(9, 13), seed=0):
    random = np.random.default_rng(seed)
    return random.uniform(size=(rows[0], width)), random.uniform(size=(rows[1], width)) ** 2


def test_every_monomial_counts_once():
    # Order 2 at (1, 2): the monomials x1 x1, x1 x2, x2 x2 are 1, 2, 4; the kernel <x, y>^2 would count x1 x2 twice.
    assert polynomial_ipm([[1.0, 2.0]], [[0.0, 0.0]], 2) == pytest.approx(math.sqrt(1 + 4 + 16))


def test_centralised_takes_each_samples_own_mean():
    source, target = [[0.0], [1.0]], [[5.0], [9.0]]
    assert polynomial_ipm(source, target, 2, centralised=True) == pytest.approx(4 - 0.25)
    assert polynomial_ipm(source, target, 1, centralised=True) == 0.0


def test_theorem_2_up_to_the_root_of_two_in_the_cross_variances():
    source, target = samples(3)
    second = polynomial_ipm(source, target, 2, centralised=True)
    halved = cmd_by_definition(source, target, 2, weights=[1.0, math.sqrt(0.5)])
    assert cmd(source, target, n_moments=2, cross=2) == pytest.approx(halved, rel=1e-12)
    assert cmd_by_definition(source, target, 2) == pytest.approx(polynomial_ipm(source, target, 1) + second, rel=1e-12)


def test_theorem_2_where_the_monomials_are_too_many_to_list():
    source, target = samples(10, rows=(120, 90))
    expected = cmd(source, target, n_moments=5, cross=5)
    assert cmd_by_definition(source, target, 5) == pytest.approx(expected, rel=1e-7)


def test_tensors_and_arrays_agree():
    source, target = samples(3)
    tensors = torch.from_numpy(source).requires_grad_(), torch.from_numpy(target)
    assert polynomial_ipm(*tensors, 3) == polynomial_ipm(source, target, 3)


ONE = [[0.0]]
BAD = [
    *((lambda w=w: cmd_by_definition(ONE, ONE, 2, weights=w), "weights must") for w in ([1.0], [1.0, -1.0])),
    (lambda: polynomial_ipm(ONE, [[math.inf]], 2), "target holds NaN"),
    *((lambda order=order: polynomial_ipm(ONE, ONE, order), "order must be") for order in (0, 1.5)),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_what_is_no_sample_and_no_order_is_refused(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()
