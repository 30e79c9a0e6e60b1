import inspect
import random
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import momentalign as ma
from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.estimators import mann as network
from momentalign.estimators.regressor import MANNRegressor
from momentalign.files import read_folder, write_folder

LEARN = {"hidden": (10,), "optimizer": "adam", "learning_rate": 0.03, "max_epochs": 150, "patience": None}


class Shifted(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_target: np.ndarray
    y_target: np.ndarray


def make_problem(seed: int = 0, rows: int = 200, target_rows: int = 160, shift: float = 2.0) -> Shifted:
    """Two features that both show the value, each with noise; in the target the second one is moved by `shift`."""
    rng = np.random.default_rng(seed)
    y, y_target = rng.normal(size=rows), rng.normal(size=target_rows)
    X, X_target = (np.outer(v, [1.0, 1.0]) + rng.normal(scale=0.3, size=(len(v), 2)) for v in (y, y_target))
    return Shifted(X, y, X_target + np.array([0.0, shift]), y_target)


@pytest.fixture
def problem() -> Shifted:
    return make_problem(rows=60, target_rows=45)


@pytest.fixture
def quick():
    """A model of five units and five epochs; ``quick(weight=2.0)`` changes parameters."""

    def make(**parameters):
        return MANNRegressor(**{"hidden": (5,), "max_epochs": 5, "batch_size": 20, "random_state": 0, **parameters})

    return make


def test_the_parameters_are_those_of_the_classifier_and_the_loss():
    own, of_classifier = (dict(inspect.signature(kind).parameters) for kind in (MANNRegressor, ma.MANNClassifier))
    assert str(own.pop("loss")) == "loss: 'ValueLossName' = 'squared'"
    del of_classifier["sharpen"]
    assert list(map(str, own.values())) == list(map(str, of_classifier.values()))
    assert str(inspect.signature(MANNRegressor.fit)) == str(inspect.signature(ma.MANNClassifier.fit))
    changed = {name: object() for name in [*own, "loss"]}
    assert MANNRegressor(**changed).get_params() == changed


@pytest.mark.parametrize("discrepancy", ["cmd", "cv-cmd"])
def test_adaptation_helps_where_the_target_is_shifted(discrepancy):
    for seed in range(3):
        X, y, X_target, y_target = make_problem(seed)
        plain, adapted = (
            MANNRegressor(discrepancy=d, random_state=seed, **LEARN).fit(X, y, X_target) for d in (None, discrepancy)
        )
        assert plain.score(X, y) > 0.9
        assert plain.score(X_target, y_target) < 0.4
        assert adapted.score(X, y) > 0.85
        assert adapted.score(X_target, y_target) > 0.55


def make_outliers(seed: int) -> Shifted:
    """The problem of `make_problem`, a tenth of the labelled values wrong by about ten deviations, all upwards."""
    rng, problem = np.random.default_rng([seed, 1]), make_problem(seed, shift=0.5)
    wrong = rng.random(len(problem.y)) < 0.1
    return problem._replace(y=problem.y + np.where(wrong, rng.uniform(5.0, 15.0, len(wrong)), 0.0))


def target_error(model: MANNRegressor, problem: Shifted) -> float:
    return float(np.sqrt(np.mean((model.predict(problem.X_target) - problem.y_target) ** 2)))


def test_absolute_and_huber_bear_values_that_are_far_off():
    for seed in range(3):
        problem = make_outliers(seed)
        squared, absolute, huber = (
            target_error(MANNRegressor(random_state=seed, loss=loss, **LEARN).fit(*problem[:3]), problem)
            for loss in ("squared", "absolute", "huber")
        )
        assert max(absolute, huber) < 0.6 * squared


def test_the_loss_in_the_history_is_the_one_asked_for(quick, problem):
    X, y = problem.X, np.column_stack([problem.y, -problem.y])
    for loss, function in [("squared", np.square), ("absolute", np.abs)]:
        # A step too small to change anything: the first loss is that of the weights that are kept.
        model = quick(loss=loss, max_epochs=1, learning_rate=1e-30, validation_fraction=0.0, batch_size=None).fit(X, y)
        differences = (model.predict(X) - y) / y.std(axis=0)
        assert model.history_["source_loss"] == [pytest.approx(function(differences).mean(), rel=1e-5)]


def test_every_loss_learns_several_outputs():
    X, y, _, _ = make_problem()
    several = np.column_stack([y, 1e6 * y + 1e9])
    for loss in ("squared", "absolute", "huber"):
        predicted = MANNRegressor(random_state=0, loss=loss, **LEARN).fit(X, several).predict(X)
        assert all(r2_score(truth, found) > 0.9 for truth, found in zip(several.T, predicted.T, strict=True))


def test_the_score_is_the_coefficient_of_determination(quick, problem):
    model = quick(max_epochs=50, learning_rate=0.1).fit(problem.X, problem.y)
    assert model.score(problem.X, problem.y) == r2_score(problem.y, model.predict(problem.X)) > 0.5


@pytest.mark.parametrize(
    "discrepancy", [None, "cmd", "cv-cmd", "mmd", "coral", "dann", lambda s, t: (s.mean(0) - t.mean(0)).square().sum()]
)
def test_every_discrepancy_trains(quick, problem, discrepancy):
    model = quick(discrepancy=discrepancy).fit(problem.X, problem.y, problem.X_target)
    distances = np.array(model.history_["distance"])
    assert (distances == 0).all() if discrepancy is None else (distances > 0).all()
    assert [w.shape for w in model.coefs_] == [(2, 5), (5, 1)]
    assert set(model.history_) == {"source_loss", "distance", "validation_loss"}


@pytest.mark.parametrize("setting", [{"weight": 0.0}, {"discrepancy": None}])
def test_without_weight_or_discrepancy_the_target_changes_nothing(quick, problem, assert_same_weights, setting):
    with_target = quick(**setting).fit(problem.X, problem.y, problem.X_target[:40])
    assert_same_weights(with_target, quick().fit(problem.X, problem.y))


def test_several_outputs_of_any_size_are_learned_side_by_side():
    X, y, X_target, y_target = make_problem()
    several = np.column_stack([y, 1e6 * y**2 + 1e9, -1e-6 * y])
    model = MANNRegressor(random_state=0, **LEARN).fit(X, several, X_target)
    predicted = model.predict(X)
    assert predicted.shape == several.shape
    assert all(r2_score(truth, found) > 0.7 for truth, found in zip(several.T, predicted.T, strict=True))
    assert r2_score(-1e-6 * y_target, model.predict(X_target)[:, 2]) > 0.5
    np.testing.assert_allclose(model.y_mean_, several.mean(axis=0))
    np.testing.assert_allclose(model.y_deviation_, several.std(axis=0))


def test_a_column_is_predicted_as_a_column(quick, problem, assert_same_weights):
    flat, column = (quick().fit(problem.X, y, problem.X_target) for y in (problem.y, problem.y[:, None]))
    assert_same_weights(flat, column)
    assert flat.predict(problem.X).shape == (60,)
    np.testing.assert_array_equal(column.predict(problem.X), flat.predict(problem.X)[:, None])


def test_the_unit_of_y_does_not_matter(quick, problem):
    model, scaled = (quick().fit(problem.X, y, problem.X_target) for y in (problem.y, 1e5 * problem.y - 7.0))
    np.testing.assert_allclose(scaled.predict(problem.X), 1e5 * model.predict(problem.X) - 7.0, rtol=1e-5, atol=1e-2)
    np.testing.assert_allclose(scaled.history_["validation_loss"], model.history_["validation_loss"], rtol=1e-9)


def test_a_constant_is_predicted_to_the_last_digit(quick, problem):
    model = quick().fit(problem.X, np.full(60, 0.1), problem.X_target)
    assert set(model.predict(problem.X_target)) == {0.1}
    assert model.y_deviation_ == 0.0


def test_values_in_rows_of_single_precision_keep_their_digits(quick, problem):
    model = quick().fit(problem.X.astype(np.float32), problem.y + 1e9)
    predicted = model.predict(problem.X.astype(np.float32))
    assert predicted.dtype == np.float64
    assert 0.0 < np.ptp(predicted) < 10.0
    assert model.transform(problem.X.astype(np.float32)).dtype == np.float32


def test_patience_stops_training_and_the_lowest_validation_loss_is_kept(quick, problem):
    model = quick(max_epochs=300, patience=4, optimizer="adam", learning_rate=0.5).fit(problem.X, problem.y)
    losses = model.history_["validation_loss"]
    assert model.best_epoch_ == np.argmin(losses) + 1
    assert model.n_epochs_ == len(losses) == model.best_epoch_ + 4 < 300


def test_two_rows_are_enough(quick):
    assert quick(batch_size=None).fit([[0.0], [1.0]], [0.0, 1.0], [[0.0], [2.0]]).predict([[0.5]]).shape == (1,)


def test_dense_dataframe_and_csr_give_the_same_predictions(quick, problem):
    X, y, X_target, _ = problem
    kinds = (np.asarray, lambda rows: pd.DataFrame(rows, columns=["a", "b"]), sparse.csr_matrix)
    results = [quick().fit(kind(X), pd.Series(y), kind(X_target)).predict(kind(X_target)) for kind in kinds]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-6)


