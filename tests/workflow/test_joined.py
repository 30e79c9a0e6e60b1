"""Networks joined predict what the estimator predicts network by network."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from momentalign.estimators.classifier import MANNClassifier
from momentalign.workflow.classification import BLOCK, joined_networks
from momentalign.workflow.fit import FitResult


def test_several_networks_combined_over_more_than_a_block(fitted: FitResult):
    estimator = fitted.model.estimator
    assert len(estimator.networks_) > 1
    rows = np.random.default_rng(0).normal(size=(BLOCK + 7, estimator.n_features_in_)).astype(np.float32)
    joined = joined_networks(estimator)(rows)
    assert joined.dtype == np.float32
    np.testing.assert_allclose(joined, estimator.predict_proba(rows), atol=2e-6)
    far = np.array([[1e6] * estimator.n_features_in_, [-1e6] * estimator.n_features_in_], dtype=np.float32)
    np.testing.assert_allclose(joined_networks(estimator)(far), estimator.predict_proba(far), atol=2e-6)
    np.testing.assert_allclose(joined_networks(estimator)(sparse.csr_matrix(rows)), joined, atol=2e-6)


@pytest.mark.parametrize("hidden", [(6,), (6, 4)])
def test_one_network_of_any_depth(hidden: tuple[int, ...]):
    random = np.random.default_rng(0)
    rows = random.normal(size=(80, 3)).astype(np.float32)
    model = MANNClassifier(hidden=hidden, max_epochs=10, random_state=0).fit(rows, rows[:, 0] > 0)
    np.testing.assert_allclose(joined_networks(model)(rows), model.predict_proba(rows), atol=2e-6)
