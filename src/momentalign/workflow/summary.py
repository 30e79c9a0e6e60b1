"""What there is to say about a fit, as plain JSON: the table of networks, distances, what shifted, and a verdict.

Target labels are compared with predictions here and nowhere else, after the model is finished.

The finding of a fit in a few plain sentences.

Labels of the target, where there are any: for evaluation only, compared with the predictions of a finished model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.errors import InvalidInputError
from momentalign.estimators.bounds import error_bound
from momentalign.estimators.combination import aggregated_probabilities
from momentalign.estimators.domains import split_layers
from momentalign.evaluation.scores import nuclear_norm
from momentalign.moments.streaming import Moments
from momentalign.networks.shallow import Layer, Matrix, activations, probabilities
from momentalign.tables.table import Table
from momentalign.training.config import Task, TrainedNetwork
from momentalign.version import __version__
from momentalign.workflow.drift import standardised_shift
from momentalign.workflow.grid import Point
from momentalign.workflow.model import TableModel

__all__ = [
    "ClassFit",
    "Fit",
    "Truth",
    "distances",
    "network_name",
    "network_rows",
    "read_truth",
    "seen",
    "shared",
    "summarise",
    "verdict",
    "verdict_of_values",
]

# Distances up to this many times what chance gives are no difference of the domains.
ALIKE = 1.5
# A loss of this much source accuracy, or of explained variance, is worth a word.
COSTLY = 0.05
# Mean predictions that alignment moves by this part of a deviation are worth a word.
MOVED = 0.2
INTERRUPTED = "Training was interrupted; this is the model of the networks that were finished."


def verdict(summary: Mapping[str, Any]) -> str:
    """Return what was found in a few plain sentences."""
    last, plain = summary["rows"][-1], next((row for row in summary["rows"] if row["weight"] == 0.0), None)
    sentences = [_alignment(summary["distance"], adapted=any(row["weight"] for row in summary["rows"]))]
    if summary["plain_kept"]:
        sentences = [_kept(summary["rows"])]
    held_out = f"The model gets {100 * last['source_accuracy']:.1f} % of held-out source rows right"
    if plain is not None and plain["source_accuracy"] - last["source_accuracy"] > COSTLY:
        held_out += f", the plain network {100 * plain['source_accuracy']:.1f} %: alignment costs something here"
    sentences.append(f"{held_out}.")
    used = [share["class"] for share in summary["shares"] if share["target"]]
    if len(used) == 1:
        sentences.append(f"It predicts {used[0]!r} for every target row; check the target before you rely on it.")
    if summary["evaluation"] is not None:
        beside = "" if plain is None else f", the plain network {100 * plain['target_accuracy']:.1f} %"
        sentences.append(f"On the target it gets {100 * last['target_accuracy']:.1f} % right{beside}.")
    if summary["interrupted"]:
        sentences.append(INTERRUPTED)
    return " ".join(sentences)


def verdict_of_values(summary: Mapping[str, Any], *, weight: float) -> str:
    """Return what was found where labels are numbers, and which weight predicts, in a few plain sentences."""
    last, plain = summary["rows"][-1], next((row for row in summary["rows"] if row["weight"] == 0.0), None)
    sentences = [_alignment(summary["distance"], adapted=any(row["weight"] for row in summary["rows"]))]
    if weight:
        paper = ", the paper's default" if weight == 1.0 else ""
        sentences.append(f"The weight is {weight:g}{paper}: numbers have no label-free score here to choose it by.")
    else:
        plain = None  # It is what predicts, there is nothing to compare.
    held_out = f"R² is {_explained(last['source_r2'])} on held-out source rows"
    if plain is not None and (plain["source_r2"] or 0.0) - (last["source_r2"] or 0.0) > COSTLY:
        held_out += f", {_explained(plain['source_r2'])} without alignment, which costs something here"
    sentences.append(f"{held_out}.")
    if plain is not None:
        sentences += _moved(summary["values"])
    if summary["evaluation"] is not None:
        beside = "" if plain is None else f", {_explained(plain['target_r2'])} without alignment"
        sentences.append(f"On the target R² is {_explained(last['target_r2'])}{beside}.")
    if summary["interrupted"]:
        sentences.append(INTERRUPTED)
    return " ".join(sentences)


def _explained(part: float | None) -> str:
    return "not defined" if part is None else f"{part:.2f}"


def _moved(values: Mapping[str, Any]) -> list[str]:
    """The one thing that no label-free figure can tell: whether the numbers of the target are different ones."""
    source, plain, aligned = values["source"], values["plain"]["mean"], values["target"]["mean"]
    if abs(plain - aligned) <= MOVED * source["deviation"]:
        return []
    word = "larger" if plain > aligned else "smaller"
    return [
        f"The predictions for the target have a mean of {aligned:.4g}, without alignment {plain:.4g}, the source's "
        f"numbers {source['mean']:.4g}: if those of the target really are {word}, fit with method none."
    ]


def _kept(rows: Sequence[Mapping[str, Any]]) -> str:
    plain = next(row["score"] for row in rows if row["weight"] == 0.0)
    adapted = max(row["score"] for row in rows if row["weight"])
    return (
        f"Alignment was left out: without it the predictions for the target are surer and use the classes more evenly "
        f"(label-free score {plain:.2f}, with it at most {adapted:.2f}), as where classes have other shares in the "
        "target."
    )


def _alignment(distance: Mapping[str, Any], *, adapted: bool) -> str:
    after, chance = sum(distance["after"]), distance["by_chance"]
    if distance["before"] is None:
        return f"The hidden activations of the domains are {after:.2f} apart (CMD)."
    before = sum(distance["before"])
    if before <= ALIKE * chance:
        return f"The domains look alike to the plain network: {before:.2f} apart (CMD), {chance:.2f} by chance alone."
    if not adapted:
        return (
            f"The hidden activations of the domains are {before:.2f} apart (CMD), {chance:.2f} by chance alone; they "
            "were not aligned."
        )
    verb = "brings" if after < before else "does not bring"
    return (
        f"Alignment {verb} the hidden activations of the domains together: {before:.2f} apart (CMD) before, "
        f"{after:.2f} after, {chance:.2f} by chance alone."
    )


@dataclass(frozen=True)
class Truth:
    """The target rows that have a label, its class (-1 where the source has no such), and the names of classes."""

    label: str
    known: NDArray[np.intp]
    codes: NDArray[np.intp]
    names: list[str]
    unseen: list[str]

    def accuracy(self, predicted: NDArray[np.intp]) -> float:
        """The part of the labelled target rows that is predicted right."""
        return float((predicted[self.known] == self.codes).mean())

    def evaluation(self, predicted: NDArray[np.intp]) -> dict[str, Any]:
        """Accuracy and confusion matrix (true classes, predicted classes); a last row for what the source lacks."""
        count = len(self.names)
        confusion = np.zeros((count + bool(self.unseen), count), dtype=int)
        np.add.at(confusion, (self.codes, predicted[self.known]), 1)
        return {
            "label": self.label,
            "rows": len(self.known),
            "accuracy": self.accuracy(predicted),
            "confusion": confusion.tolist(),
            "unseen": self.unseen,
        }


def read_truth(target: Table, label: str, classes: NDArray[Any]) -> Truth:
    """Return the labels of the target as classes of the source.

    Examples
    --------
    >>> labels = np.array(["cat", None, "cow"], dtype=object)
    >>> truth = read_truth(Table(np.zeros((3, 1), np.float32), labels), "pet", np.array(["cat", "dog"]))
    >>> truth.known.tolist(), truth.codes.tolist(), truth.unseen
    ([0, 2], [0, -1], ['cow'])
    """
    if target.labels is None:
        raise InvalidInputError(f"the target has no labels {label!r}; leave target_label out.")
    # A number is itself whether a file holds it as whole or not.
    places = {name: place for place, name in enumerate(classes.tolist())}
    values = target.labels.tolist()
    known = np.array([place for place, value in enumerate(values) if value is not None and value == value], dtype=int)
    if not len(known):
        raise InvalidInputError(f"target_label={label!r} is empty in every row; leave it out.")
    codes = np.array([places.get(values[place], -1) for place in known], dtype=int)
    unseen = sorted({str(values[place]) for place, code in zip(known, codes, strict=True) if code < 0})
    return Truth(label, known, codes, [str(name) for name in places], unseen)


Floats = NDArray[np.float64]
Figures = Callable[[Sequence[Layer]], Mapping[str, float | None]]
"""Takes a network and returns what its predictions are worth."""

# Rows of each domain that distances and scores look at.
SEEN = 10_000
SHIFTED, UNITS, DOTS, RELABELLINGS = 20, 5, 200, 5


@dataclass(frozen=True)
class Fit:
    """A finished fit: the model, the networks it was made of, and the data."""

    model: TableModel
    task: Task
    networks: Mapping[Point, TrainedNetwork]
    coefficients: Mapping[Point, float]
    rows: Matrix
    others: Matrix
    interrupted: bool

    @property
    def largest(self) -> Point:
        """The network with the largest coefficient."""
        return max(self.coefficients, key=lambda point: self.coefficients[point])

    @property
    def plain(self) -> Point | None:
        """The first plain network, if it was finished."""
        return next((point for point in self.networks if not point.weight), None)

    @property
    def plain_kept(self) -> bool:
        """Whether the model is the plain network although there are adapted ones."""
        return any(point.weight for point in self.networks) and not self.largest.weight


@dataclass(frozen=True)
class ClassFit(Fit):
    """A finished fit of classes: those of the source rows, and those of target rows that are known."""

    codes: NDArray[np.intp]
    truth: Truth | None

    def stacked(self, rows: Matrix) -> Floats:
        """Probabilities of the combined networks, (networks, rows, classes)."""
        return np.stack([_chances(self.networks[point].layers, rows) for point in self.coefficients])


def summarise(fit: ClassFit) -> dict[str, Any]:
    """Return everything but the settings."""
    final = fit.model.estimator.predict_proba(fit.others).argmax(axis=1)
    ours, theirs = seen(fit)
    rows = network_rows(fit, ours, theirs, lambda layers: _figures(fit, layers, theirs))
    summary = {
        "task": "classification",
        **shared(fit, ours, theirs),
        "classes": [str(name) for name in fit.model.estimator.classes_],
        "rows": [*rows, _combination(fit, ours, theirs, final)],
        "shares": _shares(fit, final),
        "values": None,
        "evaluation": None if fit.truth is None else fit.truth.evaluation(final),
        "bounds": _bounds(fit, theirs),
    }
    return {**summary, "verdict": verdict(summary)}


def seen(fit: Fit) -> tuple[Matrix, Matrix]:
    """Return the rows of source and target that distances and scores look at."""
    return _some(fit.rows, SEEN), _some(fit.others, SEEN)


def shared(fit: Fit, ours: Matrix, theirs: Matrix) -> dict[str, Any]:
    """Return what does not depend on the kind of labels."""
    return {
        "kind": "fit",
        "interrupted": fit.interrupted,
        "plain_kept": fit.plain_kept,
        "label": fit.model.label,
        "source_rows": int(fit.rows.shape[0]),
        "target_rows": int(fit.others.shape[0]),
        "features": int(fit.rows.shape[1]),
        "distance": _distance(fit, ours, theirs),
        "shifted": _shifted(fit),
        "units": _units(fit, ours, theirs),
        "notes": list(fit.model.preprocessor.notes_),
        "versions": {"momentalign": __version__, "numpy": np.__version__, "scipy": scipy.__version__},
    }


def network_rows(fit: Fit, ours: Matrix, theirs: Matrix, figures: Figures) -> list[dict[str, Any]]:
    """One row per weight, means over seeds: `figures` of each network, and its distances."""
    table = []
    for weight in sorted({point.weight for point in fit.networks}):
        points = [point for point in fit.networks if point.weight == weight]
        each = [
            {
                **figures(fit.networks[point].layers),
                **distances(fit, point, ours, theirs),
                "coefficient": fit.coefficients.get(point),
                "epochs": float(fit.networks[point].best_epoch),
            }
            for point in points
        ]
        table.append({"name": network_name(points[0]), "weight": weight, "networks": len(points), **_means(each)})
    return table


def network_name(point: Point) -> str:
    """What a network is called in tables."""
    return f"{point.method}, weight {point.weight:g}" if point.weight else "plain network"


def distances(fit: Fit, point: Point, ours: Matrix, theirs: Matrix) -> dict[str, float | None]:
    """The CMD of the hidden activations of a network, and of the plain network with the same seed if there is one."""
    plain = fit.networks.get(Point(point.seed, 0.0, None))
    return {
        "distance_before": None if plain is None else sum(_terms(plain.layers, ours, theirs)),
        "distance_after": sum(_terms(fit.networks[point].layers, ours, theirs)),
    }


def _figures(fit: ClassFit, layers: Sequence[Layer], theirs: Matrix) -> dict[str, float | None]:
    truth = fit.truth
    return {
        "source_accuracy": _accuracy(_chances(layers, fit.task.validation), fit),
        "score": nuclear_norm(probabilities=_chances(layers, theirs)),
        "target_accuracy": None if truth is None else truth.accuracy(_chances(layers, fit.others).argmax(axis=1)),
    }


def _means(each: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Means of the figures that all networks have."""
    columns = {name: [figures[name] for figures in each] for name in each[0]}
    return {
        name: None if any(value is None for value in values) else float(np.mean([value or 0.0 for value in values]))
        for name, values in columns.items()
    }