def test_transform_gives_the_hidden_activations_and_predictions_are_linear_in_them(quick, problem):
    model = quick(hidden=(6, 3)).fit(problem.X, problem.y, problem.X_target)
    hidden = model.transform(problem.X_target)
    assert hidden.shape == (45, 3)
    linear = model.y_mean_ + model.y_deviation_ * (hidden @ model.coefs_[-1] + model.intercepts_[-1])[:, 0]
    np.testing.assert_allclose(model.predict(problem.X_target), linear, rtol=1e-9)
    assert model.get_feature_names_out().tolist() == [f"mannregressor{i}" for i in range(3)]


def test_rows_are_neither_dropped_nor_reordered(quick, problem, monkeypatch):
    monkeypatch.setattr(network, "CHUNK", 7)
    model = quick().fit(problem.X, problem.y, problem.X_target)
    order = np.random.default_rng(0).permutation(45)
    whole = model.predict(problem.X_target)
    assert len(whole) == 45
    np.testing.assert_allclose(model.predict(problem.X_target[order]), whole[order], rtol=1e-12)


def test_several_sources_and_targets_by_sample_domain(quick, problem, assert_same_weights):
    domain = np.concatenate([np.repeat([1, 2], [20, 40]), np.repeat([-1, -3], [15, 30])])
    X, y = np.concatenate([problem.X, problem.X_target]), np.concatenate([problem.y, np.full(45, np.nan)])
    model = quick().fit(X, y, sample_domain=domain)
    two = quick().fit(X, y, sample_domain=np.sign(domain))
    assert_same_weights(two, quick().fit(problem.X, problem.y, problem.X_target))
    assert not np.array_equal(model.coefs_[0], two.coefs_[0])
    unknown = [*problem.y, *[None] * 45]
    assert_same_weights(model, quick().fit(X, unknown, sample_domain=domain))
    mixed = np.random.default_rng(0).permutation(105)
    again = quick().fit(X[mixed], y[mixed], sample_domain=domain[mixed])
    assert again.y_mean_ == pytest.approx(model.y_mean_)
    plain = quick().fit(problem.X, problem.y, sample_domain=domain[:60])
    assert_same_weights(plain, quick().fit(problem.X, problem.y))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_known_target_values_join_the_source(quick, problem, kind, assert_same_weights):
    known = np.arange(45) % 5 == 0
    labels = np.where(known, -1.0, np.nan)  # a number like any other
    model = quick().fit(kind(problem.X), problem.y, kind(problem.X_target), y_target=labels)
    joined = np.concatenate([problem.X, problem.X_target[known]])
    values = np.concatenate([problem.y, np.full(9, -1.0)])
    assert_same_weights(model, quick().fit(kind(joined), values, kind(problem.X_target)))
    assert model.y_mean_ == values.mean()
    nothing = quick().fit(kind(problem.X), problem.y, kind(problem.X_target), y_target=[None] * 45)
    assert_same_weights(nothing, quick().fit(kind(problem.X), problem.y, kind(problem.X_target)))


