"""The robust default: what it decides, that it helps and does not hurt, and that a saved one is the same."""

import os

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, make_classification, make_regression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

import momentalign as ma
from momentalign.estimators import portfolio
from momentalign.estimators.evidence import Evidence

FAST = 80


@pytest.fixture
def quick(monkeypatch):
    """A tenth of the updates: for what does not depend on how well networks learn."""
    monkeypatch.setattr(portfolio, "UPDATES", FAST)


@pytest.fixture(scope="module")
def classes():
    X, y = make_classification(600, 8, n_informative=5, n_classes=3, random_state=0)
    return X, np.array(["fig", "pear", "plum"])[y]


def _drifted(X):
    """Every sensor has another gain and offset."""
    random = np.random.default_rng(1)
    return X * random.uniform(0.3, 3.0, X.shape[1]) + random.normal(0.0, 5.0, X.shape[1])


def test_it_adapts_to_drifted_sensors(classes):
    X, y = classes
    target = _drifted(X[:400])
    model = ma.AutoClassifier(random_state=0).fit(X[400:], y[400:], target)
    plain = ma.AutoClassifier(random_state=0).fit(X[400:], y[400:])
    assert model.decision_.startswith("Adapted")
    assert model.gain_.low < model.score(target, y[:400]) - plain.score(target, y[:400]) < model.gain_.high
    assert model.score(target, y[:400]) > plain.score(target, y[:400]) + 0.05
    assert model.portfolio_["weight"].sum() == pytest.approx(1.0)


def test_it_leaves_alone_what_needs_no_help(classes):
    X, y = classes
    model = ma.AutoClassifier(random_state=0).fit(X[:300], y[:300], X[300:])
    plain = ma.AutoClassifier(random_state=0).fit(X[:300], y[:300])
    assert model.decision_.startswith("Not adapted. Expected accuracy on the target ")
    assert model.gain_ is None
    np.testing.assert_array_equal(model.predict(X[300:]), plain.predict(X[300:]))
    assert model.estimate_.low < model.score(X[300:], y[300:]) < model.estimate_.high


def test_where_the_target_is_out_of_reach_only_standardised_domains_count():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 2)), np.repeat([0, 1], 100)
    X[y == 1] += 3
    target = 100 + 20 * np.exp(X)  # Outside, and of another shape: no moved copy.
    model = ma.AutoClassifier(random_state=0).fit(X, y, target)
    assert "outside" in model.decision_
    assert model.score(target, y) > 0.7
    counts = model.portfolio_.set_index("name")["weight"] > 0
    assert all(name.endswith(("standardised", "of the target")) for name in counts.index[counts])


def test_where_all_plain_models_agree_on_moved_features_they_are_moved_back():
    """Moved by two standard deviations, plain models name one class for nearly every row, and agree."""
    random = np.random.default_rng(5)
    y, y_target = random.integers(2, size=(2, 800))
    X, target = (random.normal(size=(800, 4)) + 1.2 * one[:, None] for one in (y, y_target))
    target += 2 * X.std(axis=0)
    model = ma.AutoClassifier(random_state=0).fit(X, y, target)
    assert "moved" in model.decision_
    assert model.agreement_[0] > 0.95
    assert model.score(target, y_target) > 0.85
    assert model.estimate_.low < model.score(target, y_target) < model.estimate_.high


def test_other_class_shares_are_not_adapted_away():
    """Tumours with large radii are malignant more often; adapting would make half of them benign."""
    X, y = load_breast_cancer(return_X_y=True)
    large = X[:, 0] > np.median(X[:, 0])
    X = X[:, 1:]
    model = ma.AutoClassifier(random_state=0).fit(X[~large], y[~large], X[large])
    assert "other class shares" in model.decision_
    assert model.score(X[large], y[large]) > 0.85


def test_another_season_is_not_undone():
    """Warm days are busy days, and hours are learned by trees alone: half of that would be lost by adapting."""
    random = np.random.default_rng(0)

    def days(temperature):
        hours, warm, rest = (
            random.uniform(0.0, 24.0, 800),
            random.normal(temperature, 1.0, 800),
            random.normal(size=800),
        )
        busy = np.cos(hours * np.pi / 4.0) + 0.8 * warm + 0.2 * random.normal(size=800) > 1.0
        return np.column_stack([hours, warm, warm + 0.3 * random.normal(size=800), rest]), busy

    (X, y), (target, y_target) = days(0.0), days(1.5)
    model = ma.AutoClassifier(random_state=0).fit(X, y, target)
    plain = ma.AutoClassifier(random_state=0).fit(X, y)
    assert model.agreement_[0] < 0.9 * model.agreement_[1]
    assert model.decision_.startswith("Not adapted")
    assert model.score(target, y_target) > plain.score(target, y_target) - 0.02


