import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import importance_weighted_score


def test_by_hand():
    assert importance_weighted_score(losses=[1.0, 2.0, 4.0], weights=[0.5, 0.5, 2.0]) == pytest.approx(-9.5 / 3)


def test_equal_weights_give_the_mean_loss():
    losses = np.arange(10.0)
    assert importance_weighted_score(losses=losses, weights=np.ones(10)) == pytest.approx(-4.5)


def test_the_true_ratio_gives_the_loss_on_the_target(rng):
    """Source N(0, 1), target N(1, 1), loss x^2: 1 on the source, 2 on the target."""
    source = rng.normal(size=200_000)
    score = importance_weighted_score(losses=source**2, weights=np.exp(source - 0.5))
    assert score == pytest.approx(-2.0, abs=0.1)


def test_it_prefers_the_model_that_is_right_where_the_target_is():
    weights = [0.2, 0.2, 1.8, 1.8]
    near, far = [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]
    assert np.mean(near) > np.mean(far)
    assert importance_weighted_score(losses=near, weights=weights) > importance_weighted_score(
        losses=far, weights=weights
    )


@pytest.mark.parametrize(
    ("losses", "weights", "message"),
    [
        ([1.0, 2.0], [1.0], r"weights must have shape \(2,\)"),
        ([-1.0], [1.0], "losses must be finite and at least 0"),
        ([1.0], [np.nan], "weights must be finite"),
    ],
)
def test_arguments_are_checked(losses, weights, message):
    with pytest.raises(InvalidInputError, match=message):
        importance_weighted_score(losses=losses, weights=weights)
