"""The same calls in ADAPT and here, and our classifier as the estimator inside one of its methods."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow: ADAPT 0.4.5 is written for Keras 2

import numpy as np
import pytest
from adapt.feature_based import CORAL
from sklearn.linear_model import LogisticRegression

import momentalign as ma

RANDOM = np.random.default_rng(0)
YS, YT = np.arange(300) % 2, np.arange(240) % 2
XS = RANDOM.normal(size=(300, 2)) + 3.0 * YS[:, None]
XT = RANDOM.normal(size=(240, 2)) + 3.0 * YT[:, None] + [0.0, 3.0]


def classifier(**parameters):
    return ma.MANNClassifier(**{"hidden": (8,), "learning_rate": 0.1, "random_state": 0, **parameters})


@pytest.mark.parametrize("model", [CORAL(LogisticRegression(), verbose=0), classifier()], ids=["adapt", "momentalign"])
def test_one_call_fits_either(model):
    assert model.fit(XS, YS, XT).predict(XT).shape == YT.shape
    assert model.score(XT, YT) > 0.6


def test_our_classifier_is_the_estimator_of_a_method():
    method = CORAL(classifier(), Xt=XT, verbose=0).fit(XS, YS)
    by_hand = classifier().fit(method.transform(XS, domain="src"), YS)
    np.testing.assert_array_equal(method.predict(XT), by_hand.predict(method.transform(XT, domain="tgt")))
    assert isinstance(method.estimator_, ma.MANNClassifier)