def _combination(fit: ClassFit, ours: Matrix, theirs: Matrix, final: NDArray[np.intp]) -> dict[str, Any]:
    """The row of what predicts: the combination of networks, or the only one."""
    factors = list(fit.coefficients.values())
    held_out, target = (
        aggregated_probabilities(coefficients=factors, predictions=fit.stacked(rows))
        for rows in (fit.task.validation, theirs)
    )
    name = f"combination of {len(factors)}" if len(factors) > 1 else "the only network"
    return {
        "name": "plain network, kept" if fit.plain_kept else name,
        "weight": None,
        "networks": len(factors),
        "source_accuracy": _accuracy(held_out, fit),
        "score": nuclear_norm(probabilities=target),
        **distances(fit, fit.largest, ours, theirs),
        "target_accuracy": None if fit.truth is None else fit.truth.accuracy(final),
        "coefficient": None,
        "epochs": None,
    }


def _distance(fit: Fit, ours: Matrix, theirs: Matrix) -> dict[str, Any]:
    """The CMD of the hidden activations order by order, and the sum that two samples of one domain would give."""
    plain = fit.plain
    first = fit.networks[plain if plain is not None else fit.largest].layers
    hidden = [activations(first, rows) for rows in (ours, theirs)]
    return {
        "before": None if plain is None else _terms(first, ours, theirs),
        "after": _terms(fit.networks[fit.largest].layers, ours, theirs),
        "by_chance": _by_chance(hidden[0], hidden[1]),
    }


