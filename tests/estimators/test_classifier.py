import inspect

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.discrepancies.names import named_distance
from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import ClassLabels
from momentalign.estimators.domains import refuse_missing


def test_the_parameters_and_defaults_are_the_contract():
    defaults = {name: p.default for name, p in inspect.signature(ma.MANNClassifier).parameters.items()}
    assert defaults == {
        "hidden": (50,), "discrepancy": "cmd", "weight": 1.0, "n_moments": 5, "optimizer": None,
        "learning_rate": None, "batch_size": 300, "max_epochs": 1500, "patience": 10, "validation_fraction": 0.3,
        "device": "auto", "random_state": None, "verbose": 0, "between": "pooled", "domain_weights": "equal",
        "sharpen": 0.0, "class_weight": None,
    }  # fmt: skip
    arguments = inspect.signature(ma.MANNClassifier.fit).parameters
    named = [name for name, p in arguments.items() if p.kind is p.KEYWORD_ONLY]
    assert [*arguments] == ["self", "X", "y", "X_target", *named]
    assert named == ["sample_domain", "y_target", "sample_weight"]


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("cmd", ma.CMDLoss(4)),
        ("cv-cmd", ma.CMDLoss(4, cross=2)),
        ("mmd", ma.MMDLoss()),
        ("coral", ma.CORALLoss()),
        ("dann", ma.AdversarialLoss(5)),
    ],
)
def test_a_name_is_the_loss_it_stands_for(quick, problem, assert_same_weights, name, loss):
    by_name, by_loss, plain = (
        quick(discrepancy=given, n_moments=4, weight=3.0).fit(problem.X, problem.y, problem.X_target)
        for given in (name, loss, None)
    )
    assert_same_weights(by_name, by_loss)
    assert (by_name.coefs_[0] != plain.coefs_[0]).any()
    assert min(by_name.history_["distance"]) > 0.0 == max(plain.history_["distance"])
    assert str(named_distance(name, 4, width=5)) == str(loss)


def test_held_out_rows_keep_the_class_proportions(quick, make_problem):
    X, y, *_ = make_problem(rows=100)
    y = (np.arange(100) % 5 == 0).astype(int)
    _, task, _ = quick(validation_fraction=0.25)._prepare(X, y, None)
    assert np.bincount(task.labels).tolist() == [60, 15]
    assert np.bincount(task.validation_labels).tolist() == [20, 5]
    both = np.concatenate([task.source, task.validation])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(X.astype(np.float32), axis=0))
    _, everything, _ = quick(validation_fraction=0.0)._prepare(X, y, None)
    assert everything.validation is None


def test_both_domains_are_shuffled_once_by_the_seed(quick, problem):
    """Files are often sorted by class; batches of one class have other moments than the domain."""
    tasks = [quick(random_state=seed)._prepare(*problem[:3])[1] for seed in (0, 0, 1)]
    for rows in ("source", "target"):
        first, same, other = (getattr(task, rows) for task in tasks)
        np.testing.assert_array_equal(first, same)
        assert (first != other).any()
    assert (tasks[0].target != problem.X_target.astype(np.float32)).any()
    np.testing.assert_array_equal(
        np.sort(tasks[0].target, axis=0), np.sort(problem.X_target.astype(np.float32), axis=0)
    )
    by_row = {tuple(row): label for row, label in zip(problem.X.astype(np.float32), problem.y, strict=True)}
    assert [by_row[tuple(row)] for row in tasks[0].source] == tasks[0].labels.tolist()


@pytest.mark.parametrize(
    "classes",
    [
        ["left", "right"],
        [np.str_("a"), np.str_("b")],
        [-1, 1],
        [False, True],
        [0.0, 2.0],
        [10**12, 7],
    ],
)
def test_labels_of_any_kind_come_back(quick, problem, classes):
    y = np.array(classes)[problem.y]
    model = quick(max_epochs=60, learning_rate=0.1).fit(problem.X, y, problem.X_target)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    predicted = model.predict(problem.X)
    assert predicted.dtype == y.dtype
    assert (predicted == y).mean() > 0.8
    by_probability = model.classes_[model.predict_proba(problem.X).argmax(1)]
    np.testing.assert_array_equal(predicted, by_probability)


def test_pandas_labels_and_object_strings_are_labels(quick, problem):
    strings = np.array(["no", "yes"], dtype=object)[problem.y]
    for y in (strings, strings.tolist(), pd.Series(strings), pd.Series(strings).astype("category")):
        assert set(quick().fit(problem.X, y, problem.X_target).predict(problem.X)) <= {"no", "yes"}


