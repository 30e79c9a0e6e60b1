"""ONNX files of fitted models: preprocessing, scaling and every learner as one graph that any runtime can run.

A model of ``ma.fit`` becomes a graph with one input per column, an estimator one with a single input of rows. All of it
is computed in float64, so that a row falls to the same side of every threshold as in ``predict``; only what trees add
up is rounded to float32, as the operator of ONNX has it. Networks of your own are exported by
:mod:`momentalign.training.deep.export`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.auto import AutoClassifier
from momentalign.estimators.auto_regressor import AutoRegressor
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.learners import SHARPNESS, TINY, ClassMeans, Learner, Linear, Network
from momentalign.estimators.regressor import MANNRegressor
from momentalign.networks.shallow import Layer
from momentalign.tables.encoders import CategoryColumn, DateColumn, Encoder
from momentalign.training.deep.export import export_onnx as export_network
from momentalign.training.deep.export import need_onnx, write_content
from momentalign.workflow.model import Estimator, TableModel

if TYPE_CHECKING:
    import torch

__all__ = ["OPSETS", "export_onnx", "onnx_inputs"]

OPSETS = {"": 20, "ai.onnx.ml": 3}
"""Versions of the operators; onnxruntime 1.17 and newer have them."""
IR_VERSION = 9
ROWS = "rows"
# What the file is compared with `predict` on, and how far apart both may be, of the largest value.
ROWS_TRIED, TOLERANCE = 64, 1e-5
# Days from 0000-03-01 to 1970-01-01; the calendar repeats after 400 years.
_EPOCH, _CYCLE = 719_468.0, 146_097.0


@overload
def export_onnx(model: torch.nn.Module, example: torch.Tensor, path: str | Path) -> None: ...


@overload
def export_onnx(model: TableModel | Estimator, example: str | Path) -> None: ...


def export_onnx(model: Any, example: Any = None, path: Any = None) -> None:
    """Write a model to an ONNX file: one of ``ma.fit``, a fitted estimator, or a network of your own.

    ``export_onnx(model, path)`` writes a model of :func:`~momentalign.fit` with its preprocessing, or a fitted
    estimator. ``export_onnx(network, example, path)`` writes a torch network in eval mode. The file takes any number of
    rows, and is written only if onnxruntime gives the same outputs.

    The graph of a model of ``ma.fit`` has one input of shape (rows, 1) per column, under its name: numbers as float64
    with NaN where one is missing, true and false as 1 and 0, categories as strings that are empty where one is missing,
    dates as float64 days since 1970-01-01. :func:`~momentalign.workflow.export.onnx_inputs` makes them of a frame. An
    estimator, and a model of files without named columns, has the single input ``rows`` in float64. The output is
    ``prediction``, and for classes ``probabilities`` in the order of ``classes_``.

    Parameters
    ----------
    model
        A model of ``ma.fit``, a fitted estimator, or a torch network from one tensor to one tensor, rows first.
    example
        For a network some rows of inputs; for any other model the path.
    path
        Where to write.

    Examples
    --------
    >>> import tempfile, numpy as np, onnxruntime, momentalign as ma
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(60, 2)), np.repeat(["left", "right"], 30)
    >>> X[y == "right"] += 3
    >>> model = ma.AutoClassifier(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ma.export_onnx(model, f"{folder}/model.onnx")
    ...     session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
    >>> session.run(["prediction"], {"rows": X[-1:]})[0].tolist()
    ['right']
    """
    if hasattr(model, "state_dict"):
        export_network(model, example, path)
        return
    goal = example if path is None else path
    if not isinstance(goal, str | Path):
        raise InvalidTypeError(f"path must be a path, got {goal!r:.80}; call export_onnx(model, path).")
    need_onnx()
    graph = _graph(model)
    _check(graph, model)
    write_content(goal, graph)


def onnx_inputs(model: TableModel, data: Any) -> dict[str, NDArray[Any]]:
    """Return what the graph of a model of ``ma.fit`` takes for the rows of a frame or a file.

    Examples
    --------
    >>> import pandas as pd, momentalign as ma
    >>> frame = pd.DataFrame({"age": [20.0, None] * 20, "city": ["Linz", "Wien"] * 20})
    >>> model = ma.fit(frame.assign(y=[0, 1] * 20), frame, label="y", method="none", max_epochs=1)
    >>> {name: values[:2].tolist() for name, values in onnx_inputs(model, frame).items()}
    {'age': [[20.0], [nan]], 'city': [['Linz'], ['Wien']]}
    """
    rows: Any = model.read(data).rows
    if model.preprocessor.form_ != "columns":
        return {ROWS: np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)}
    inputs: dict[str, NDArray[Any]] = {}
    for encoder in model.preprocessor.encoders_:
        column = rows[encoder.name]
        if isinstance(encoder, CategoryColumn):
            texts = ["" if missing else str(text) for text, missing in zip(column, column.isna(), strict=True)]
            inputs[encoder.name] = np.array(texts, dtype=object)[:, None]
        else:
            inputs[encoder.name] = encoder.read(column)[:, None]
    return inputs


class _Graph:
    """A graph as it is written: a call adds a node and returns the name of its output."""

    def __init__(self) -> None:
        self._helper = importlib.import_module("onnx.helper")
        self._numpy = importlib.import_module("onnx.numpy_helper")
        self._types = importlib.import_module("onnx").TensorProto
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def __call__(self, operator: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self.nodes)}"
        given = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(self._helper.make_node(operator, given, [name], domain=domain, **attributes))
        return name

    def constant(self, value: Any) -> str:
        """Return the name of an array; numbers with a point are float64."""
        array = np.asarray(value)
        name = f"constant_{len(self.constants)}"
        if array.dtype.kind in "OU":
            texts = [str(text).encode() for text in array.ravel()]
            tensor = self._helper.make_tensor(name, self._types.STRING, array.shape, texts)
        else:
            tensor = self._numpy.from_array(np.ascontiguousarray(array), name)
        self.constants.append(tensor)
        return name

    def input(self, name: str, width: int, *, text: bool = False) -> str:
        kind = self._types.STRING if text else self._types.DOUBLE
        self.inputs.append(self._helper.make_tensor_value_info(name, kind, ["batch", width]))
        return name

    def output(self, name: str, value: str, dtype: np.dtype[Any], *shape: int) -> None:
        kind = self._types.STRING if dtype.kind in "OU" else self._helper.np_dtype_to_tensor_dtype(dtype)
        self.nodes.append(self._helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._helper.make_tensor_value_info(name, kind, ["batch", *shape]))

    def cast(self, value: str, dtype: str) -> str:
        """Return a value as ``"float32"``, ``"float64"``, ..."""
        return self("Cast", value, to=self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def float32(self, value: str) -> str:
        """Round to float32, as predict does, and go on in float64."""
        return self.cast(self.cast(value, "float32"), "float64")

    def content(self) -> bytes:
        graph = self._helper.make_graph(self.nodes, "momentalign", self.inputs, self.outputs, self.constants)
        opsets = [self._helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        model = self._helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="momentalign")
        return bytes(model.SerializeToString(deterministic=True))


def _graph(model: Any) -> bytes:
    graph, estimator = _Graph(), model
    if isinstance(model, TableModel):
        estimator = model.estimator
        rows = _features(graph, model)
    elif isinstance(model, AutoClassifier | AutoRegressor | MANNClassifier | MANNRegressor):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(model)
        rows = graph.input(ROWS, model.n_features_in_)
    else:
        raise InvalidTypeError(
            f"model must be a model of ma.fit, an estimator of momentalign or a torch network, got {model!r:.80}."
        )
    if isinstance(estimator, AutoClassifier | AutoRegressor):
        found = _portfolio(graph, estimator, rows)
    else:
        found = _combination(graph, estimator, rows)
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        single = isinstance(estimator, AutoRegressor) or estimator.y_mean_.ndim == 0
        shape = () if single else (estimator.y_mean_.size,)
        values = graph("Squeeze", found, np.array([1])) if single else found
        graph.output("prediction", values, np.dtype(np.float64), *shape)
        return graph.content()
    names = classes.astype(np.int64) if classes.dtype.kind in "iu" else classes
    if names.dtype == object and not all(isinstance(name, str) for name in names.tolist()):
        raise InvalidInputError("classes of several types cannot be written to ONNX; train on labels of one type.")
    threshold = model.threshold if isinstance(model, TableModel) else None
    codes = graph("ArgMax", found, axis=1, keepdims=0)
    if threshold is not None:
        of_positive = graph("Squeeze", graph("Gather", found, np.array([threshold.positive]), axis=1), np.array([1]))
        reached = graph("GreaterOrEqual", graph.cast(of_positive, "float32"), np.float32(threshold.value))
        codes = graph("Where", reached, np.int64(threshold.positive), np.int64(1 - threshold.positive))
    graph.output("prediction", graph("Gather", graph.constant(names), codes), names.dtype)
    graph.output("probabilities", found, np.dtype(np.float64), len(names))
    return graph.content()


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def _features(graph: _Graph, model: TableModel) -> str:
    """The rows of a table as the estimator takes them."""
    preprocessor = model.preprocessor
    if preprocessor.vectorizer_ is not None:
        raise InvalidInputError(
            f"column {preprocessor.text!r} of free text has no form in ONNX; predict with ma.load(), or train without "
            "text."
        )
    if preprocessor.form_ != "columns":
        return graph.float32(graph.input(ROWS, int(preprocessor.width_ or 0)))
    parts = [_column(graph, encoder) for encoder in preprocessor.encoders_]
    rows = graph("Concat", *parts, axis=1)
    return graph.float32(rows) if preprocessor.scale else rows


def _column(graph: _Graph, encoder: Encoder) -> str:
    if isinstance(encoder, CategoryColumn):
        text = graph.input(encoder.name, 1, text=True)
        known = [*encoder.categories, *([""] if encoder.indicator else [])]
        if len(set(known)) < len(known):
            raise InvalidInputError(
                f"column {encoder.name!r} has an empty text as a category and missing values, which are the same in "
                "ONNX; give one of them a name."
            )
        return graph.cast(graph("Equal", text, np.array([known], dtype=object)), "float64")
    value = graph.input(encoder.name, 1)
    missing = graph("IsNaN", value)
    filled = graph("Where", missing, encoder.fill, value)
    parts = [graph("Div", graph("Sub", filled, encoder.centre), encoder.scale)]
    if encoder.indicator:
        parts.append(graph.cast(missing, "float64"))
    if isinstance(encoder, DateColumn):
        # A missing date is the centre of every circle.
        points = _circles(graph, graph("Where", missing, 0.0, value), hours=encoder.hours)
        parts += [graph("Where", missing, 0.0, point) for point in points]
    return graph("Concat", *parts, axis=1)


def _circles(graph: _Graph, days: str, *, hours: bool) -> list[str]:
    """Sine and cosine of the part of the year, the week and the day that has passed."""
    whole = graph("Floor", days)
    turns = [graph("Div", _day_of_year(graph, whole), 366.0)]
    turns.append(graph("Div", _modulo(graph, graph("Add", whole, 3.0), 7.0), 7.0))
    if hours:
        turns.append(graph("Sub", days, whole))
    points = []
    for turn in turns:
        angle = graph("Mul", turn, 2 * np.pi)
        points += [graph("Sin", angle), graph("Sin", graph("Add", angle, np.pi / 2))]
    return points


def _modulo(graph: _Graph, value: str, divisor: float) -> str:
    return graph("Sub", value, graph("Mul", _floor(graph, value, divisor), divisor))


def _floor(graph: _Graph, value: str, divisor: float) -> str:
    return graph("Floor", graph("Div", value, divisor))


def _day_of_year(graph: _Graph, days: str) -> str:
    """Days since the first of January, of whole days since 1970, by the Gregorian calendar.

    H. Hinnant: chrono-compatible low-level date algorithms, 2013. Years begin in March there, so that the day of a leap
    year is their last.
    """
    day = _modulo(graph, graph("Add", days, _EPOCH), _CYCLE)
    leaps = graph("Sub", _floor(graph, day, 36_524.0), _floor(graph, day, 1_460.0))
    leaps = graph("Sub", leaps, _floor(graph, day, 146_096.0))
    year = _floor(graph, graph("Add", day, leaps), 365.0)
    before = graph("Sub", _floor(graph, year, 4.0), _floor(graph, year, 100.0))
    since_march = graph("Sub", day, graph("Add", graph("Mul", year, 365.0), before))
    century = graph("Equal", _modulo(graph, year, 100.0), 0.0)
    fourth = graph("Equal", _modulo(graph, year, 4.0), 0.0)
    first = graph("Equal", year, 0.0)
    leap = graph("Or", graph("And", fourth, graph("Not", century)), first)
    from_march = graph("Add", since_march, graph("Where", leap, 60.0, 59.0))
    return graph("Where", graph("Less", since_march, 306.0), from_march, graph("Sub", since_march, 306.0))


# ---------------------------------------------------------------------------------------------------------------------
# Models


def _portfolio(graph: _Graph, estimator: AutoClassifier | AutoRegressor, rows: str) -> str:
    views: dict[str, str] = {}
    for view in {member.view: None for member in estimator.members_}:
        scale = estimator.source_scale_ if view == "source" else estimator.target_scale_
        if estimator.sparse_:
            scaled = graph("Mul", rows, 1.0 / scale.std)
        else:
            scaled = graph("Div", graph("Sub", rows, scale.mean), scale.std)
        views[view] = graph.float32(scaled)
    classes = len(estimator.classes_) if isinstance(estimator, AutoClassifier) else 0
    parts = []
    for member in estimator.members_:
        part = _learner(graph, member.learner, views[member.view], classes=classes)
        if isinstance(estimator, AutoRegressor):
            low, high = estimator.bounds_
            part = graph("Min", graph("Max", part, low), high)
        parts.append(graph("Mul", part, member.weight))
    return parts[0] if len(parts) == 1 else graph("Sum", *parts)


def _learner(graph: _Graph, learner: Learner, rows: str, *, classes: int) -> str:
    if isinstance(learner, Linear):
        scores = graph("Add", graph("MatMul", rows, _wide(learner.weight)), _wide(learner.bias))
        return _probabilities(graph, scores, classes)
    if isinstance(learner, ClassMeans):
        squares = graph("ReduceSum", graph("Mul", rows, rows), np.array([1]), keepdims=1)
        lengths = graph("Max", graph("Sqrt", squares), TINY)
        cosines = graph("Div", graph("MatMul", rows, _wide(learner.directions)), lengths)
        return graph("Softmax", graph("Mul", cosines, SHARPNESS), axis=1)
    if isinstance(learner, Network):
        found = []
        for number in range(len(learner.layers[0].weight)):
            layers = [Layer(layer.weight[number], layer.bias[number]) for layer in learner.layers]
            found.append(_network(graph, layers, rows, softmax=classes > 0))
        average = graph("Div", graph("Sum", *found), float(len(found)))
        return average if classes else graph("Add", graph("Mul", average, learner.std), learner.mean)
    sums = graph("Add", _trees(graph, learner, rows), learner.baseline)
    # The leaves of a forest hold probabilities, or values, already.
    return sums if learner.columns[0] < 0 else _probabilities(graph, sums, classes)


def _probabilities(graph: _Graph, scores: str, classes: int) -> str:
    if classes == 0:
        return scores
    if classes > 2:
        return graph("Softmax", scores, axis=1)
    positive = graph("Sigmoid", scores)
    return graph("Concat", graph("Sub", 1.0, positive), positive, axis=1)


def _network(graph: _Graph, layers: Sequence[Layer], rows: str, *, softmax: bool) -> str:
    for number, layer in enumerate(layers):
        rows = graph("Add", graph("MatMul", rows, _wide(layer.weight)), _wide(layer.bias))
        if number < len(layers) - 1:
            rows = graph("Sigmoid", rows)
    return graph("Softmax", rows, axis=1) if softmax else rows


def _combination(graph: _Graph, estimator: MANNClassifier | MANNRegressor, rows: str) -> str:
    """Networks combined as :func:`~momentalign.estimators.combination.aggregated_probabilities` does."""
    if isinstance(estimator, MANNRegressor):
        layers = [Layer(*layer) for layer in zip(estimator.coefs_, estimator.intercepts_, strict=True)]
        values = _network(graph, layers, rows, softmax=False)
        return graph("Add", graph("Mul", values, _wide(estimator.y_deviation_)), _wide(estimator.y_mean_))
    found = []
    for coefs, intercepts in estimator.networks_:
        layers = [Layer(*layer) for layer in zip(coefs, intercepts, strict=True)]
        found.append(_network(graph, layers, rows, softmax=True))
    if len(found) == 1:
        return found[0]
    weighed = [graph("Mul", one, float(share)) for one, share in zip(found, estimator.coefficients_, strict=True)]
    positive = graph("Max", graph("Sum", *weighed), 0.0)
    total = graph("ReduceSum", positive, np.array([1]), keepdims=1)
    nothing = graph("Equal", total, 0.0)
    # A row without a positive entry is made uniform.
    positive = graph("Add", positive, graph.cast(nothing, "float64"))
    return graph("Div", positive, graph("ReduceSum", positive, np.array([1]), keepdims=1))


def _trees(graph: _Graph, trees: Any, rows: str) -> str:
    """The sums of all trees, float64 of what the operator gives as float32."""
    sizes = np.diff([*trees.roots, len(trees.feature)])
    tree = np.repeat(np.arange(len(trees.roots)), sizes)
    node = np.arange(len(trees.feature)) - np.repeat(trees.roots, sizes)
    first = trees.roots[tree]
    leaf = trees.feature < 0
    leaves = np.flatnonzero(leaf)
    if trees.columns[0] < 0:  # every leaf adds to all outputs
        outputs = trees.values.shape[1]
        owner, target = np.repeat(leaves, outputs), np.tile(np.arange(outputs), len(leaves))
        values = trees.values[leaves].ravel()
    else:
        owner, target, values = leaves, trees.columns[tree[leaves]], trees.values[leaves, 0]
    tensor = graph._numpy.from_array
    sums = graph(
        "TreeEnsembleRegressor",
        rows,
        domain="ai.onnx.ml",
        n_targets=len(trees.baseline),
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=np.where(leaf, 0, trees.feature).tolist(),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_truenodeids=np.where(leaf, 0, trees.left - first).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, trees.right - first).tolist(),
        nodes_values_as_tensor=tensor(np.where(leaf, 0.0, trees.threshold), "thresholds"),
        target_treeids=tree[owner].tolist(),
        target_nodeids=node[owner].tolist(),
        target_ids=target.tolist(),
        target_weights_as_tensor=tensor(values.astype(np.float64), "leaves"),
    )
    return graph.cast(sums, "float64")


def _wide(values: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


# ---------------------------------------------------------------------------------------------------------------------
# The check


def _check(graph: bytes, model: Any) -> None:
    """Compare the graph with the model on drawn rows, or say how far they are apart."""
    from onnxruntime import InferenceSession

    session = InferenceSession(graph, providers=["CPUExecutionProvider"])
    inputs, expected = _drawn(model)
    found = session.run([session.get_outputs()[-1].name], inputs)[0]
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise InvalidInputError(
            f"{type(model).__name__} is not the same in ONNX: its outputs differ by {difference:g}; update onnxruntime "
            "or save() the model instead."
        )


def _drawn(model: Any) -> tuple[Mapping[str, NDArray[Any]], NDArray[Any]]:
    """Rows like those that the model was adapted to, as inputs of the graph, and what the model makes of them."""
    random = np.random.default_rng(0)
    if not isinstance(model, TableModel):
        scale = getattr(model, "target_scale_", None)
        rows = random.normal(size=(ROWS_TRIED, model.n_features_in_))
        if scale is not None:
            rows = rows * np.where(np.isinf(scale.std), 1.0, scale.std) + scale.mean
        return {ROWS: rows}, _answer(model, rows)
    moments = model.moments
    if model.preprocessor.form_ != "columns":
        drawn = moments.mean + moments.deviation * random.normal(size=(ROWS_TRIED, len(moments.mean)))
        drawn = drawn.astype(np.float32)
        return {ROWS: drawn.astype(np.float64)}, _answer(model.estimator, drawn)
    import pandas as pd

    column = dict(zip(model.feature_names, range(len(moments.mean)), strict=True))
    cells: dict[str, Any] = {}
    for encoder in model.preprocessor.encoders_:
        if isinstance(encoder, CategoryColumn):
            cells[encoder.name] = random.choice(np.array(encoder.categories, dtype=object), ROWS_TRIED)
            continue
        index = column[encoder.features[0]]
        drawn = moments.mean[index] + moments.deviation[index] * random.normal(size=ROWS_TRIED)
        cells[encoder.name] = drawn * encoder.scale + encoder.centre
        if isinstance(encoder, DateColumn):
            cells[encoder.name] = (cells[encoder.name] * 86_400e6).astype("datetime64[us]")
    frame = pd.DataFrame(cells)
    return onnx_inputs(model, frame), _answer(model, frame)


def _answer(model: Any, rows: Any) -> NDArray[Any]:
    estimator = model.estimator if isinstance(model, TableModel) else model
    return np.asarray(model.predict_proba(rows) if hasattr(estimator, "classes_") else model.predict(rows))
