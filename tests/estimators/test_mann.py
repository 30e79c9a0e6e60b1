"""partial_fit and fit_chunks, of classifier and regressor."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

import momentalign as ma
from momentalign.errors import DivergedError, InvalidInputError
from momentalign.estimators.chunks import lots
from momentalign.tables.chunks import ArrayChunks, FileChunks
from momentalign.training import stack

ENGINES = {"batched": np.inf, "compiled": 0.0}


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    monkeypatch.setattr(stack, "WORTH_COMPILING", ENGINES[request.param])
    return request.param


@pytest.fixture
def values():
    """(X, y, X_target) whose y is a number."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, X.sum(axis=1) * 7.0 + 100.0, rng.normal(size=(90, 3)) + 0.5


def _state(model):
    """All an estimator knows, with a copy of what could be changed in place."""
    return copy.deepcopy(vars(model))


def _assert_unchanged(model, before):
    now = vars(model)
    assert set(now) == set(before)
    for name in ("coefs_", "intercepts_"):
        for part, match in zip(now.get(name, []), before.get(name, []), strict=True):
            np.testing.assert_array_equal(part, match)
    for name in ("history_", "n_epochs_", "n_features_in_"):
        assert now.get(name) == before.get(name)


def _ordered(problem):
    """The rows in the order in which fit trains on them when it holds out none."""
    X, y, X_target, _ = problem
    order, target_order = (np.random.default_rng([0, k]).permutation(len(rows)) for k, rows in enumerate((X, X_target)))
    return X[order], y[order], X_target[target_order]


WAYS_TO_FIT = {
    "fit": lambda model, X, y: model.fit(X, y, X),
    "partial_fit": lambda model, X, y: model.partial_fit(X, y, X).partial_fit(X, y, X),
    "fit_chunks": lambda model, X, y: model.fit_chunks([(X[:70], y[:70]), (X[70:], y[70:])], [X[:50], X[50:]]),
}


@pytest.mark.parametrize("way", WAYS_TO_FIT)
@pytest.mark.parametrize(
    ("layout", "name", "rate"), [(np.asarray, "adam", 0.003), (sparse.csr_matrix, "adagrad", 0.01)]
)
def test_without_an_optimizer_the_rows_choose_it(values, assert_same_weights, way, layout, name, rate):
    """Dense rows take Adam, sparse ones Adagrad; a learning rate that is given is taken."""
    X, y, settings = layout(values[0]), values[1], {"hidden": (4,), "max_epochs": 3, "random_state": 0}
    fit = WAYS_TO_FIT[way]
    chosen = fit(ma.MANNRegressor(**settings), X, y)
    assert chosen.optimizer is None
    assert_same_weights(chosen, fit(ma.MANNRegressor(optimizer=name, learning_rate=rate, **settings), X, y))
    chosen, named = (ma.MANNRegressor(optimizer=one, learning_rate=0.05, **settings) for one in (None, name))
    assert_same_weights(fit(chosen, X, y), fit(named, X, y))


# partial_fit


def test_one_call_is_one_epoch_of_fit_on_the_same_rows_bit_by_bit(quick, problem, engine, assert_same_weights):
    fitted = quick(max_epochs=1, validation_fraction=0.0).fit(*problem[:3])
    X, y, X_target = _ordered(problem)
    model = quick(max_epochs=1).partial_fit(X, y, X_target, classes=[0, 1])
    assert_same_weights(model, fitted)
    both, labels = np.concatenate([X_target, X]), np.concatenate([np.full(90, 7), y])
    together = quick().partial_fit(both, labels, sample_domain=np.repeat([-2, 1], [90, 120]), classes=[0, 1])
    assert_same_weights(together, fitted)
    assert model.history_["source_loss"] == fitted.history_["source_loss"]
    assert model.history_["distance"] == fitted.history_["distance"]


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_calls_go_on_where_the_last_one_ended(quick, make_problem, engine, assert_same_weights, optimizer):
    X, y, X_target, _ = make_problem(rows=160, target_rows=160)
    whole = quick(optimizer=optimizer).partial_fit(X, y, X_target, classes=[0, 1])
    halves = quick(optimizer=optimizer).partial_fit(X[:80], y[:80], X_target[:80], classes=[0, 1])
    halves.partial_fit(X[80:], y[80:], X_target[80:])
    assert_same_weights(halves, whole)
    assert halves.n_epochs_ == halves.best_epoch_ == len(halves.history_["source_loss"]) == 2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])  # noqa: S301