def test_three_classes(quick, problem):
    X, y = problem.X, np.digitize(problem.X[:, 0], [0.5, 2.0])
    model = quick(max_epochs=200, learning_rate=0.1).fit(X, y, problem.X_target)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (120, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-12)
    assert model.score(X, y) > 0.8


def _misleading_problem(seed, rows=200):
    """Two features tell the classes apart; in the target the stronger one is shifted by its own effect."""
    rng, y = np.random.default_rng(seed), np.arange(rows) % 2
    X, X_target = (rng.normal(size=(rows, 2)) + np.outer(y, [3.0, 4.0]) for _ in range(2))
    return X, y, X_target + np.array([0.0, 4.0]), y


@pytest.mark.parametrize("discrepancy", ["cmd", "cv-cmd", "mmd"])
def test_adaptation_helps_where_the_target_is_shifted(discrepancy):
    settings = {"hidden": (10,), "optimizer": "adam", "learning_rate": 0.05, "max_epochs": 100, "patience": None}
    X, y, X_target, y_target = _misleading_problem(0)
    plain, adapted = (
        ma.MANNClassifier(discrepancy=d, weight=3.0, random_state=0, **settings).fit(X, y, X_target)
        for d in (None, discrepancy)
    )
    assert plain.score(X_target, y_target) < 0.7
    assert adapted.score(X_target, y_target) > 0.8


def test_sharpening_makes_predictions_for_the_target_more_confident(quick, problem):
    X, y, X_target, _ = problem
    settings = {"optimizer": "adam", "learning_rate": 0.02, "max_epochs": 40}
    plain, sharpened = (quick(**settings, sharpen=sharpen).fit(X, y, X_target) for sharpen in (0.0, 1.0))
    confidence = [model.predict_proba(X_target).max(axis=1).mean() for model in (plain, sharpened)]
    assert confidence[1] > confidence[0] + 0.1
    assert sharpened.n_epochs_ == 2 * plain.n_epochs_


def test_sparse_rows_are_sharpened_as_dense_ones(quick, problem):
    X, y, X_target, _ = problem
    dense, sparse_one = (quick(sharpen=0.5).fit(kind(X), y, kind(X_target)) for kind in (np.asarray, sparse.csr_matrix))
    for one, other in zip(dense.coefs_, sparse_one.coefs_, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_without_a_target_nothing_is_sharpened(quick, problem, assert_same_weights):
    assert_same_weights(quick(sharpen=1.0).fit(*problem[:2]), quick().fit(*problem[:2]))


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf, 1e16, "much", None, True])
def test_a_weight_that_cannot_sharpen_is_refused(quick, problem, value):
    X, y, X_target, _ = problem
    model = quick(sharpen=value)
    for call in (
        lambda: model.fit(X, y, X_target),
        lambda: model.partial_fit(X, y, X_target, classes=[0, 1]),
        lambda: model.fit_chunks([(X, y)], [X_target]),
    ):
        with pytest.raises((ValueError, TypeError), match="sharpen must be a"):
            call()


@pytest.mark.parametrize(
    "chunks",
    [
        [[3, 1], [2]],
        [[True, False], [True]],
        [[1.0, 2.0], [3, 1]],
        [["b", "a"], np.array(["long name", "a"], dtype=object)],
    ],
)
def test_classes_are_those_of_all_chunks_together(chunks):
    labels = ClassLabels()
    for chunk in chunks:
        labels.note(labels.read(chunk))
    labels.finish()
    every = [label for chunk in chunks for label in chunk]
    assert labels.classes.tolist() == sorted(set(every))
    for chunk in chunks:
        assert [labels.classes[code] for code in labels.coded(labels.read(chunk))] == list(chunk)


@pytest.mark.parametrize(
    ("labels", "row", "shown"),
    [
        ([0.0, 1.0, np.nan, np.nan], 3, r"missing \(nan\)"),
        ([0.0, np.inf], 2, r"not finite \(inf\)"),
        (["a", "b", None], 3, r"missing \(None\)"),
        (np.array(["a", np.nan], dtype=object), 2, r"missing \(nan\)"),
        (pd.Series(["a", "b", None], dtype="string"), 3, r"missing \(<NA>\)"),
        (pd.Series([None, "a"], dtype="category"), 1, r"missing \(nan\)"),
        (pd.Series([1, None], dtype="Int64"), 2, r"missing \(nan\)"),
    ],
)
def test_a_label_that_is_missing_is_named_by_its_row(labels, row, shown):
    with pytest.raises(InvalidInputError, match=rf"^the label of row {row} is {shown}; fill it in or leave the row"):
        refuse_missing(ClassLabels().read(labels))
