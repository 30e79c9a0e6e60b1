import math

import numpy as np
import pytest

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.theory.bounds import central_moment_deviation, mean_deviation


def test_the_deviation_of_a_mean_is_hoeffdings():
    t = mean_deviation(50, confidence=0.9, interval=(-1.0, 1.0))
    assert math.exp(-2 * 50 * t**2 / 2.0**2) == pytest.approx(0.1)


def test_several_statements_share_the_probability_of_failing():
    assert mean_deviation(50, confidence=0.9, statements=4) == pytest.approx(mean_deviation(50, confidence=0.975))


def test_a_fair_coin_fails_about_as_rarely_as_promised_and_no_more():
    random = np.random.default_rng(0)
    means = random.integers(0, 2, (20_000, 40)).mean(axis=1)
    failing = [(0.5 - means >= mean_deviation(40, confidence=confidence)).mean() for confidence in (0.6, 0.9, 0.99)]
    assert failing[0] > 0.05
    assert (np.array(failing) <= [0.4, 0.1, 0.01]).all()


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_sample_moments_are_as_near_to_those_of_the_law_as_promised(order: int):
    values, chances = np.array([0.0, 0.5, 2.0]), np.array([0.6, 0.1, 0.3])
    mean = values @ chances
    true = mean if order == 1 else (values - mean) ** order @ chances
    samples = np.random.default_rng(0).choice(values, (5_000, 30), p=chances)
    means = samples.mean(axis=1, keepdims=True)
    found = means[:, 0] if order == 1 else ((samples - means) ** order).mean(axis=1)
    promised = central_moment_deviation(order, 30, confidence=0.5, interval=(0.0, 2.0))
    assert (np.abs(found - true) > promised).mean() <= 0.5
    assert np.abs(found - true).max() > promised / 20


def test_the_bound_on_a_mean_is_two_sided_and_scales_with_the_interval():
    assert central_moment_deviation(1, 30) == mean_deviation(30, statements=2)
    assert central_moment_deviation(3, 30, interval=(1.0, 3.0)) == 8 * central_moment_deviation(3, 30)
    assert central_moment_deviation(3, 30) == 4 * mean_deviation(30, statements=4)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1, math.nan, "high"])
def test_a_confidence_lies_between_0_and_1(confidence: float):
    with pytest.raises(InvalidInputError, match=r"confidence must be a .*, got .*; try confidence=0.95"):
        mean_deviation(10, confidence=confidence)


def test_rows_are_counted():
    with pytest.raises(InvalidTypeError, match=r"rows must be a whole number, got 2\.5"):
        mean_deviation(2.5)