def test_classes_that_are_compact_are_found_again_in_the_target():
    random = np.random.default_rng(0)
    codes = random.integers(3, size=600)
    centres = 5 * np.eye(3, 12)
    X, target = centres[codes[:300]], (centres + 1.3 * np.roll(centres, 5, axis=1))[codes[300:]]
    X, target = X + random.normal(size=X.shape), target + 1.5 * random.normal(size=target.shape)
    model = ma.AutoClassifier(random_state=0).fit(X, codes[:300], target)
    weights = model.portfolio_.set_index("name")["weight"]
    assert weights["class means of the target"] > 0.2
    assert model.score(target, codes[300:]) > 0.95


def test_sparse_rows_of_few_columns_are_no_text(quick, classes):
    X, y = classes
    X = np.where(X > 0.5, X, 0.0)
    dense = ma.AutoClassifier(random_state=0).fit(X[:300], y[:300], X[300:])
    rows = sparse.csr_matrix(X)
    for target in (rows[300:], X[300:]):
        model = ma.AutoClassifier(random_state=0).fit(rows[:300], y[:300], target)
        np.testing.assert_array_equal(model.predict_proba(rows), dense.predict_proba(X))


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_other_class_shares_in_text_are_not_adapted_away(share):
    """Words of a class, of a topic, and others; the target has another topic, or the same and other shares."""
    random = np.random.default_rng(0)

    def texts(labels, topic):
        rates = np.full((len(labels), 1200), 0.02)
        rates[labels == 0, :40] += 0.15
        rates[labels == 1, 40:80] += 0.15
        rates[:, 80 + 60 * topic : 140 + 60 * topic] += 0.3
        return sparse.csr_matrix(random.poisson(rates)).astype(np.float64)

    y, y_target = random.integers(2, size=400), (random.uniform(size=400) < share).astype(int)
    target = texts(y_target, topic=1 if share == 0.5 else 0)
    model = ma.AutoClassifier(random_state=0).fit(texts(y, topic=0), y, target)
    assert ("aligned networks" in model.decision_) == (share == 0.5)
    assert ("other class shares" in model.decision_) == (share != 0.5)
    assert model.score(target, y_target) > 0.9


def test_where_a_class_is_rare_models_count_that_rank_it_high(quick):
    """Naming it for no row is right in 95 %; only trees find the ring that it lies on."""
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 2))
    radius = np.hypot(*X.T)
    y = ((radius > 2.2) & (random.uniform(size=1500) < 0.5)).astype(int)
    model = ma.AutoClassifier(random_state=0).fit(X, y)
    weight = model.portfolio_.set_index("name")["weight"]
    assert 0.02 < y.mean() < 0.08
    assert weight[["boosting", "forest"]].sum() > 0.9


def test_labels_of_the_target_are_not_there_to_be_seen(quick, classes):
    X, y = classes
    ids = np.repeat([1, -1], 300)
    one = ma.AutoClassifier(random_state=0).fit(X, y, sample_domain=ids)
    other = ma.AutoClassifier(random_state=0).fit(X, np.where(ids > 0, y, "fig"), sample_domain=ids)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("jobs", [2, -1])
def test_threads_change_no_bit(quick, classes, jobs):
    X, y = classes
    one = ma.AutoClassifier(random_state=0).fit(X[:300], y[:300], X[300:])
    other = ma.AutoClassifier(random_state=0, n_jobs=jobs).fit(X[:300], y[:300], X[300:])
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # of the cluster's own
def test_a_cluster_trains_the_candidates(classes):
    import joblib
    from distributed import Client, LocalCluster

    X, y = classes
    one = ma.AutoClassifier(random_state=0).fit(X[:300], y[:300], X[300:])
    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**workers) as cluster, Client(cluster) as client:
        with joblib.parallel_config(backend="dask"):
            other = ma.AutoClassifier(random_state=0).fit(X[:300], y[:300], X[300:])
        pids = {os.getpid(), *client.run(os.getpid).values()}
    assert len(pids) == 3
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix, pd.DataFrame], ids=["array", "sparse", "frame"])
def test_a_saved_portfolio_is_the_same(quick, classes, tmp_path, layout):
    X, y = classes
    rows = layout(np.maximum(X, 0.0))
    rows = rows.rename(columns=str) if isinstance(rows, pd.DataFrame) else rows
    model = ma.AutoClassifier(random_state=0).fit(rows[:300], y[:300], rows[300:])
    model.save(tmp_path / "model")
    loaded = ma.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    pd.testing.assert_frame_equal(loaded.portfolio_, model.portfolio_, check_dtype=False)
    for name in ("decision_", "estimate_", "gain_", "agreement_"):
        assert getattr(loaded, name) == getattr(model, name)


