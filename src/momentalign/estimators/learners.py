"""Learners that are kept as arrays once they are fitted: linear models, class means, forests, boosted trees, networks.

scikit-learn fits them; what predicts afterwards is written here, so that a saved model is numbers and never code, and a
loaded one predicts the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from momentalign.networks.shallow import Layer, Matrix, outputs, probabilities

__all__ = [
    "ClassMeans",
    "Learner",
    "Linear",
    "Network",
    "Trees",
    "boosting",
    "boosting_rounds",
    "class_means",
    "forest",
    "learner_from",
    "linear",
    "means_found_in",
    "to_arrays",
]

Floats: TypeAlias = NDArray[np.float64]

ROUNDS = 50  # of boosting
TREES = 100  # of a forest
# Rows a tree of a forest sees at most, and features from which boosting looks at a part of them in each split.
MOST_ROWS_OF_A_TREE = 20_000
MANY_FEATURES = 500
# Trees times features beyond which boosting has fewer rounds, every class having a tree in each of them. Below so many
# rounds it is not worth its time.
LARGEST_BOOSTING, FEWEST_ROUNDS = 50_000, 20
# Boosting of few, small steps: half the time of scikit-learn's defaults or less, and as accurate on the shifts of
# benchmarks/shift_tasks.py.
SMALL_TREES = {"learning_rate": 0.2, "max_bins": 63, "max_leaf_nodes": 15}
# Rows that are predicted at once.
CHUNK = 16_384
# What cosines are multiplied by to be log-odds, and how often class means are found again.
SHARPNESS, MEANS_FOUND = 20.0, 2
TINY = 1e-9


class Linear(NamedTuple):
    """A linear model: logistic regression where there are classes, ridge regression where there are none."""

    weight: Floats
    """(features, outputs)"""
    bias: Floats
    """(outputs,)"""

    def predict(self, rows: Matrix, *, classes: int) -> Floats:
        """Return probabilities (rows, classes), or values (rows, 1) where `classes` is 0."""
        scores = np.asarray(rows @ self.weight + self.bias)
        if classes == 0:
            return scores
        if classes == 2:
            positive = expit(scores[:, :1])
            return np.hstack([1.0 - positive, positive])
        return np.asarray(softmax(scores, axis=1))


class ClassMeans(NamedTuple):
    """The direction of the mean of each class: a row belongs to the nearest one by the cosine of their angle."""

    directions: Floats
    """(features, classes), of unit length"""

    def predict(self, rows: Matrix, *, classes: int) -> Floats:  # noqa: ARG002
        """Return probabilities (rows, classes)."""
        rows = np.asarray(rows, dtype=np.float64)
        return np.asarray(softmax(SHARPNESS * (rows @ self.directions) / _lengths(rows), axis=1))


class Trees(NamedTuple):
    """Binary trees side by side: a row goes left where its feature is at most the threshold, down to a leaf."""

    roots: NDArray[np.int64]
    feature: NDArray[np.int32]
    """(nodes,): -1 in a leaf."""
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    values: Floats
    """(nodes, outputs): what a leaf adds."""
    columns: NDArray[np.int32]
    """(trees,): the output a tree adds to, where `values` has one column; -1 where it adds to all."""
    baseline: Floats
    """(outputs,): what the sum starts from."""

    def predict(self, rows: Matrix, *, classes: int) -> Floats:
        """Return probabilities (rows, classes), or values (rows, 1) where `classes` is 0."""
        parts = [self._sums(rows[start : start + CHUNK]) for start in range(0, rows.shape[0], CHUNK)]
        sums = np.concatenate(parts) if parts else np.zeros((0, len(self.baseline)))
        if classes == 0 or self.columns[0] < 0:
            return sums
        if classes == 2:
            positive = expit(sums)
            return np.hstack([1.0 - positive, positive])
        return np.asarray(softmax(sums, axis=1))

    def _sums(self, rows: Matrix) -> Floats:
        dense = rows.toarray() if hasattr(rows, "indptr") else np.asarray(rows)
        total = np.tile(self.baseline, (len(dense), 1))
        for root, column in zip(self.roots, self.columns, strict=True):
            node = np.full(len(dense), root)
            inner = np.flatnonzero(self.feature[node] >= 0)
            while len(inner):
                here = node[inner]
                goes_left = dense[inner, self.feature[here]] <= self.threshold[here]
                node[inner] = np.where(goes_left, self.left[here], self.right[here])
                inner = inner[self.feature[node[inner]] >= 0]
            if column < 0:
                total += self.values[node]
            else:
                total[:, column] += self.values[node, 0]
        return total


class Network(NamedTuple):
    """Shallow networks that differ in their seed, averaged; for values with their mean and standard deviation."""

    layers: list[Layer]
    """Weights (networks, inputs, outputs) and biases (networks, outputs) of each layer."""
    mean: float = 0.0
    std: float = 1.0

    def predict(self, rows: Matrix, *, classes: int) -> Floats:
        """Return probabilities (rows, classes), or values (rows, 1) where `classes` is 0."""
        # In float64 a row gets the same result to the last visible digit, whatever rows stand around it.
        rows = rows.astype(np.float64)
        each = range(len(self.layers[0].weight))
        networks = [[Layer(layer.weight[number], layer.bias[number]) for layer in self.layers] for number in each]
        function = probabilities if classes else outputs
        average = np.mean(np.stack([function(layers, rows) for layers in networks]), axis=0, dtype=np.float64)
        return np.asarray(average if classes else average * self.std + self.mean)


Learner: TypeAlias = Linear | ClassMeans | Trees | Network
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
_INDICES = {"roots", "feature", "left", "right", "columns"}  # the whole numbers of trees


def to_arrays(learner: Learner) -> dict[str, NDArray[Any]]:
    """Return all numbers of a learner by name."""
    if isinstance(learner, Network):
        layers = {
            f"{part}_{number}": values
            for number, layer in enumerate(learner.layers)
            for part, values in layer._asdict().items()
        }
        return layers | {"mean": np.array([learner.mean]), "std": np.array([learner.std])}
    return dict(learner._asdict())


def learner_from(arrays: Arrays, *, features: int, outputs: int) -> Learner:
    """Return the learner of arrays that :func:`to_arrays` returned; anything else is a ValueError."""
    for name, values in arrays.items():
        if values.dtype.kind != ("i" if name in _INDICES else "f"):
            raise ValueError(f"{name} of a learner holds {values.dtype}")
    scores = 1 if outputs == 2 else outputs  # two classes have one score
    if set(arrays) == set(Linear._fields):
        linear = Linear(**arrays)
        if linear.weight.shape != (features, scores) or linear.bias.shape != (scores,):
            raise ValueError("the weights of a linear model do not fit")
        return linear
    if set(arrays) == set(ClassMeans._fields):
        if arrays["directions"].shape != (features, outputs):
            raise ValueError("the class means do not fit")
        return ClassMeans(**arrays)
    if set(arrays) == set(Trees._fields):
        trees = Trees(**arrays)
        _check_trees(trees, features)
        _check_outputs(trees, outputs, scores)
        return trees
    count = sum(name.startswith("weight_") for name in arrays)
    if set(arrays) != {"mean", "std", *(f"{part}_{number}" for part in Layer._fields for number in range(count))}:
        raise ValueError("weights and biases of networks are expected")
    layers = [Layer(arrays[f"weight_{number}"], arrays[f"bias_{number}"]) for number in range(count)]
    sizes = [features, *(layer.weight.shape[-1] for layer in layers)]
    networks = len(layers[0].weight) if layers else 0
    expected = [(networks, *pair) for pair in pairwise(sizes)]
    if not networks or [layer.weight.shape for layer in layers] != expected or sizes[-1] != outputs:
        raise ValueError("the weights of a network do not fit")
    if [layer.bias.shape for layer in layers] != [(networks, units) for _, _, units in expected]:
        raise ValueError("the biases of a network do not fit")
    if arrays["mean"].shape != (1,) or arrays["std"].shape != (1,):
        raise ValueError("one mean and one standard deviation of a network are expected")
    return Network(layers, float(arrays["mean"][0]), float(arrays["std"][0]))


def _check_trees(trees: Trees, features: int) -> None:
    if any(part.ndim != (2 if part is trees.values else 1) for part in trees):
        raise ValueError("lists of nodes and a matrix of values are expected")
    nodes = np.arange(len(trees.feature))
    inner = trees.feature >= 0
    alike = {len(part) for part in (trees.threshold, trees.left, trees.right, trees.values)} == {len(nodes)}
    if not alike or len(trees.roots) != len(trees.columns):
        raise ValueError("trees of as many nodes in every part are expected")
    # Children stand behind their parents, so that every walk ends.
    ends = all((part[inner] > nodes[inner]).all() and (part < len(nodes)).all() for part in (trees.left, trees.right))
    if not ends or (trees.feature >= features).any() or not np.isin(trees.roots, nodes).all():
        raise ValueError("nodes of trees point to others or to features that are not there")


def _check_outputs(trees: Trees, outputs: int, scores: int) -> None:
    """Every tree of a forest adds to all outputs, every one of boosting to one score."""
    forest = (trees.columns == -1).all() and trees.values.shape[1:] == trees.baseline.shape == (outputs,)
    boosted = trees.values.shape[1:] == (1,) and trees.baseline.shape == (scores,)
    boosted = boosted and bool(((trees.columns >= 0) & (trees.columns < scores)).all())
    if not len(trees.roots) or not (forest or boosted):
        raise ValueError("trees add to outputs that are not there")


def linear(rows: Matrix, labels: NDArray[Any], weights: Floats, *, classes: int) -> Linear:
    """Fit a logistic regression, or where `classes` is 0 a ridge regression with its penalty by cross-validation."""
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if classes == 0:
        ridge = RidgeCV(alphas=np.logspace(-2, 4, 13)).fit(rows, labels, sample_weight=weights)
        # In single precision a row's value would depend on the rows around it.
        weight, bias = (np.asarray(part, dtype=np.float64) for part in (ridge.coef_, ridge.intercept_))
        return Linear(np.atleast_2d(weight).T, np.atleast_1d(bias))
    # Where it has not converged after so many steps it is good enough for one of several.
    logistic = LogisticRegression(max_iter=300, tol=1e-3)
    with np.errstate(all="ignore"):
        logistic = _quietly(logistic, rows, labels, weights)
    return Linear(logistic.coef_.T.astype(np.float64), logistic.intercept_.astype(np.float64))


def class_means(rows: Matrix, labels: NDArray[Any], weights: Floats, *, classes: int) -> ClassMeans:
    """Return the directions of the classes of labelled rows."""
    return _directions(np.asarray(rows, dtype=np.float64), np.eye(classes)[labels] * weights[:, None])


def means_found_in(rows: Matrix, probabilities: Floats) -> ClassMeans:
    """Return the directions of the classes of unlabelled rows: by given probabilities, then by those they lead to.

    J. Liang, D. Hu, J. Feng: Do we really need to access the source data? Source hypothesis transfer for unsupervised
    domain adaptation. ICML 2020.
    """
    rows = np.asarray(rows, dtype=np.float64)
    found = _directions(rows, probabilities)
    for _ in range(MEANS_FOUND - 1):
        found = _directions(rows, found.predict(rows, classes=probabilities.shape[1]))
    return found


def _directions(rows: Floats, memberships: Floats) -> ClassMeans:
    means = (rows / _lengths(rows)).T @ memberships
    return ClassMeans(means / np.maximum(np.linalg.norm(means, axis=0), TINY))


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), TINY))


def forest(rows: Matrix, labels: NDArray[Any], weights: Floats, *, classes: int, seed: int) -> Trees:
    """Fit a random forest."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if classes else RandomForestRegressor
    most = MOST_ROWS_OF_A_TREE if rows.shape[0] > MOST_ROWS_OF_A_TREE else None
    leaf = 1 if classes else 2
    model = kind(TREES, random_state=seed, max_samples=most, min_samples_leaf=leaf, n_jobs=1)
    model.fit(rows, labels, sample_weight=weights)
    trees = [one.tree_ for one in model.estimators_]
    values = [tree.value.reshape(tree.node_count, -1) for tree in trees]
    if classes:
        values = [value / value.sum(axis=1, keepdims=True) for value in values]
    nodes = [
        (tree.feature, tree.threshold, tree.children_left, tree.children_right, value / TREES)
        for tree, value in zip(trees, values, strict=True)
    ]
    every = np.full(len(trees), -1, dtype=np.int32)
    return _joined(nodes, every, np.zeros(values[0].shape[1]))