def test_a_target_row_counts_where_all_its_outputs_are_known(quick, problem):
    y, labels = np.column_stack([problem.y] * 2), np.full((45, 2), np.nan)
    labels[:9], labels[4, 1] = 7.0, np.nan
    model = quick().fit(problem.X, y, problem.X_target, y_target=labels)
    np.testing.assert_allclose(model.y_mean_, (y.sum(axis=0) + 8 * 7.0) / 68)


BAD_FITS = {
    "strings": (lambda p: {"y": np.array(["a", "b"])[(p.y > 0).astype(int)]}, InvalidTypeError, "use MANNClassifier"),
    "nan": (lambda p: {"y": np.where(p.y > 1, np.nan, p.y)}, InvalidInputError, "^y: Input y contains NaN"),
    "inf": (lambda p: {"y": np.where(p.y > 1, np.inf, p.y)}, InvalidInputError, "^y: Input y contains infinity"),
    "none": (lambda p: {"y": None}, InvalidInputError, "MANNRegressor requires y to be passed"),
    "short": (lambda p: {"y": p.y[:-1]}, InvalidInputError, r"^y: .*\[60, 59\]"),
    "three dimensions": (lambda p: {"y": p.y[:, None, None]}, InvalidInputError, r"^y must hold .* \(60, 1, 1\)"),
    "huge": (lambda p: {"y": p.y * 1e305}, InvalidInputError, "^y holds .*, too large .*; scale y first"),
    "target of strings": (lambda p: {"y_target": ["a"] * 45}, InvalidTypeError, "^y_target holds 'a'"),
    "target of infinity": (lambda p: {"y_target": [np.inf] * 45}, InvalidInputError, "^y_target: Input y_target cont"),
    "target too short": (
        lambda p: {"y_target": [0.0]},
        InvalidInputError,
        r"^y_target must hold the numbers of every target row, shape \(45,\), got shape \(1,\); .* NaN or None\.",
    ),
    "target too wide": (lambda p: {"y_target": np.zeros((45, 2))}, InvalidInputError, r"\(45,\), got shape \(45, 2\)"),
    "no target": (lambda p: {"X_target": None, "y_target": [0.0]}, InvalidInputError, r"\(0,\), got shape \(1,\)"),
}


