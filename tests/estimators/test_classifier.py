import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

import momentalign as ma
from momentalign.discrepancies.names import named_distance
from momentalign.errors import InvalidInputError
from momentalign.estimators import mann as network
from momentalign.estimators.classifier import ClassLabels
from momentalign.estimators.domains import refuse_missing
from momentalign.training import stack
from momentalign.validation import check_device

DISCREPANCIES = {
    "none": None,
    "cmd": "cmd",
    "cv-cmd": "cv-cmd",
    "mmd": "mmd",
    "coral": "coral",
    "a loss": ma.CMDLoss(3, interval=(-1.0, 1.0)),
    "a lambda": lambda source, target: (source.mean(0) - target.mean(0)).square().sum(),
}


def test_the_parameters_and_defaults_are_the_contract():
    defaults = {name: p.default for name, p in inspect.signature(ma.MANNClassifier).parameters.items()}
    assert defaults == {
        "hidden": (50,),
        "discrepancy": "cmd",
        "weight": 1.0,
        "n_moments": 5,
        "optimizer": None,
        "learning_rate": None,
        "batch_size": 300,
        "max_epochs": 1500,
        "patience": 10,
        "validation_fraction": 0.3,
        "device": "auto",
        "random_state": None,
        "verbose": 0,
        "between": "pooled",
        "domain_weights": "equal",
        "sharpen": 0.0,
        "class_weight": None,
    }
    arguments = inspect.signature(ma.MANNClassifier.fit).parameters
    assert [name for name, p in arguments.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        "self",
        "X",
        "y",
        "X_target",
    ]
    assert [name for name, p in arguments.items() if p.kind is p.KEYWORD_ONLY] == [
        "sample_domain",
        "y_target",
        "sample_weight",
    ]


@pytest.mark.parametrize("name", DISCREPANCIES)
def test_every_discrepancy_trains(quick, problem, name):
    model = quick(discrepancy=DISCREPANCIES[name]).fit(problem.X, problem.y, problem.X_target)
    distances = np.array(model.history_["distance"])
    assert (distances == 0).all() if name == "none" else (distances > 0).all()
    assert [w.shape for w in model.coefs_] == [(4, 5), (5, 2)]
    assert [b.shape for b in model.intercepts_] == [(5,), (2,)]
    assert model.score(problem.X, problem.y) >= 0.4


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
    assert str(named_distance(name, 4, width=5)) == str(loss)


@pytest.mark.parametrize("setting", [{"weight": 0.0}, {"discrepancy": None}])
def test_without_weight_or_discrepancy_the_target_changes_nothing(quick, problem, assert_same_weights, setting):
    with_target = quick(**setting).fit(problem.X, problem.y, problem.X_target[:40])
    assert_same_weights(with_target, quick().fit(problem.X, problem.y))


def test_patience_stops_training_after_the_lowest_validation_loss(quick, problem):
    model = quick(max_epochs=300, patience=4, optimizer="adam", learning_rate=0.5)
    history = model.fit(problem.X, problem.y).history_
    assert model.n_epochs_ == len(history["validation_loss"]) == np.argmin(history["validation_loss"]) + 1 + 4 < 300
    assert model.best_epoch_ <= model.n_epochs_
    assert quick(max_epochs=30, patience=None, learning_rate=0.5).fit(problem.X, problem.y).n_epochs_ == 30


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


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_a_handful_of_rows_is_trained_without_holding_out(quick, rows):
    X = np.arange(rows * 2.0).reshape(rows, 2)
    model = quick(batch_size=None).fit(X, np.arange(rows) % 2, X[:2] + 1)
    assert model.predict(X).shape == (rows,)


@pytest.mark.parametrize("engine_limit", [0.0, np.inf])
def test_dense_dataframe_and_csr_give_the_same_predictions(quick, problem, monkeypatch, engine_limit):
    monkeypatch.setattr(stack, "WORTH_COMPILING", engine_limit)
    X, y, X_target, _ = problem
    names = [f"feature {i}" for i in range(X.shape[1])]
    kinds = {
        "dense": lambda rows: rows,
        "list": lambda rows: rows.tolist(),
        "fortran": np.asfortranarray,
        "dataframe": lambda rows: pd.DataFrame(rows, columns=names),
        "csr": sparse.csr_matrix,
        "csr_array": sparse.csr_array,
        "coo": sparse.coo_matrix,
    }
    results = {}
    for kind, convert in kinds.items():
        model = quick().fit(convert(X), y, convert(X_target))
        results[kind] = model.predict_proba(convert(X_target))
    for kind, result in results.items():
        np.testing.assert_allclose(result, results["dense"], rtol=0, atol=1e-5, err_msg=kind)


@pytest.mark.parametrize("engine_limit", [0.0, np.inf])
@pytest.mark.parametrize("labelled", [False, True])
def test_one_domain_may_be_sparse_and_the_other_dense(quick, problem, monkeypatch, engine_limit, labelled):
    monkeypatch.setattr(stack, "WORTH_COMPILING", engine_limit)
    X, y, X_target, y_target = problem
    labels = {"y_target": np.where(np.arange(90) < 9, y_target, -1)} if labelled else {}
    expected = quick().fit(X, y, X_target, **labels).predict_proba(X)
    for source, target in [(sparse.csr_matrix(X), X_target), (X, sparse.csr_matrix(X_target))]:
        model = quick().fit(source, y, target, **labels)
        np.testing.assert_allclose(model.predict_proba(X), expected, rtol=0, atol=1e-5)


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