def _by_chance(source: NDArray[Any], target: NDArray[Any]) -> float:
    """The mean CMD of two samples of these sizes after random relabellings of the rows."""
    rows, random = np.concatenate([source, target]), np.random.default_rng(0)
    sums = []
    for _ in range(RELABELLINGS):
        order = random.permutation(len(rows))
        sums.append(sum(_cmd_terms(rows[order[: len(source)]], rows[order[len(source) :]])))
    return float(np.mean(sums))


def _shifted(fit: Fit) -> list[dict[str, Any]]:
    """The features whose means shifted most between the domains."""
    source, target = Moments.of(fit.rows), fit.model.moments
    shift, names = standardised_shift(source, target), fit.model.feature_names
    order = np.argsort(-np.abs(shift), kind="stable")[:SHIFTED]
    return [
        {
            "name": names[place],
            "mean_shift": float(shift[place]),
            "source_deviation": float(source.deviation[place]),
            "target_deviation": float(target.deviation[place]),
        }
        for place in order
    ]


def _shares(fit: ClassFit, final: NDArray[np.intp]) -> list[dict[str, Any]]:
    """The share of each class in the source and among the predictions for the target."""
    classes = fit.model.estimator.classes_
    source, target = (np.bincount(codes, minlength=len(classes)) / len(codes) for codes in (fit.codes, final))
    return [
        {"class": str(name), "source": float(ours), "target": float(theirs)}
        for name, ours, theirs in zip(classes, source, target, strict=True)
    ]