def boosting_rounds(features: int, classes: int) -> int:
    """Return how many rounds of boosting so many features and classes are worth; 0 where that is too few to help.

    Examples
    --------
    >>> boosting_rounds(20, 2), boosting_rounds(800, 2), boosting_rounds(800, 10)
    (50, 50, 0)
    """
    trees = classes if classes > 2 else 1
    rounds = min(ROUNDS, LARGEST_BOOSTING // (trees * features))
    return rounds if rounds >= FEWEST_ROUNDS else 0


def boosting(rows: Matrix, labels: NDArray[Any], weights: Floats, *, classes: int, seed: int) -> Trees:
    """Fit gradient-boosted trees on dense rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    settings: dict[str, Any] = {
        "max_iter": boosting_rounds(rows.shape[1], classes) or FEWEST_ROUNDS,
        "max_features": 1.0 if rows.shape[1] < MANY_FEATURES else 0.1,
        "early_stopping": False,
        "random_state": seed,
    }
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = kind(**SMALL_TREES, **settings).fit(np.asarray(rows, dtype=np.float64), labels, sample_weight=weights)
    nodes, columns = [], []
    for of_round in model._predictors:
        for column, predictor in enumerate(of_round):
            table = predictor.nodes
            feature = np.where(table["is_leaf"] == 1, -1, table["feature_idx"])
            nodes.append((feature, table["num_threshold"], table["left"], table["right"], table["value"][:, None]))
            columns.append(column)
    return _joined(nodes, np.array(columns, dtype=np.int32), np.atleast_1d(np.squeeze(model._baseline_prediction)))


def _quietly(model: Any, rows: Matrix, labels: NDArray[Any], weights: Floats) -> Any:
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows, labels, sample_weight=weights)


def _joined(nodes: list[tuple[Any, ...]], columns: NDArray[np.int32], baseline: Floats) -> Trees:
    """Write trees, each (feature, threshold, left, right, values), one behind the other."""
    sizes = [len(feature) for feature, *_ in nodes]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    feature, threshold, left, right, values = (np.concatenate(parts) for parts in zip(*nodes, strict=True))
    ahead = np.repeat(roots, sizes)
    leaf = feature < 0
    return Trees(
        roots,
        np.where(leaf, -1, feature).astype(np.int32),
        threshold.astype(np.float64),
        np.where(leaf, 0, left.astype(np.int64) + ahead).astype(np.int32),
        np.where(leaf, 0, right.astype(np.int64) + ahead).astype(np.int32),
        values.astype(np.float64),
        columns,
        baseline.astype(np.float64),
    )