def test_a_copy_goes_on_as_the_original(quick, problem, engine, assert_same_weights, copied):
    X, y, X_target, _ = problem
    model = quick(optimizer="adam", discrepancy=ma.CMDLoss(3)).partial_fit(X, y, X_target, classes=[0, 1])
    twin = copied(model)
    assert_same_weights(twin.partial_fit(X, y, X_target), model.partial_fit(X, y, X_target))


def test_it_goes_on_after_fit_with_a_fresh_optimizer(quick, problem, engine, assert_same_weights, tmp_path):
    X, y, X_target, _ = problem
    model = quick().partial_fit(X, y, X_target, classes=[0, 1]).fit(X, y, X_target)
    again = quick().fit(X, y, X_target)
    again.save(tmp_path)
    read = ma.load(tmp_path)
    epochs = model.n_epochs_
    for one in (model, again, read):
        one.partial_fit(X, y, X_target)
    assert_same_weights(model, again)
    assert_same_weights(model, read)
    assert model.n_epochs_ == epochs + 1
    assert (model.coefs_[0] != quick().fit(X, y, X_target).coefs_[0]).any()


def test_it_learns_and_aligns(make_problem):
    model = ma.MANNClassifier(hidden=(8,), learning_rate=0.1, random_state=0)
    plain = clone(model)
    for seed in range(30):
        X, y, X_target, _ = make_problem(seed=seed, shift=2.0)
        model.partial_fit(X, y, X_target, classes=[0, 1])
        plain.partial_fit(X, y, classes=[0, 1])
    X, y, X_target, _ = make_problem(seed=100, shift=2.0)
    assert min(model.score(X, y), plain.score(X, y)) > 0.85

    def distance(one):
        return ma.cmd(one.transform(X), one.transform(X_target))

    assert distance(model) < 0.5 * distance(plain)
    assert set(plain.history_["distance"]) == {0.0}