def _bounds(fit: ClassFit, theirs: Matrix) -> dict[str, Any]:
    """What can be said about the target error of the networks as they were before they saw the held-out rows."""
    model = copy.copy(fit.model.estimator)
    model.networks_ = [split_layers(fit.networks[point].layers) for point in fit.coefficients]
    model.coefs_, model.intercepts_ = split_layers(fit.networks[fit.largest].layers)
    labels = model.classes_[fit.task.validation_labels]
    return error_bound(model, fit.task.validation, labels, theirs, rows="seen").to_dict()


def _units(fit: Fit, ours: Matrix, theirs: Matrix) -> list[dict[str, Any]]:
    """Activations of the units that differ most before alignment, and of those that differ most after it."""
    if min(ours.shape[0], theirs.shape[0]) < 2:  # One row has no density.
        return []
    networks = {"nn": fit.plain, "mann": fit.largest if fit.largest.weight else None}
    shown = []
    for name, point in networks.items():
        if point is None:
            continue
        hidden = [activations(fit.networks[point].layers, rows) for rows in (ours, theirs)]
        gaps = np.abs(hidden[0].mean(axis=0) - hidden[1].mean(axis=0))
        for unit in np.argsort(-gaps, kind="stable")[:UNITS]:
            samples = [np.round(_some(part, DOTS)[:, unit].astype(float), 4).tolist() for part in hidden]
            shown.append(
                {
                    "network": name,
                    "unit": int(unit) + 1,
                    "gap": float(gaps[unit]),
                    "source": samples[0],
                    "target": samples[1],
                }
            )
    return shown


def _some(rows: Matrix, most: int) -> Matrix:
    """At most so many rows, drawn at random, in order."""
    if rows.shape[0] <= most:
        return rows
    return rows[np.sort(np.random.default_rng(0).choice(rows.shape[0], most, replace=False))]


def _terms(layers: Sequence[Layer], ours: Matrix, theirs: Matrix) -> list[float]:
    return _cmd_terms(activations(layers, ours), activations(layers, theirs))


def _cmd_terms(source: NDArray[Any], target: NDArray[Any]) -> list[float]:
    return [float(term) for term in cmd_terms(source, target)]


def _chances(layers: Sequence[Layer], rows: Matrix) -> Floats:
    return np.asarray(probabilities(layers, rows), dtype=np.float64)


def _accuracy(chances: Floats, fit: ClassFit) -> float:
    return float((chances.argmax(axis=1) == fit.task.validation_labels).mean())
