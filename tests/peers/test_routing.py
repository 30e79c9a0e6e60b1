"""What other libraries hand over: the target as the third argument, and domains by scikit-learn's metadata routing."""

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import momentalign as ma

RANDOM = np.random.default_rng(0)
YS, YT = np.arange(90) % 2, np.arange(60) % 2
XS = RANDOM.normal(size=(90, 3)) + 3.0 * YS[:, None]
XT = RANDOM.normal(size=(60, 3)) + 3.0 * YT[:, None] + [0.0, 2.0, 0.0]
BOTH, DOMAIN = np.concatenate([XS, XT]), np.repeat([1, -2], [90, 60])
SETTINGS = {"hidden": (4,), "max_epochs": 5, "random_state": 0}
CLASSES = np.concatenate([YS, np.full(60, -1)])
NUMBERS = np.concatenate([XS[:, 0], np.full(60, np.nan)])
MODELS = [(ma.MANNClassifier, CLASSES), (ma.MANNRegressor, NUMBERS)]


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(params=[ma.MANNClassifier, ma.MANNRegressor, ma.TransferComponentAnalysis])
def make(request):
    parameters = SETTINGS if request.param is not ma.TransferComponentAnalysis else {"n_components": 2}
    return lambda: request.param(**parameters)


def test_the_target_is_the_third_argument(make):
    by_name = make().fit(XS, YS, X_target=XT)
    np.testing.assert_array_equal(make().fit(XS, YS, XT).transform(XT), by_name.transform(XT))
    assert (make().fit(XS, YS).transform(XT) != by_name.transform(XT)).any()


@pytest.mark.parametrize("kind", [ma.ReverseValidationSearch, ma.LabelFreeSearch])
def test_the_target_is_the_third_argument_of_a_search(kind):
    searches = [kind(ma.MANNClassifier(**SETTINGS), {"weight": [0.0, 1.0]}, random_state=0) for _ in range(2)]
    by_place, by_name = searches[0].fit(XS, YS, XT), searches[1].fit(XS, YS, X_target=XT)
    assert by_place.cv_results_["mean_test_score"].tolist() == by_name.cv_results_["mean_test_score"].tolist()


@pytest.mark.parametrize(("kind", "y"), MODELS)
def test_masked_labels_of_target_rows_are_not_looked_at(kind, y):
    domains = kind(**SETTINGS).fit(BOTH, y, sample_domain=DOMAIN)
    apart = kind(**SETTINGS).fit(XS, y[:90], XT)
    np.testing.assert_array_equal(domains.coefs_[0], apart.coefs_[0])


@pytest.mark.parametrize(("kind", "y"), MODELS)
def test_a_pipeline_hands_domains_over_without_being_asked(kind, y, routing):
    pipeline = make_pipeline(StandardScaler(), kind(**SETTINGS)).fit(BOTH, y, sample_domain=DOMAIN)
    by_hand = kind(**SETTINGS).fit(StandardScaler().fit_transform(BOTH), y, sample_domain=DOMAIN)
    np.testing.assert_array_equal(pipeline[-1].coefs_[0], by_hand.coefs_[0])
    found = pipeline.predict(BOTH, sample_domain=DOMAIN, allow_source=True)
    np.testing.assert_array_equal(found, pipeline.predict(BOTH))


def test_transfer_components_get_domains_as_a_step(routing):
    pipeline = make_pipeline(ma.TransferComponentAnalysis(n_components=1), LogisticRegression())
    pipeline.fit(BOTH, CLASSES, sample_domain=DOMAIN)
    by_hand = ma.TransferComponentAnalysis(n_components=1).fit(XS, X_target=XT)
    np.testing.assert_array_equal(pipeline[0].transform(XT), by_hand.transform(XT))


@pytest.mark.parametrize(("kind", "y"), MODELS)
def test_cross_validation_cuts_domains_with_the_rows(kind, y, routing):
    y = np.where(DOMAIN > 0, y, np.concatenate([YS, YT]))
    found = cross_validate(
        kind(**SETTINGS), BOTH, y, cv=3, params={"sample_domain": DOMAIN}, error_score="raise", return_indices=True,
        return_estimator=True,
    )  # fmt: skip
    rows = found["indices"]["train"][0]
    by_hand = kind(**SETTINGS).fit(BOTH[rows], y[rows], sample_domain=DOMAIN[rows])
    np.testing.assert_array_equal(found["estimator"][0].coefs_[0], by_hand.coefs_[0])
    held_out = found["indices"]["test"][0]
    assert found["test_score"][0] == by_hand.score(BOTH[held_out], y[held_out])


def test_a_grid_search_hands_domains_over(routing):
    y = np.concatenate([YS, YT])
    search = GridSearchCV(ma.MANNClassifier(**SETTINGS), {"weight": [0.5, 1.0]}, cv=2, error_score="raise")
    search.fit(BOTH, y, sample_domain=DOMAIN)
    by_hand = ma.MANNClassifier(**SETTINGS).set_params(**search.best_params_).fit(XS, YS, XT)
    np.testing.assert_array_equal(search.best_estimator_.coefs_[0], by_hand.coefs_[0])


@pytest.mark.parametrize(
    ("kind", "y", "method"),
    [
        *[(*model, method) for model in MODELS for method in ("predict", "score")],
        (ma.MANNClassifier, CLASSES, "predict_proba"),
    ],
)
def test_no_answer_depends_on_the_domain(kind, y, method):
    model = kind(**SETTINGS).fit(BOTH, y, sample_domain=DOMAIN)
    arguments = (BOTH, np.concatenate([YS, YT])) if method == "score" else (BOTH,)
    call = getattr(model, method)
    for allow_source in (True, False):
        np.testing.assert_array_equal(
            call(*arguments, sample_domain=DOMAIN, allow_source=allow_source), call(*arguments)
        )


def test_weights_of_rows_still_reach_the_score():
    model = ma.MANNClassifier(**SETTINGS).fit(XS, YS)
    right = model.predict(XT) == YT
    assert 0 < right.sum() < 60
    assert model.score(XT, YT, right.astype(float)) == 1.0


@pytest.mark.parametrize("kind", [ma.MANNClassifier, ma.MANNRegressor])
def test_what_is_asked_for_by_itself(kind):
    requests = kind().get_metadata_routing()
    assert requests.fit.requests == {
        "X_target": None,
        "sample_domain": True,
        "sample_weight": None,
        "y_target": None,
    }
    assert requests.partial_fit.requests["sample_domain"] is True
    for method in ("predict", "score"):
        assert getattr(requests, method).requests.items() >= {"sample_domain": True, "allow_source": True}.items()


@pytest.mark.parametrize("kind", [ma.ReverseValidationSearch, ma.LabelFreeSearch])
def test_a_search_asks_for_the_domains_by_itself(kind):
    search = kind(ma.MANNClassifier(**SETTINGS), {"weight": [0.0, 1.0]}, random_state=0)
    assert search.get_metadata_routing().fit.requests["sample_domain"] is True
