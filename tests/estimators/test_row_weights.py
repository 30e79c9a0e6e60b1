"""Rows that count more: a row of weight two is the row given twice, to the last bit."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.estimators.row_weights import RowWeights, draw_by_weight

SETTINGS = {"hidden": (5,), "optimizer": "adam", "learning_rate": 0.1, "max_epochs": 6, "batch_size": 30}
KINDS = [ma.MANNClassifier, ma.MANNRegressor]


@pytest.fixture(params=KINDS)
def model(request):
    return request.param(**SETTINGS, random_state=0)


@pytest.fixture
def counts(rng):
    return rng.integers(4, size=120)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_weights_are_repetitions(model, problem, counts, kind, assert_same_weights):
    X, y, target, _ = problem
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(120), counts))
    weighted = clone(model).fit(kind(X), y, target, sample_weight=counts)
    repeated = clone(model).fit(kind(X[rows]), y[rows], target)
    assert_same_weights(weighted, repeated)
    halves = clone(model).fit(kind(X), y, target, sample_weight=counts / 2)
    assert_same_weights(weighted, halves)
    assert (weighted.coefs_[0] != clone(model).fit(kind(X), y, target).coefs_[0]).any()


def test_weights_of_target_rows_are_not_looked_at(model, problem, counts, assert_same_weights):
    both = np.concatenate([problem.X, problem.X_target])
    y = np.concatenate([problem.y, problem.y_target])
    weighted = clone(model).fit(
        both, y, sample_domain=np.repeat([1, -2], [120, 90]), sample_weight=np.concatenate([counts, np.zeros(90)])
    )
    assert_same_weights(weighted, clone(model).fit(problem.X, problem.y, problem.X_target, sample_weight=counts))
    # Moments of the source are those of the repeated rows.
    np.testing.assert_allclose(
        weighted.moments_[1].mean, np.average(weighted.transform(problem.X), axis=0, weights=counts), rtol=1e-5
    )


def test_several_sources_keep_their_rows(model, several):
    X, y, domain = several
    y = np.where(y == 99, 0, y)
    weights = np.where(domain == 2, 3.0, 1.0)
    fitted = clone(model).fit(X, y, sample_domain=domain, sample_weight=weights)
    assert {number: moments.count for number, moments in fitted.moments_.items()} == {
        1: 60,
        2: 150,
        5: 13,
        -1: 40,
        -4: 30,
    }


def test_class_weights_are_weights(problem, assert_same_weights):
    model = ma.MANNClassifier(**SETTINGS, random_state=0)
    X, y, target, _ = problem
    words = np.where(y == 1, "many", "few")
    by_class = clone(model).set_params(class_weight={"few": 1, "many": 3}).fit(X, words, target)
    by_row = clone(model).fit(X, words, target, sample_weight=np.where(y == 1, 3, 1))
    assert_same_weights(by_class, by_row)
    few = np.flatnonzero(y == 0)[:15].tolist() + np.flatnonzero(y == 1).tolist()
    plain, balanced = (clone(model).set_params(class_weight=given).fit(X[few], y[few]) for given in (None, "balanced"))
    assert (balanced.predict(X) == 0).sum() > (plain.predict(X) == 0).sum()


def test_weights_count_in_every_member_of_a_combination(problem):
    model = ma.MANNClassifier(**SETTINGS, weight="auto", random_state=0)
    X, y, target, _ = problem
    weighted = clone(model).fit(X, y, target, sample_weight=np.where(y == 1, 5, 1))
    assert weighted.predict_proba(X)[:, 1].mean() > clone(model).fit(X, y, target).predict_proba(X)[:, 1].mean()


def test_labelled_target_rows_weigh_as_much_as_the_others_on_average(model, problem):
    y_target = np.where(np.arange(90) < 10, problem.y_target, np.nan)
    few = clone(model).fit(problem.X, problem.y, problem.X_target, y_target=y_target, sample_weight=np.full(120, 1e-3))
    assert few.moments_[1].count == 120
    assert few.moments_[-2].count == 90


def test_a_pass_repeats_rows_in_their_order(model, problem, counts, assert_same_weights):
    classes = {"classes": [0, 1]} if isinstance(model, ma.MANNClassifier) else {}
    weighted = clone(model).partial_fit(problem.X, problem.y, sample_weight=counts, **classes)
    rows = np.repeat(np.arange(120), counts)
    assert_same_weights(weighted, clone(model).partial_fit(problem.X[rows], problem.y[rows], **classes))


def test_equal_rows_are_held_out_together(problem, monkeypatch):
    seen = []

    class Watching(ma.MANNClassifier):
        def _train(self, task, settings):
            seen.append(task)
            super()._train(task, settings)

    model = Watching(**SETTINGS, validation_fraction=0.3, random_state=0)
    model.fit(np.repeat(problem.X, 2, axis=0)[:200], np.repeat(problem.y, 2)[:200])
    (task,) = seen
    training, held_out = ({row.tobytes() for row in rows} for rows in (task.source, task.validation))
    assert len(held_out) == 30
    assert not training & held_out


def test_weights_that_are_not_whole_are_met_closely(rng):
    weights = rng.random(1000)
    drawn = np.bincount(draw_by_weight(weights, 4000), minlength=1000)
    np.testing.assert_allclose(drawn, 4000 * weights / weights.sum(), atol=1.0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(119), r"sample_weight must have shape \(120,\)"),
        (np.full(120, -1.0), "sample_weight must be finite and at least 0"),
        (np.zeros(120), "sample_weight is zero for every source row"),
        (["a"] * 120, "sample_weight must be an array of numbers"),
    ],
)
def test_what_are_no_weights_is_refused(model, problem, weights, message):
    with pytest.raises((InvalidInputError, TypeError), match=message):
        model.fit(problem.X, problem.y, sample_weight=weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({0: -1.0, 1: 1.0}, "class_weight must hold finite weights of at least 0"),
        ({0: np.nan, 1: 1.0}, "class_weight must hold finite weights"),
        ({7: 1.0}, "class_weight: The classes, .* are not in class_weight"),
        ("often", "class_weight: "),
    ],
)
def test_what_are_no_class_weights_is_refused(problem, weights, message):
    with pytest.raises(InvalidInputError, match=message):
        ma.MANNClassifier(**SETTINGS, class_weight=weights).fit(problem.X, problem.y)


def test_ways_that_cannot_weigh_classes_say_so(problem):
    model = ma.MANNClassifier(**SETTINGS, class_weight="balanced")
    with pytest.raises(InvalidInputError, match=r"class_weight=.balanced. counts all rows, and partial_fit sees some"):
        model.partial_fit(problem.X, problem.y, classes=[0, 1])
    with pytest.raises(InvalidInputError, match=r"class_weight=.balanced. repeats rows, which fit_chunks reads"):
        model.fit_chunks([(problem.X, problem.y)])
    with pytest.raises(
        InvalidInputError, match=r"class_weight=.balanced. repeats rows, which would stand on both sides"
    ):
        ma.LabelFreeSearch(model, {"weight": [1.0]}).fit(problem.X, problem.y, problem.X_target)


def test_many_rows_without_weights_stay_as_they_are(rng):
    X = rng.integers(2, size=(1001, 1)).astype(float)
    assert RowWeights().draw(X, np.zeros(1001), np.ones(1001, int)) is None
    assert RowWeights().draw(X[:1000], np.zeros(1000), np.ones(1000, int)) is not None