@pytest.mark.parametrize("kind", BAD_FITS)
def test_what_cannot_be_learned_is_said_and_changes_nothing(quick, problem, kind):
    change, error, message = BAD_FITS[kind]
    arguments = {"X": problem.X, "y": problem.y, "X_target": problem.X_target, **change(problem)}
    model = quick().fit(problem.X[:30, :1], problem.y[:30])
    before = model.predict(problem.X[:, :1])
    with pytest.raises(error, match=message) as caught:
        model.fit(**arguments)
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(model.predict(problem.X[:, :1]), before)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"weight": "auto"}, r'weight="auto" combines class probabilities, .* try weight=1.0'),
        ({"weight": "much"}, r"weight must be a number, got 'much'"),
        ({"discrepancy": "cmmd"}, r"discrepancy must be .* got 'cmmd'"),
        ({"validation_fraction": 1.0}, r"validation_fraction must be below 1"),
        ({"loss": "cross_entropy"}, r"loss must be one of squared, absolute, huber, got 'cross_entropy'"),
        ({"loss": None}, r"loss must be one of squared, absolute, huber, got None"),
    ],
)
def test_parameters_that_cannot_work_are_refused(quick, problem, setting, message):
    with pytest.raises(InvalidInputError, match=message):
        quick(**setting).fit(problem.X, problem.y, problem.X_target)


@pytest.mark.parametrize("method", ["predict", "transform"])
def test_an_unfitted_model_says_so(quick, problem, method):
    with pytest.raises(NotFittedError):
        getattr(quick(), method)(problem.X)


def test_the_same_seed_gives_the_same_bits_and_nothing_global_is_touched(quick, problem, assert_same_weights):
    model = quick().fit(problem.X, problem.y, problem.X_target)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert_same_weights(model, quick().fit(problem.X, problem.y, problem.X_target))
    finally:
        torch.set_num_threads(threads)
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    other = quick(random_state=1).fit(problem.X, problem.y, problem.X_target)
    assert (other.coefs_[0] != model.coefs_[0]).all()


def test_it_lives_in_pipelines_and_searches(quick, problem):
    pipeline = make_pipeline(StandardScaler(), quick())
    assert cross_val_score(pipeline, problem.X, problem.y, cv=3, error_score="raise").shape == (3,)
    search = GridSearchCV(quick(), {"weight": [0.1, 1.0]}, cv=2, error_score="raise")
    assert search.fit(problem.X, problem.y, X_target=problem.X_target).predict(problem.X).shape == (60,)
    with pytest.warns(MomentAlignWarning, match="sample_domain"):
        search.fit(problem.X[:45], problem.y[:45], X_target=problem.X_target)
    model = quick().fit(*problem[:3])
    assert not [name for name in vars(clone(model)) if name.endswith("_")]