def test_columns_that_only_vary_in_the_target_are_saved_too(quick, classes, tmp_path):
    X, y = classes
    X, target = np.column_stack([X[:100], np.ones(100)]), np.column_stack([X[100:200], np.arange(100.0)])
    model = ma.AutoClassifier(random_state=0).fit(X, y[:100], target)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(ma.load(tmp_path / "model").predict_proba(target), model.predict_proba(target))


def test_a_saved_regression_is_the_same(quick, tmp_path):
    X, y = make_regression(200, 5, noise=5.0, random_state=0)
    model = ma.AutoRegressor(random_state=0).fit(X, y, X + 0.1)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(ma.load(tmp_path / "model").predict(X), model.predict(X))


def test_weights_of_classes_and_rows_count(quick, classes):
    X, y = classes
    rows = np.flatnonzero(y != "plum")
    rare = rows[(y[rows] == "fig") | (np.arange(len(rows)) % 8 == 0)]
    plain = ma.AutoClassifier(random_state=0).fit(X[rare], y[rare])
    balanced = ma.AutoClassifier(class_weight="balanced", random_state=0).fit(X[rare], y[rare])
    named = ma.AutoClassifier(class_weight={"pear": 8.0}, random_state=0).fit(X[rare], y[rare])
    of_rows = ma.AutoClassifier(random_state=0).fit(X[rare], y[rare], sample_weight=np.where(y[rare] == "pear", 8.0, 1))
    shares = [(model.predict(X[rows]) == "pear").mean() for model in (plain, balanced, named, of_rows)]
    assert min(shares[1:]) > shares[0]


def test_predictions_of_values_stay_near_those_seen():
    X, y = make_regression(200, 5, noise=5.0, random_state=0)
    model = ma.AutoRegressor(random_state=0).fit(X, y, 50 * X)
    assert np.abs(model.predict(50 * X)).max() <= np.abs(y).max() + 0.2 * np.ptp(y)


def test_a_regression_on_rows_alike_is_as_good_as_its_parts():
    X, y = make_regression(300, 5, noise=5.0, random_state=0)
    model = ma.AutoRegressor(random_state=0).fit(X[:150], y[:150], X[150:])
    assert model.score(X[150:], y[150:]) > 0.9
    assert model.estimate_.metric == "r2"


def test_what_cannot_be_trained_on_is_refused(classes):
    X, y = classes
    with pytest.raises(ma.errors.InvalidInputError, match="non-zero"):
        ma.AutoClassifier().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="1d array"):
        ma.AutoRegressor().fit(X, np.column_stack([X[:, 0], X[:, 1]]))


def test_agreement_decides_how_much_is_adapted():
    assert [Evidence(on, 1.0).share_adapted for on in (0.5, 0.945, 0.99)] == pytest.approx([1.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("observed", "share", "because"),
    [
        ({"behind": 0.045}, 0.5, "less accurate on held-out source rows"),
        ({"behind": 0.2}, 0.0, "less accurate on held-out source rows"),
        ({"across": 0.1}, 0.4, "differ from each other already"),
        ({"unexplained": 0.5}, 0.0, "other class shares"),
        ({"outside": 1.0, "behind": 0.2, "across": 0.1}, 1.0, "other units"),
        ({"is_sparse": True}, 1.0, "sparse rows such as text"),
        ({"is_sparse": True, "unexplained": 0.93}, 0.0, "other class shares"),
        ({"is_sparse": True, "behind": 0.2}, 0.0, "less accurate on held-out source rows"),
    ],
)
def test_other_observations_speak_against_adapting(observed, share, because):
    evidence = Evidence(0.5, 1.0, **observed)
    assert evidence.share_adapted == pytest.approx(share)
    assert because in evidence.reason


@pytest.mark.parametrize("estimator", [ma.AutoClassifier(random_state=0), ma.AutoRegressor(random_state=0)])
def test_every_check_of_scikit_learn_passes_and_none_is_skipped(quick, estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    # Dispatch to other array libraries is switched off in scikit-learn unless an environment variable says otherwise.
    failed = [result["check_name"] for result in results if result["status"] != "passed"]
    assert failed == ["check_array_api_input"]


def test_a_pipeline_of_standardised_domains_is_a_good_baseline(classes):
    from sklearn.pipeline import make_pipeline

    X, y = classes
    target = _drifted(X[:400])
    model = make_pipeline(ma.MomentMap(), LogisticRegression(max_iter=500))
    model.fit(X[400:], y[400:], momentmap__X_target=target)
    assert model.score(target, y[:400]) > LogisticRegression(max_iter=500).fit(X[400:], y[400:]).score(target, y[:400])
