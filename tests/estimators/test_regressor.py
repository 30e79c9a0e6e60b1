import datetime
import inspect
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import momentalign as ma
from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.estimators import mann as network
from momentalign.estimators.domains import refuse_missing
from momentalign.estimators.regressor import BLOCK, ContinuousLabels, MANNRegressor, fitted_scale, read_values
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
    del of_classifier["sharpen"], of_classifier["class_weight"]
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
    assert set(model.history_) == {"source_loss", "distance", "validation_loss"}


def test_two_rows_are_enough(quick):
    assert quick(batch_size=None).fit([[0.0], [1.0]], [0.0, 1.0], [[0.0], [2.0]]).predict([[0.5]]).shape == (1,)


def test_dense_dataframe_and_csr_give_the_same_predictions(quick, problem):
    X, y, X_target, _ = problem
    kinds = (np.asarray, lambda rows: pd.DataFrame(rows, columns=["a", "b"]), sparse.csr_matrix)
    model = quick(optimizer="adagrad")
    results = [model.fit(kind(X), pd.Series(y), kind(X_target)).predict(kind(X_target)) for kind in kinds]
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
        ({"validation_fraction": 1.0}, r"validation_fraction must be a finite number of at least 0 and below 1"),
        ({"loss": "cross_entropy"}, r"loss must be one of squared, absolute, huber, got 'cross_entropy'"),
        ({"loss": None}, r"loss must be one of squared, absolute, huber, got None"),
    ],
)
def test_parameters_that_cannot_work_are_refused(quick, problem, setting, message):
    with pytest.raises(InvalidInputError, match=message):
        quick(**setting).fit(problem.X, problem.y, problem.X_target)


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