def test_tags_say_regressor_sparse_and_several_outputs():
    tags = get_tags(MANNRegressor())
    assert tags.estimator_type == "regressor"
    assert tags.input_tags.sparse
    assert tags.target_tags.multi_output


def test_the_progress_bar_shows_no_accuracy(quick, problem, capfd):
    quick(verbose=1).fit(problem.X, problem.y)
    shown = capfd.readouterr().err
    assert "MANNRegressor" in shown
    assert "accuracy" not in shown


OUTPUTS = {"flat": lambda y: y, "column": lambda y: y[:, None], "two": lambda y: np.column_stack([y, 1e9 * y])}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_saved_model_comes_back(quick, problem, tmp_path, kind):
    frame = pd.DataFrame(problem.X, columns=["a", "ä"])
    model = quick(hidden=(5, 3), loss="huber").fit(frame, OUTPUTS[kind](problem.y), frame.iloc[:30] + 1)
    model.save(tmp_path)
    loaded = ma.load(tmp_path)
    assert type(loaded) is MANNRegressor
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
    assert loaded.get_params() == model.get_params()
    assert loaded.history_ == model.history_
    assert (loaded.n_epochs_, loaded.best_epoch_) == (model.n_epochs_, model.best_epoch_)
    assert loaded.feature_names_in_.tolist() == ["a", "ä"]
    assert loaded.y_mean_.shape == model.y_mean_.shape
    again = loaded.fit(frame, OUTPUTS[kind](problem.y), frame.iloc[:30] + 1)
    np.testing.assert_array_equal(again.coefs_[0], model.coefs_[0])


@pytest.fixture
def folder(quick, problem, tmp_path):
    path = tmp_path / "model"
    quick().fit(problem.X, problem.y).save(path)
    return path


def test_damaged_files_are_refused(folder):
    for path in list(folder.iterdir()):
        content = path.read_bytes()
        for damaged in (content[: len(content) // 2], content + b" ", content.replace(b"\x00", b"\x01", 1)[:-1] + b"x"):
            path.write_bytes(damaged)
            with pytest.raises(DamagedFileError, match="save"):
                ma.load(folder)
        path.write_bytes(content)
    ma.load(folder)


FORGERIES = {
    "unknown class": {"class": "MANNRanker"},
    "class of the other kind": {"class": "MANNClassifier"},
    "no mean": {"y_mean": None},
    "a mean of words": {"y_mean": "much"},
    "a mean beyond numbers": {"y_mean": 10**400},
    "a mean per output of none": {"y_mean": [1.0, 2.0]},
    "two of each": {"y_mean": [1.0, 2.0], "y_deviation": [1.0, 2.0]},
    "a table of means": {"y_mean": [[1.0]], "y_deviation": [[1.0]]},
    "a negative deviation": {"y_deviation": -1.0},
    "no deviation": {"y_deviation": None},
    "another number of features": {"features": 3},
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_forged_descriptions_are_refused(folder, kind):
    arrays, description = read_folder(folder)
    write_folder(folder, arrays, description)
    ma.load(folder)
    write_folder(folder, arrays, description | FORGERIES[kind])
    with pytest.raises(DamagedFileError, match="does not describe a model of ours"):
        ma.load(folder)


@pytest.mark.parametrize("extra", ["coefficients", "network_0_coef_0", "coef_2"])
def test_arrays_of_nothing_are_refused(folder, extra):
    arrays, description = read_folder(folder)
    write_folder(folder, {**arrays, extra: np.ones(1)}, description)
    with pytest.raises(DamagedFileError, match="nothing else"):
        ma.load(folder)


def test_a_class_that_could_not_be_read_back_is_not_saved(problem, tmp_path):
    class Own(MANNRegressor):
        pass

    model = Own(hidden=(3,), max_epochs=1).fit(problem.X, problem.y)
    with pytest.raises(InvalidInputError, match="a Own cannot be read back, load knows"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
