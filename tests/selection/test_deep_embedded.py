import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import deep_embedded_score, importance_weighted_score


def test_by_hand():
    # L = (0, 3, 1), w = (1, 3, 1): means 4/3 and 5/3, eta = -(20/9) / (24/9), corrected by eta times 2/3.
    losses, ratio = [0.0, 1.0, 1.0], [1.0, 3.0, 1.0]
    covariance = np.cov([0.0, 3.0, 1.0], ratio)
    expected = 4 / 3 - covariance[0, 1] / covariance[1, 1] * (5 / 3 - 1)
    assert deep_embedded_score(losses=losses, ratio=ratio) == pytest.approx(-expected)


@pytest.mark.parametrize("level", [1.0, 0.1, 0.7])
def test_equal_ratios_leave_nothing_to_correct(level):
    losses, ratio = [0.0, 1.0, 3.0], [level] * 3
    assert deep_embedded_score(losses=losses, ratio=ratio) == pytest.approx(-level * 4 / 3)
    assert deep_embedded_score(losses=losses, ratio=[0.0] * 3) == 0.0


def test_a_useless_control_variate_changes_nothing():
    """Weighted losses that do not go with the weights."""
    losses, ratio = [4.0, 1.0, 2.0, 2.0], [0.5, 2.0, 0.5, 0.5]
    assert np.cov(np.multiply(losses, ratio), ratio)[0, 1] != 0.0
    losses = [4.0, 1.0, 4.0, 4.0]  # Every weighted loss is 2.
    plain = importance_weighted_score(losses=losses, weights=ratio)
    assert deep_embedded_score(losses=losses, ratio=ratio) == pytest.approx(plain)


def test_it_is_right_on_average_and_varies_less(rng):
    """Source N(0, 1), target N(1, 1), the loss an error that is more frequent to the right."""
    plain, corrected = [], []
    for _ in range(500):
        source = rng.normal(size=200)
        losses = (rng.random(200) < 0.3 + 0.1 * np.tanh(source)).astype(float)
        ratio = np.exp(source - 0.5)
        plain.append(importance_weighted_score(losses=losses, weights=ratio))
        corrected.append(deep_embedded_score(losses=losses, ratio=ratio))
    on_target = 0.3 + 0.1 * np.tanh(rng.normal(1.0, 1.0, 1_000_000)).mean()
    assert np.mean(plain) == pytest.approx(-on_target, abs=0.01)
    assert np.mean(corrected) == pytest.approx(-on_target, abs=0.01)
    assert np.var(corrected) < 0.7 * np.var(plain)


def test_arguments_are_checked():
    with pytest.raises(InvalidInputError, match=r"ratio must have shape \(2,\)"):
        deep_embedded_score(losses=[1.0, 2.0], ratio=[1.0])
    with pytest.raises(InvalidInputError, match="losses must be finite"):
        deep_embedded_score(losses=[np.inf], ratio=[1.0])