def test_transform_gives_the_hidden_activations(quick, problem):
    model = quick(hidden=(6, 3)).fit(problem.X, problem.y, problem.X_target)
    hidden = model.transform(problem.X_target)
    rows = problem.X_target
    for weight, bias in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        rows = 1 / (1 + np.exp(-(rows @ weight + bias)))
    np.testing.assert_allclose(hidden, rows, rtol=1e-6)
    assert hidden.shape == (90, 3)
    assert hidden.min() >= 0
    assert hidden.max() <= 1
    assert model.get_feature_names_out().tolist() == [f"mannclassifier{i}" for i in range(3)]


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform"])
def test_rows_are_neither_dropped_nor_reordered(quick, problem, monkeypatch, method):
    monkeypatch.setattr(network, "CHUNK", 7)
    model = quick().fit(problem.X, problem.y, problem.X_target)
    rows = np.repeat(problem.X_target, 2, axis=0)
    apply = getattr(model, method)
    whole, order = apply(rows), np.random.default_rng(0).permutation(len(rows))
    assert len(whole) == 180
    np.testing.assert_allclose(apply(rows[order]), whole[order], rtol=1e-12)
    np.testing.assert_allclose(apply(sparse.csr_matrix(rows)), whole, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([apply(rows[i : i + 1]) for i in range(50)]), whole[:50], rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_have_the_dtype_of_the_rows(quick, problem, dtype):
    model = quick().fit(problem.X.astype(dtype), problem.y, problem.X_target.astype(dtype))
    assert model.predict_proba(problem.X.astype(dtype)).dtype == dtype
    assert model.coefs_[0].dtype == np.float32


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform"])
def test_an_unfitted_model_says_so(quick, problem, method):
    with pytest.raises(NotFittedError):
        getattr(quick(), method)(problem.X)


def test_fit_returns_itself_changes_no_parameter_and_no_data(quick, problem):
    copies = [part.copy() for part in problem]
    model = quick(hidden=[5])
    parameters = model.get_params()
    assert model.fit(*problem[:3], y_target=problem.y_target) is model
    assert model.get_params() == parameters
    assert model.hidden == [5]
    for part, copy in zip(problem, copies, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_read_only_data_are_welcome(quick, problem):
    for part in problem:
        part.setflags(write=False)
    quick().fit(*problem[:3], y_target=problem.y_target)


def test_fitting_again_forgets_the_first_fit(quick, problem, make_problem, assert_same_weights):
    other = make_problem(seed=9, features=7)
    model = quick().fit(pd.DataFrame(problem.X, columns=list("abcd")), problem.y)
    model.fit(other.X, other.y, other.X_target)
    assert_same_weights(model, quick().fit(other.X, other.y, other.X_target))
    assert model.n_features_in_ == 7
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("make_state", [np.random.RandomState, np.random.default_rng])
def test_random_states_are_drawn_from(quick, problem, make_state):
    """A generator gives the same model when it stands at the same place, and another one when it has moved on."""
    state, again = make_state(3), make_state(3)
    first, second = (quick(random_state=state).fit(problem.X, problem.y) for _ in range(2))
    same = quick(random_state=again).fit(problem.X, problem.y)
    np.testing.assert_array_equal(first.coefs_[0], same.coefs_[0])
    assert (first.coefs_[0] != second.coefs_[0]).all()


def test_without_a_random_state_every_fit_is_new(quick, problem):
    first, second = (quick(random_state=None).fit(problem.X, problem.y) for _ in range(2))
    assert (first.coefs_[0] != second.coefs_[0]).all()


def test_huge_seeds_are_seeds(quick, problem):
    low, high = (quick(random_state=s).fit(problem.X, problem.y, problem.X_target) for s in (5, 2**32 + 5))
    assert (low.coefs_[0] != high.coefs_[0]).all()


def test_auto_takes_a_gpu_if_there_is_one(monkeypatch):
    for there, expected in [(True, "cuda"), (False, "cpu")]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert check_device("auto") == expected
    assert check_device("cuda:1") == "cuda:1"


def test_tags_say_sparse_is_welcome():
    tags = get_tags(ma.MANNClassifier())
    assert tags.input_tags.sparse
    assert tags.estimator_type == "classifier"


def _misleading_problem(seed, rows=200):
    """Two features tell the classes apart; in the target the stronger one is shifted by its own effect."""
    rng, y = np.random.default_rng(seed), np.arange(rows) % 2
    X, X_target = (rng.normal(size=(rows, 2)) + np.outer(y, [3.0, 4.0]) for _ in range(2))
    return X, y, X_target + np.array([0.0, 4.0]), y


@pytest.mark.parametrize("discrepancy", ["cmd", "cv-cmd", "mmd"])
def test_adaptation_helps_where_the_target_is_shifted(discrepancy):
    settings = {"hidden": (10,), "optimizer": "adam", "learning_rate": 0.05, "max_epochs": 100, "patience": None}
    for seed in range(3):
        X, y, X_target, y_target = _misleading_problem(seed)
        plain, adapted = (
            ma.MANNClassifier(discrepancy=d, weight=3.0, random_state=seed, **settings)
            .fit(X, y, X_target)
            .score(X_target, y_target)
            for d in (None, discrepancy)
        )
        assert plain < 0.7
        assert adapted > 0.8


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