def test_classes_are_needed_once_and_do_not_change(quick, problem):
    X, y, _, _ = problem
    with pytest.raises(InvalidInputError, match="classes must be given in the first call"):
        quick().partial_fit(X, y)
    names = np.array(["left", "right"])[y]
    named = quick().partial_fit(sparse.csr_matrix(X), names, X, classes=["right", "left", "up"])
    assert named.classes_.tolist() == ["left", "right", "up"]
    assert named.predict_proba(X).shape == (120, 3)
    model = quick().partial_fit(X, y, classes=[1, 0])
    model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(InvalidInputError, match=r"classes are \[0, 1, 2\], those of earlier calls \[0, 1\]"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(InvalidInputError, match=r"y has the label 5 in row 3, the classes are 0, 1"):
        model.partial_fit(X, np.where(np.arange(120) == 2, 5, y))
    with pytest.raises(InvalidInputError, match=r"y has one class only \(1\)"):
        quick().partial_fit(X, y, classes=[1])
    with pytest.raises(InvalidInputError, match="make all of them numbers or all strings"):
        model.partial_fit(X, y.astype(str))


def test_names_of_columns_stay(quick, problem):
    frame = pd.DataFrame(problem.X, columns=list("abcd"))
    model = quick().partial_fit(frame, problem.y, classes=[0, 1])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.partial_fit(problem.X, problem.y)
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(InvalidInputError, match=r"X: The feature names should match"):
        model.partial_fit(frame[list("bacd")], problem.y)


def test_what_cannot_go_on_is_refused(quick, problem):
    X, y, X_target, _ = problem
    model = quick().partial_fit(X, y, X_target, classes=[0, 1])
    with pytest.raises(InvalidInputError, match=r"hidden is \(7,\), the network that is to learn on has \(5,\)"):
        model.set_params(hidden=(7,)).partial_fit(X, y)
    combined = quick(weight="auto").fit(X, y, X_target)
    with pytest.raises(InvalidInputError, match='weight="auto" compares networks'):
        combined.partial_fit(X, y)
    with pytest.raises(InvalidInputError, match="combines 4 networks, which cannot learn on"):
        combined.set_params(weight=1.0).partial_fit(X, y)


def test_another_distance_or_optimizer_starts_with_a_fresh_state(quick, problem, engine, assert_same_weights):
    X, y, X_target, _ = problem
    model = quick(discrepancy="cmd").partial_fit(X, y, X_target, classes=[0, 1])
    model.set_params(discrepancy=lambda s, t: (s.mean(0) - t.mean(0)).square().sum(), optimizer="adam")
    model.partial_fit(X, y, X_target)
    model.set_params(discrepancy="dann").partial_fit(X, y, X_target).partial_fit(X, y)
    assert model.n_epochs_ == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_call_changes_nothing(quick, problem, error):
    X, y, X_target, _ = problem
    calls = []

    def distance(source, target):
        calls.append(1)
        if len(calls) > 4:  # in the middle of the second call
            raise error
        return (source.mean(0) - target.mean(0)).square().sum()

    model = quick(discrepancy=distance).partial_fit(X, y, X_target, classes=[0, 1])
    before, kept = _state(model), model._state
    with pytest.raises(error):
        model.partial_fit(X, y, X_target)
    _assert_unchanged(model, before)
    assert model._state is kept
    with pytest.raises(error):
        (fresh := quick(discrepancy=distance)).partial_fit(X, y, X_target, classes=[0, 1])
    assert not [name for name in vars(fresh) if name.endswith("_")]


def test_a_call_that_diverges_changes_nothing(quick, problem, engine):
    X, y, X_target, _ = problem
    model = quick(optimizer="sgd").partial_fit(X, y, X_target, classes=[0, 1])
    before = _state(model)
    model.set_params(learning_rate=1e30)
    with pytest.raises(DivergedError, match=r"training diverged: .* in pass 2; lower learning_rate"):
        model.partial_fit(X, y, X_target)
    _assert_unchanged(model, before)


def test_a_regressor_keeps_the_scale_of_the_first_call(values):
    X, y, X_target = values
    model = ma.MANNRegressor(hidden=(5,), batch_size=40, random_state=0).partial_fit(X, y, X_target)
    np.testing.assert_allclose([model.y_mean_, model.y_deviation_], [y.mean(), y.std()], rtol=1e-12)
    model.partial_fit(X, y + 1000.0)
    np.testing.assert_allclose([model.y_mean_, model.y_deviation_], [y.mean(), y.std()], rtol=1e-12)
    assert set(model.history_) == {"source_loss", "distance", "validation_loss"}
    assert model.history_["source_loss"][1] > 100.0
    with pytest.raises(InvalidInputError, match=r"y has the shape \(120, 1\), 1 numbers per row came before"):
        model.partial_fit(X, y[:, None])


@pytest.mark.parametrize("first", ["partial_fit", "fit"])
def test_a_number_that_is_constant_at_first_can_change_later(values, first):
    X, y, _ = values
    outputs = np.stack([y, np.full(120, 3.0)], axis=1)
    model = ma.MANNRegressor(hidden=(5,), optimizer="adam", learning_rate=0.03, max_epochs=2, random_state=0)
    getattr(model, first)(X, outputs)
    assert model.y_deviation_.tolist() == [y.std(), float(first == "partial_fit")]
    for _ in range(60):
        model.partial_fit(X, np.stack([y, 3.0 + X[:, 0]], axis=1))
    assert np.corrcoef(model.predict(X)[:, 1], X[:, 0])[0, 1] > 0.9


# fit_chunks


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_chunks_of_any_size_give_the_network_of_fit_bit_by_bit(quick, problem, engine, assert_same_weights, rows):
    """Fit shuffles its rows once, and chunks are in order: on the rows in the order of fit both are the same."""
    X, y, X_target = _ordered(problem)
    model = quick(validation_fraction=0.0)
    model.fit_chunks(ArrayChunks(X, y, rows=rows), ArrayChunks(X_target, rows=2 * rows))
    fitted = quick(validation_fraction=0.0).fit(*problem[:3])
    assert_same_weights(model, fitted)
    assert (model.n_epochs_, model.best_epoch_) == (fitted.n_epochs_, fitted.best_epoch_)
    for name, figures in fitted.history_.items():
        np.testing.assert_allclose(model.history_[name], figures, rtol=1e-12)


def test_the_size_of_chunks_changes_no_bit_also_with_rows_held_out(either, make_problem, engine, assert_same_weights):
    X, y, X_target, _ = make_problem(rows=400)
    models = [
        either(max_epochs=8, patience=3, learning_rate=0.3).fit_chunks(
            ArrayChunks(X, y, rows=rows), ArrayChunks(X_target, rows=rows), most_held_out=50
        )
        for rows in (37, 400)
    ]
    assert_same_weights(*models)
    assert models[0].history_ == models[1].history_
    assert len(models[0].history_["validation_loss"]) == models[0].n_epochs_
    few = either().fit_chunks([(X[:3], y[:3])])
    assert few.history_["validation_loss"] == []


def test_rows_are_held_out_by_lot(quick, make_problem, assert_same_weights):
    """Training on the others in order, with these held out, is what is done."""
    X, y, X_target, _ = make_problem(rows=400)
    held = lots(0, 400, seed=0) < 0.3 / 4
    assert 10 < held.sum() <= 50 < (lots(0, 400, seed=0) < 0.3 / 2).sum()
    model = quick().fit_chunks(ArrayChunks(X, y, rows=90), ArrayChunks(X_target, rows=90), most_held_out=50)
    last = quick(max_epochs=model.best_epoch_, validation_fraction=0.0, patience=None).fit_chunks(
        ArrayChunks(X[~held], y[~held], rows=90), ArrayChunks(X_target, rows=90)
    )
    assert_same_weights(model, last)
    accuracy = model.history_["validation_accuracy"][model.best_epoch_ - 1]
    assert accuracy == pytest.approx(model.score(X[held].astype(np.float32), y[held]))


def test_it_stops_early_and_keeps_the_best_epoch(quick, make_problem):
    X, y, X_target, _ = make_problem(rows=400)
    model = quick(max_epochs=300, patience=3, optimizer="adam", learning_rate=0.5).fit_chunks([(X, y)], [X_target])
    scores = list(
        zip(model.history_["validation_accuracy"], np.negative(model.history_["validation_loss"]), strict=True)
    )
    assert model.n_epochs_ < 300
    assert model.best_epoch_ == scores.index(max(scores)) + 1


def test_sparse_chunks_beside_dense_ones(quick, problem, engine, assert_same_weights):
    X, y, X_target, _ = problem
    csr = sparse.csr_matrix
    both = quick().fit_chunks([(csr(X[:50]), y[:50]), (csr(X[50:]), y[50:])], [csr(X_target)])
    assert_same_weights(both, quick().fit_chunks([(csr(X[:50]), y[:50]), (X[50:], y[50:])], [X_target]))
    assert_same_weights(both, quick().fit_chunks([(X, y)], [X_target[:30], csr(X_target[30:])]))


@pytest.mark.parametrize("rows", [40, 1000])
def test_sparse_rows_out_of_order_are_the_same_in_every_epoch(quick, problem, engine, rows):
    """None of what trains on them puts them in order in place, which would make other rows of them."""
    X, y, X_target, _ = problem

    def reversed_columns(matrix):
        columns = np.tile(np.arange(matrix.shape[1])[::-1], len(matrix))
        ends = np.arange(0, matrix.size + 1, matrix.shape[1])
        return sparse.csr_matrix((matrix[:, ::-1].astype(np.float32).ravel(), columns, ends), matrix.shape)

    source = [(reversed_columns(part), labels) for part, labels in ArrayChunks(X, y, rows=rows)]
    target = [reversed_columns(part) for part in ArrayChunks(X_target, rows=rows)]
    model = quick(batch_size=rows).fit_chunks(source, target)
    assert not source[0][0].has_sorted_indices
    assert not target[0].has_sorted_indices
    for part, match in zip(model.coefs_, quick(batch_size=rows).fit_chunks([(X, y)], [X_target]).coefs_, strict=True):
        np.testing.assert_allclose(part, match, rtol=1e-3, atol=1e-5)


def test_classes_of_all_chunks_are_found(quick, problem):
    X, _, _, _ = problem
    names = np.repeat(["pear", "fig", "plum"], 40)
    chunks = [(X[:40], names[:40]), (X[40:], names[40:].astype(object))]
    assert quick().fit_chunks(chunks).classes_.tolist() == ["fig", "pear", "plum"]
    model = quick().fit_chunks(chunks, classes=["plum", "pear", "fig", "quince"])
    assert model.classes_.tolist() == ["fig", "pear", "plum", "quince"]
    with pytest.raises(InvalidInputError, match=r"source, chunk 2: y has the label 'plum' in row 41, the classes are"):
        quick().fit_chunks(chunks, classes=["pear", "fig"])


@pytest.mark.parametrize("rows", [8, 100])
def test_the_size_of_chunks_does_not_change_what_labels_are(quick, tmp_path, rows):
    """Zip codes with a leading zero are text, so those without one are text too, in whatever chunk they stand."""
    codes = ["01001"] * 8 + ["90210"] * 16
    lines = [f"{row % 5},{row % 7},{code}" for row, code in enumerate(codes)]
    (tmp_path / "zip.csv").write_text("a,b,zip\n" + "\n".join(lines) + "\n")
    model = quick(batch_size=8).fit_chunks(FileChunks(tmp_path / "zip.csv", label="zip", rows=rows))
    assert model.classes_.tolist() == ["01001", "90210"]


def test_files_keep_the_names_of_columns(quick, problem, tmp_path):
    X, y, X_target, y_target = problem
    for name, rows, labels in (("source", X, y), ("target", X_target, y_target)):
        pd.DataFrame(rows, columns=list("abcd")).assign(y=labels).to_parquet(tmp_path / f"{name}.parquet")
    source = FileChunks(tmp_path / "source.parquet", label="y", rows=50)
    model = quick().fit_chunks(source, FileChunks(tmp_path / "target.parquet", leave_out=["y"], rows=50))
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(InvalidInputError, match=r"target, chunk 1: The feature names should match"):
        quick().fit_chunks(source, FileChunks(tmp_path / "target.parquet", rows=50))


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_a_regressor_has_the_scale_of_all_rows(values, outputs):
    X, y, X_target = values
    y = y if outputs == () else np.stack([y, X[:, 0]], axis=1)
    settings = {"hidden": (5,), "max_epochs": 5, "batch_size": 40, "random_state": 0, "validation_fraction": 0.0}
    rows, labels, target = _ordered((X, y, X_target, None))
    model = ma.MANNRegressor(**settings).fit_chunks(ArrayChunks(rows, labels, rows=50), ArrayChunks(target, rows=50))
    fitted = ma.MANNRegressor(**settings).fit(X, y, X_target)
    np.testing.assert_allclose(model.y_mean_, fitted.y_mean_, rtol=1e-12)
    np.testing.assert_allclose(model.y_deviation_, fitted.y_deviation_, rtol=1e-12)
    np.testing.assert_allclose(model.predict(X), fitted.predict(X), rtol=1e-5)
    assert model.predict(X).shape == (120, *outputs)
    assert set(model.history_) == set(fitted.history_)


def test_settings_that_chunks_do_not_allow(quick, problem):
    chunks = [(problem.X, problem.y)]
    with pytest.raises(InvalidInputError, match=r"needs the whole sample.*batch_size=300"):
        quick(batch_size=None).fit_chunks(chunks)
    with pytest.raises(InvalidInputError, match='weight="auto" compares networks'):
        quick(weight="auto").fit_chunks(chunks)
    with pytest.raises(InvalidInputError, match=r"validation_fraction must be .* below 1"):
        quick(validation_fraction=1.0).fit_chunks(chunks)
    with pytest.raises(InvalidInputError, match="most_held_out must be"):
        quick().fit_chunks(chunks, most_held_out=0)


class Stopping:
    """Chunks of which one raises, in the third reading."""

    def __init__(self, X, y, error):
        self._chunks, self._error, self.readings = list(ArrayChunks(X, y, rows=40)), error, 0

    def __iter__(self):
        self.readings += 1
        yield self._chunks[0]
        if self.readings == 3:
            raise self._error
        yield from self._chunks[1:]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("the disk is gone")])
def test_an_interrupt_or_an_error_in_a_chunk_changes_nothing(quick, problem, engine, error):
    X, y, X_target, _ = problem
    fresh, model = quick(), quick().partial_fit(X, y, X_target, classes=[0, 1])
    for one in (fresh, model):
        before = _state(one)
        with pytest.raises(type(error) if isinstance(error, OSError) else error):
            one.fit_chunks(Stopping(X, y, error), [X_target])
        _assert_unchanged(one, before)
    model.partial_fit(X, y, X_target)
