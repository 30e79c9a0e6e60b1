"""MomentMap: the moments of both domains afterwards, sparse rows, and rows out of the sample."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

import momentalign as ma
from momentalign.errors import InvalidInputError


@pytest.fixture
def domains():
    random = np.random.default_rng(0)
    mix = random.normal(size=(4, 4))
    return random.normal(size=(300, 4)), random.normal(size=(200, 4)) @ mix + 7.0


def test_each_domain_is_standardised_by_itself(domains):
    source, target = domains
    model = ma.MomentMap()
    for rows in (model.fit_transform(source, X_target=target), model.transform(target)):
        np.testing.assert_allclose(rows.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(rows.std(axis=0), 1.0)
    np.testing.assert_allclose(model.transform(source, sample_domain=np.ones(300, int)).std(axis=0), 1.0)


def test_the_source_takes_over_the_covariance_of_the_target(domains):
    source, target = domains
    model = ma.MomentMap("covariance", shrinkage=1e-6)
    moved = model.fit_transform(source, X_target=target)
    np.testing.assert_allclose(np.cov(moved.T), np.cov(model.transform(target).T) * 199 / 200 * 300 / 299, atol=0.02)


def test_domains_may_come_as_one_table(domains):
    source, target = domains
    apart = ma.MomentMap().fit_transform(source, X_target=target)
    ids = np.repeat([1, -1], [300, 200])
    together = ma.MomentMap().fit_transform(np.vstack([source, target]), sample_domain=ids)
    np.testing.assert_allclose(together[:300], apart)
    np.testing.assert_allclose(together[300:].mean(axis=0), 0.0, atol=1e-12)
    shuffled = np.random.default_rng(1).permutation(500)
    model = ma.MomentMap().fit(source, X_target=target)
    rows = np.vstack([source, target])
    mixed = model.transform(rows[shuffled], sample_domain=ids[shuffled])
    np.testing.assert_allclose(mixed, together[shuffled])


def test_without_a_target_it_is_a_standard_scaler(domains):
    source, target = domains
    np.testing.assert_allclose(
        ma.MomentMap().fit(source).transform(target), StandardScaler().fit(source).transform(target)
    )


def test_sparse_rows_are_scaled_and_stay_sparse(domains):
    source, target = (sparse.csr_matrix(np.maximum(rows - 1.0, 0.0)) for rows in domains)
    moved = ma.MomentMap().fit_transform(source, X_target=target)
    assert sparse.issparse(moved)
    assert moved.nnz == source.nnz
    np.testing.assert_allclose(moved.toarray().std(axis=0), 1.0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"moments": "all"}, "moments"),
        ({"shrinkage": 2.0}, "shrinkage"),
        ({"moments": "covariance", "shrinkage": 0.0}, "shrinkage"),
    ],
)
def test_settings_that_cannot_work_are_refused(domains, settings, named):
    with pytest.raises(InvalidInputError, match=named):
        ma.MomentMap(**settings).fit(domains[0], X_target=domains[1])


def test_sparse_rows_have_no_covariance(domains):
    source = sparse.csr_matrix(domains[0])
    with pytest.raises(InvalidInputError, match="dense"):
        (model := ma.MomentMap("covariance")).fit(source, X_target=source)
    assert not [name for name in vars(model) if name.endswith("_")]
