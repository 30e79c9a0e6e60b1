"""The estimators in skada's pipelines, splitters and scorers, and our distance as one of its deep losses."""

import numpy as np
import pytest
import torch
from skada import make_da_pipeline
from skada.deep.base import (
    BaseDALoss,
    DomainAwareCriterion,
    DomainAwareModule,
    DomainAwareNet,
    DomainBalancedDataLoader,
)
from skada.metrics import (
    CircularValidation,
    DeepEmbeddedValidation,
    ImportanceWeightedScorer,
    MaNoScorer,
    MixValScorer,
    PredictionEntropyScorer,
    SoftNeighborhoodDensity,
    SupervisedScorer,
)
from skada.model_selection import SourceTargetShuffleSplit, StratifiedDomainShuffleSplit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.preprocessing import StandardScaler

import momentalign as ma

RANDOM = np.random.default_rng(0)
TRUE = np.concatenate([np.arange(300) % 2, np.arange(240) % 2])
DOMAIN = np.repeat([1, -2], [300, 240])
SOURCE, TARGET = DOMAIN > 0, DOMAIN < 0
X = RANDOM.normal(size=(540, 2)) + 3.0 * TRUE[:, None] + np.outer(TARGET, [0.0, 3.0])
MASKED = np.where(SOURCE, TRUE, -1)
NUMBERS = np.where(SOURCE, X[:, 0], np.nan)
SPLIT = SourceTargetShuffleSplit(n_splits=2, test_size=0.4, random_state=0)


def classifier(**parameters):
    return ma.MANNClassifier(**{"hidden": (8,), "learning_rate": 0.1, "random_state": 0, **parameters})


def regressor():
    return ma.MANNRegressor(hidden=(8,), learning_rate=0.1, max_epochs=100, random_state=0)


def test_a_pipeline_hands_the_domains_over_and_adapts():
    pipeline = make_da_pipeline(StandardScaler(), classifier()).fit(X, MASKED.copy(), sample_domain=DOMAIN)
    scaled = StandardScaler().fit_transform(X)
    by_hand = classifier().fit(scaled[SOURCE], TRUE[SOURCE], scaled[TARGET])
    fitted = pipeline[-1].get_estimator()
    for found, expected in zip(fitted.coefs_, by_hand.coefs_, strict=True):
        np.testing.assert_array_equal(found, expected)
    accuracy = pipeline.score(X[TARGET], TRUE[TARGET], sample_domain=DOMAIN[TARGET])
    plain = classifier(discrepancy=None).fit(X[SOURCE], TRUE[SOURCE])
    assert plain.score(X[TARGET], TRUE[TARGET]) + 0.1 < accuracy


def test_both_domains_are_predicted_where_the_source_is_allowed():
    pipeline = make_da_pipeline(StandardScaler(), classifier()).fit(X, MASKED.copy(), sample_domain=DOMAIN)
    classes = pipeline.predict(X, sample_domain=DOMAIN, allow_source=True)
    chances = pipeline.predict_proba(X, sample_domain=DOMAIN, allow_source=True)
    np.testing.assert_array_equal(classes, chances.argmax(axis=1))
    assert pipeline.score(X, TRUE, sample_domain=DOMAIN, allow_source=True) == (classes == TRUE).mean()


@pytest.mark.parametrize(
    "scorer",
    [
        CircularValidation(),
        DeepEmbeddedValidation(),
        ImportanceWeightedScorer(),
        MaNoScorer(),
        MixValScorer(),
        PredictionEntropyScorer(),
        SoftNeighborhoodDensity(),
        SupervisedScorer(),
    ],
    ids=lambda scorer: type(scorer).__name__,
)
def test_a_scorer_sees_a_pipeline_in_cross_validation(scorer):
    model = classifier(max_epochs=30).set_score_request(sample_weight=True)  # which the importance weights are
    params = {"sample_domain": DOMAIN}
    if isinstance(scorer, SupervisedScorer):
        params["target_labels"] = TRUE
    pipeline = make_da_pipeline(StandardScaler(), model)
    found = cross_validate(pipeline, X, MASKED, cv=SPLIT, scoring=scorer, params=params, error_score="raise")
    assert len(found["test_score"]) == 2
    assert np.isfinite(found["test_score"]).all()


@pytest.mark.parametrize("scorer", [PredictionEntropyScorer(), CircularValidation(), ImportanceWeightedScorer()])
def test_a_scorer_sees_a_model_without_a_pipeline(scorer):
    model = classifier(max_epochs=30).set_score_request(sample_weight=True)
    split = StratifiedDomainShuffleSplit(n_splits=2, random_state=0)
    params = {"sample_domain": DOMAIN}
    found = cross_validate(model, X, MASKED, cv=split, scoring=scorer, params=params, error_score="raise")
    assert np.isfinite(found["test_score"]).all()