KINDS = {
    "list": [1, 2.5],
    "float32": np.array([1.0, 2.5], np.float32),
    "series": pd.Series([1.0, 2.5], index=[7, 3]),
    "nullable series": pd.Series([1.0, 2.5], dtype="Float64"),
    "objects": np.array([Decimal(1), 2.5], dtype=object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_any_kind_are_numbers(kind):
    values = read_values(KINDS[kind], "y")
    assert values.dtype == np.float64
    assert values.tolist() == [1.0, 2.5]


def test_rows_of_several_numbers_stay_rows():
    for values in ([[1, 2], [3, 4], [5, 6]], pd.DataFrame({"a": [1, 3, 5], "b": [2, 4, 6]})):
        assert read_values(values, "y").tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_none_is_an_unknown_number():
    np.testing.assert_array_equal(read_values([1.5, None, np.nan], "y_target"), [1.5, np.nan, np.nan])


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["left", "right"], "'left'"),
        (["1.5", "2.5"], "'1.5'"),
        ([b"a", b"b"], "b'a'"),
        (np.array([1.0, "two"], dtype=object), "'two'"),
        (np.array([datetime.date(2020, 1, 2), None], dtype=object), r"datetime.date\(2020, 1, 2\)"),
        (np.array(["2020-01-02"], dtype="M8[D]"), r"datetime.date\(2020, 1, 2\)"),
        (np.array([1.0, pd.NA], dtype=object), "<NA>"),
        (np.array([10**400], dtype=object), "10000"),
        ([["word " * 100]], r"'word word .*\.\.\..*'"),
    ],
)
def test_what_is_no_number_is_shown_in_one_line(values, shown):
    with pytest.raises(
        InvalidTypeError, match=rf"^y holds {shown}.*, a regressor learns numbers; use MANNClassifier"
    ) as e:
        read_values(values, "y")
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 120


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(
            (values, r"must hold one or several numbers per row, .* got shape \(")
            for values in (3.0, [], np.zeros((3, 0)), np.zeros((2, 2, 2)), "text", sparse.eye(3, format="csr"))
        ),
        ([[1.0, 2.0], [3.0]], "inhomogeneous"),
        ([1 + 2j, 3.0], "Complex data not supported; give real and imaginary parts"),
    ],
)
def test_what_is_no_row_of_numbers_is_named(values, message):
    with pytest.raises(InvalidInputError, match=f"^y:? .*{message}|^y: {message}"):
        read_values(values, "y")


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_standardised_values_have_mean_zero_and_deviation_one_and_come_back(shape):
    values = np.random.default_rng(0).normal(5.0, 3.0, size=shape)
    scale = fitted_scale(values)
    standard = scale.standardise(values)
    assert scale.mean.shape == scale.standard_deviation.shape == shape[1:]
    assert standard.shape == (50, values.size // 50)
    np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(standard.std(axis=0), 1.0, rtol=1e-12)
    back = scale.restore(standard)
    assert back.shape == shape
    np.testing.assert_allclose(back, values, rtol=1e-12)


def test_a_constant_comes_back_to_the_last_digit_whatever_the_outputs_are():
    values = np.full((3, 2), 0.1)  # the mean of three is 0.10000000000000002
    values[:, 1] = [1.0, 2.0, 3.0]
    scale = fitted_scale(values)
    assert scale.standardise(values)[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert scale.restore(np.full((3, 2), 9.0))[:, 0].tolist() == [0.1, 0.1, 0.1]


def test_values_whose_deviation_leaves_float64_are_refused():
    with pytest.raises(
        InvalidInputError, match=r"y holds 1e\+300, too large to take a standard deviation of; scale y first"
    ):
        fitted_scale(np.array([1e300, -1e300]))


def _noted(parts):
    labels = ContinuousLabels()
    for part in parts:
        labels.note(labels.read(part))
    labels.finish()
    return labels


@pytest.mark.parametrize("shape", [(1000,), (1000, 3), (2 * BLOCK + 999,)])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_scales_of_chunks_are_merged_to_that_of_all(shape, offset):
    values = np.random.default_rng(0).normal(size=shape) * 3.0 + offset
    labels = _noted(np.split(values, [1, 20, 700]))
    expected = fitted_scale(values)
    np.testing.assert_allclose(labels.scale.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(labels.scale.standard_deviation, expected.standard_deviation, rtol=1e-9)
    assert labels.coded(values).dtype == np.float32
    assert labels.coded(values).shape == (shape[0], values.size // shape[0])


@pytest.mark.parametrize("columns", [1, 3])
def test_the_size_of_chunks_changes_no_bit_of_a_scale(columns):
    values = np.random.default_rng(0).normal(size=(3 * BLOCK - 7, columns)) + 5.0
    expected = _noted([values]).scale
    for cuts in ([BLOCK], [1, 20, 700, BLOCK + 1], range(0, len(values), 999)):
        for part in (values, np.asfortranarray(values)):
            scale = _noted(chunk for chunk in np.split(part, cuts) if len(chunk)).scale
            np.testing.assert_array_equal(scale.mean, expected.mean)
            np.testing.assert_array_equal(scale.standard_deviation, expected.standard_deviation)


def test_a_constant_stays_one_to_the_last_bit():
    labels = _noted(np.full(rows, 0.1) for rows in (7, 11, BLOCK))
    assert (labels.scale.mean, labels.scale.standard_deviation) == (0.1, 0.0)


@pytest.mark.parametrize(
    ("values", "row", "shown"),
    [
        ([0.0, None, np.nan], 2, "missing"),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, np.nan]], 3, "missing"),
        (np.asfortranarray([[1.0, 2.0], [-np.inf, 4.0]]), 2, "not finite"),
    ],
)
def test_a_number_that_is_missing_is_named_by_its_row(values, row, shown):
    with pytest.raises(InvalidInputError, match=rf"^the label of row {row} is {shown} \(.*; fill it in"):
        refuse_missing(ContinuousLabels().read(values))


@pytest.mark.parametrize(("rows", "fraction", "held_out"), [(10, 0.3, 3), (4, 0.3, 2), (3, 0.3, 0), (10, 0.0, 0)])
def test_numbers_are_held_out_where_both_parts_have_two(rows, fraction, held_out):
    training, validation = ContinuousLabels().hold_out(np.zeros((rows, 1)), fraction, 0)
    assert (0 if validation is None else len(validation)) == held_out
    every = np.concatenate([training, [] if validation is None else validation])
    assert sorted(every.tolist()) == list(range(rows)) != training.tolist()