def test_a_grid_search_chooses_the_weight():
    pipeline = make_da_pipeline(StandardScaler(), classifier())
    grid = {"mannclassifier__weight": [0.0, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=SPLIT, scoring=SupervisedScorer(), error_score="raise")
    search.fit(X, MASKED.copy(), sample_domain=DOMAIN, target_labels=TRUE)
    assert search.best_params_ == {"mannclassifier__weight": 1.0}


def test_a_regressor_learns_beside_numbers_masked_with_nan():
    pipeline = make_da_pipeline(StandardScaler(), regressor()).fit(X, NUMBERS.copy(), sample_domain=DOMAIN)
    assert pipeline.score(X[TARGET], X[TARGET, 0], sample_domain=DOMAIN[TARGET]) > 0.8
    scorer = CircularValidation(source_scorer=r2_score)
    params = {"sample_domain": DOMAIN}
    found = cross_validate(pipeline, X, NUMBERS, cv=SPLIT, scoring=scorer, params=params, error_score="raise")
    assert (found["test_score"] > 0.5).all()


def test_transfer_components_stand_before_a_classifier():
    components = ma.TransferComponentAnalysis(n_components=1)
    pipeline = make_da_pipeline(components, LogisticRegression()).fit(X, MASKED.copy(), sample_domain=DOMAIN)
    by_hand = ma.TransferComponentAnalysis(n_components=1).fit(X[SOURCE], X_target=X[TARGET])
    found = pipeline[:-1].transform(X, sample_domain=DOMAIN)
    np.testing.assert_allclose(found, by_hand.transform(X), atol=1e-6)
    assert pipeline.score(X[TARGET], TRUE[TARGET], sample_domain=DOMAIN[TARGET]) > 0.8


def test_the_robust_default_is_the_last_step_and_is_scored_without_target_labels():
    pipeline = make_da_pipeline(StandardScaler(), ma.AutoClassifier(random_state=0))
    pipeline.fit(X, MASKED.copy(), sample_domain=DOMAIN)
    scaled = StandardScaler().fit_transform(X)
    by_hand = ma.AutoClassifier(random_state=0).fit(scaled[SOURCE], TRUE[SOURCE], scaled[TARGET])
    found = pipeline.predict_proba(X[TARGET], sample_domain=DOMAIN[TARGET])
    np.testing.assert_allclose(found, by_hand.predict_proba(scaled[TARGET]))
    for scorer in (PredictionEntropyScorer(), CircularValidation()):
        assert np.isfinite(scorer(pipeline, X, MASKED.copy(), sample_domain=DOMAIN, allow_source=True))


def test_a_moment_map_stands_before_a_classifier():
    pipeline = make_da_pipeline(ma.MomentMap(), LogisticRegression()).fit(X, MASKED.copy(), sample_domain=DOMAIN)
    by_hand = ma.MomentMap()
    rows = by_hand.fit_transform(X[SOURCE], X_target=X[TARGET])
    classifier = LogisticRegression().fit(rows, TRUE[SOURCE])
    found = pipeline.predict_proba(X[TARGET], sample_domain=DOMAIN[TARGET])
    np.testing.assert_allclose(found, classifier.predict_proba(by_hand.transform(X[TARGET])), atol=1e-6)
    plain = LogisticRegression().fit(X[SOURCE], TRUE[SOURCE]).score(X[TARGET], TRUE[TARGET])
    assert pipeline.score(X[TARGET], TRUE[TARGET], sample_domain=DOMAIN[TARGET]) > plain + 0.1


def test_a_search_is_the_last_step():
    search = ma.ReverseValidationSearch(classifier(), {"weight": [0.0, 1.0]}, random_state=0)
    pipeline = make_da_pipeline(StandardScaler(), search.set_fit_request(sample_domain=True))
    pipeline.fit(X, MASKED.copy(), sample_domain=DOMAIN)
    assert set(pipeline[-1].get_estimator().best_params_) == {"weight"}
    assert pipeline.score(X[TARGET], TRUE[TARGET], sample_domain=DOMAIN[TARGET]) > 0.7


class MomentLoss(BaseDALoss):
    """Our distance of the features, as skada hands them over; it notes what it has returned."""

    def __init__(self):
        super().__init__()
        self.distance = ma.CMDLoss()
        self.returned = []

    def forward(self, features_s, features_t, **_):
        loss = self.distance(features_s, features_t)
        self.returned.append(loss.item())
        assert loss.item() == pytest.approx(ma.cmd(features_s.detach().numpy(), features_t.detach().numpy()), rel=1e-4)
        return loss


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Sigmoid())
        self.head = torch.nn.Linear(8, 2)

    def forward(self, rows, sample_weight=None):
        return self.head(self.hidden(rows))


def accuracy_and_losses(reg):
    torch.manual_seed(0)
    loss = MomentLoss()
    net = DomainAwareNet(
        module=DomainAwareModule,
        module__base_module=Network(),
        module__layer_name="hidden",
        iterator_train=DomainBalancedDataLoader,
        criterion=DomainAwareCriterion(torch.nn.CrossEntropyLoss(), loss, reg=reg),
        optimizer=torch.optim.Adam,
        lr=0.03,
        batch_size=100,
        max_epochs=60,
        train_split=None,
        verbose=0,
    )
    rows = X.astype(np.float32)
    net.fit(rows, MASKED, sample_domain=DOMAIN)
    found = net.predict(rows[TARGET], sample_domain=DOMAIN[TARGET], allow_source=True)
    return (found == TRUE[TARGET]).mean(), loss.returned


def test_the_distance_is_a_deep_loss():
    aligned, losses = accuracy_and_losses(reg=1.0)
    plain, _ = accuracy_and_losses(reg=0.0)
    assert losses[-1] < losses[0]
    assert aligned > plain + 0.05
