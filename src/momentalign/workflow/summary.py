"""What there is to say about a fit, as plain JSON: what was decided, what shifted and what is predicted.

Target labels are compared with predictions here and nowhere else, after the model is finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, r2_score, root_mean_squared_error

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.errors import InvalidInputError
from momentalign.moments.streaming import Moments
from momentalign.networks.shallow import Matrix
from momentalign.tables.table import Table, shown
from momentalign.version import __version__
from momentalign.workflow.drift import standardised_shift
from momentalign.workflow.model import TableModel

__all__ = ["KnownLabels", "known_labels", "summarise", "verdict"]

# Rows of each domain that distances look at.
_SEEN = 10_000
_SHIFTED, _UNITS, _DOTS, _RELABELLINGS = 20, 5, 200, 5


class KnownLabels(NamedTuple):
    """The target rows that have a label, and their labels: for evaluation only."""

    column: str
    rows: NDArray[np.intp]
    values: NDArray[Any]


def known_labels(target: Table, column: str, *, regression: bool) -> KnownLabels:
    """Return the labels of the target that are there; for regression all of them must be numbers."""
    import pandas as pd

    labels = pd.Series(target.labels)
    rows = np.flatnonzero(labels.notna())
    if not len(rows):
        raise InvalidInputError(f"target_label={column!r} is empty in every row; leave it out.")
    if not regression:
        return KnownLabels(column, rows, labels.to_numpy()[rows])
    values = np.asarray(pd.to_numeric(labels, errors="coerce"), dtype=np.float64)[rows]
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(rows[wrong.argmax()])
        raise InvalidInputError(
            f"target_label={column!r}, row {row + 1} holds {shown(labels[row])}, which is not a number; correct it or "
            "leave target_label out."
        )
    return KnownLabels(column, rows, values)


def summarise(
    model: TableModel, X: Matrix, y: NDArray[Any], X_target: Matrix, truth: KnownLabels | None
) -> dict[str, Any]:
    """Return everything but the settings and notes.

    Parameters
    ----------
    model
        The fitted model.
    X, y, X_target
        The preprocessed source with its labels, and the preprocessed target.
    truth
        The known labels of the target.
    """
    estimator: Any = model.estimator
    regression = not hasattr(estimator, "classes_")
    predicted = estimator.predict(X_target)
    hidden = None
    if hasattr(estimator, "transform"):
        hidden = [estimator.transform(_sample(rows, _SEEN)).astype(np.float64) for rows in (X, X_target)]
    found: dict[str, Any] = {
        "decision": _decision(estimator, hidden),
        "kind": "fit",
        "task": "regression" if regression else "classification",
        "label": model.label,
        "source_rows": int(X.shape[0]),
        "target_rows": int(X_target.shape[0]),
        "features": int(X.shape[1]),
        "classes": [] if regression else [str(name) for name in estimator.classes_],
        "portfolio": _portfolio(estimator),
        "estimate": _estimate(estimator),
        "source_score": _source_score(estimator, regression=regression),
        "distance": None if hidden is None else {"terms": _terms(*hidden), "by_chance": _by_chance(*hidden)},
        "shifted": _shifted(model, Moments.of(X)),
        "shares": [] if regression else _shares(estimator.classes_, y, predicted),
        "values": {"source": _spread(y), "target": _spread(predicted)} if regression else None,
        "units": [] if hidden is None else _units(*hidden),
        "evaluation": None if truth is None else _evaluation(truth, predicted, estimator, regression=regression),
        "versions": {"momentalign": __version__, "numpy": np.__version__, "scipy": scipy.__version__},
    }
    return {"decision": found["decision"], "verdict": verdict(found), **found}


def verdict(summary: Mapping[str, Any]) -> str:
    """Return what was decided, and how good the answer is where that is known, in a few sentences."""
    sentences = [summary["decision"]]
    regression, name = summary["task"] == "regression", "R²" if summary["task"] == "regression" else "accuracy"
    if summary["source_score"] is not None:
        sentences.append(f"On held-out source rows the {name} is {_score(summary['source_score'], regression)}.")
    if summary["estimate"] is not None:
        value, low, high = (_score(summary["estimate"][part], regression) for part in ("value", "low", "high"))
        sentences.append(f"On the target the expected {name} is {value} (90 % interval: {low} to {high}).")
    used = [share["class"] for share in summary["shares"] if share["target"]]
    if len(used) == 1:
        sentences.append(
            f"The model predicts {used[0]!r} for every target row; check the target before you rely on it."
        )
    if summary["evaluation"] is not None:
        known = summary["evaluation"]["r2" if regression else "accuracy"]
        sentences.append(f"On the labelled target rows the {name} is {_score(known, regression)}.")
    return " ".join(sentences)


def _score(value: float | None, regression: bool) -> str:
    if value is None:
        return "not defined"
    return f"{value:.2f}" if regression else f"{100 * value:.1f} %"


def _decision(estimator: Any, hidden: Sequence[NDArray[Any]] | None) -> str:
    """What a portfolio decided; of networks, how they were asked for and how far their activations are apart."""
    if hidden is None:
        return str(estimator.decision_)
    apart = f"hidden activations of the domains are {sum(_terms(*hidden)):.2f} apart (CMD)"
    apart += f", {_by_chance(*hidden):.2f} by chance alone"
    if estimator.discrepancy is None:
        return f"Not adapted, as asked for: {apart}."
    # An aligned classifier combines several networks, unless the guard kept the plain one.
    if estimator.weight == "auto" and len(estimator.networks_) == 1:
        return (
            "Not adapted: aligned networks label many target rows otherwise without being as much more confident, as "
            "where classes have other shares in the target."
        )
    return f"Aligned by {estimator.discrepancy}, as asked for: {apart}."


def _portfolio(estimator: Any) -> list[dict[str, Any]]:
    """The candidates of a portfolio; what is not known is None."""
    table = getattr(estimator, "portfolio_", None)
    if table is None:
        return []
    return [
        {name: None if value != value else value for name, value in candidate.items()}
        for candidate in table.to_dict("records")
    ]


def _estimate(estimator: Any) -> dict[str, float] | None:
    found = getattr(estimator, "estimate_", None)
    return None if found is None else {part: float(getattr(found, part)) for part in ("value", "low", "high")}


def _source_score(estimator: Any, *, regression: bool) -> float | None:
    """Accuracy or R² on the held-out source rows, before the model was trained on them too; None where none were."""
    if not hasattr(estimator, "history_"):
        return None
    scores = estimator.history_["validation_loss" if regression else "validation_accuracy"]
    score = scores[estimator.best_epoch_ - 1] if scores else np.nan
    if not np.isfinite(score):
        return None
    # The loss is of values in standard deviations.
    return 1.0 - float(score) if regression else float(score)


def _evaluation(truth: KnownLabels, predicted: NDArray[Any], estimator: Any, *, regression: bool) -> dict[str, Any]:
    """Return how the predictions compare with the labels of the target."""
    found: dict[str, Any] = {"label": truth.column, "rows": len(truth.rows)}
    predicted = predicted[truth.rows]
    if regression:
        varies = len(truth.rows) > 1 and bool((truth.values != truth.values[0]).any())
        return found | {
            "r2": float(r2_score(truth.values, predicted)) if varies else None,
            "error": float(root_mean_squared_error(truth.values, predicted)),
        }
    # A number is itself whether a file holds it as whole or not.
    codes = {name: code for code, name in enumerate(estimator.classes_.tolist())}
    true = np.array([codes.get(value, len(codes)) for value in truth.values.tolist()])
    given = np.array([codes[value] for value in predicted.tolist()])
    unseen = sorted({str(value) for value in truth.values.tolist() if value not in codes})
    matrix = confusion_matrix(true, given, labels=range(len(codes) + 1))[: len(codes) + bool(unseen), : len(codes)]
    return found | {"accuracy": float((true == given).mean()), "confusion": matrix.tolist(), "unseen": unseen}


def _terms(source: NDArray[Any], target: NDArray[Any]) -> list[float]:
    """The CMD of hidden activations, order by order."""
    return [float(term) for term in cmd_terms(source, target)]


def _by_chance(source: NDArray[Any], target: NDArray[Any]) -> float:
    """The mean CMD of two samples of these sizes after random relabellings of the rows."""
    rows, random = np.concatenate([source, target]), np.random.default_rng(0)
    sums = []
    for _ in range(_RELABELLINGS):
        order = random.permutation(len(rows))
        sums.append(sum(_terms(rows[order[: len(source)]], rows[order[len(source) :]])))
    return float(np.mean(sums))


def _shifted(model: TableModel, source: Moments) -> list[dict[str, Any]]:
    """The features whose means shifted most between the domains."""
    shift, names = standardised_shift(source, model.moments), model.feature_names
    return [
        {
            "name": names[feature],
            "mean_shift": float(shift[feature]),
            "source_deviation": float(source.deviation[feature]),
            "target_deviation": float(model.moments.deviation[feature]),
        }
        for feature in np.argsort(-np.abs(shift), kind="stable")[:_SHIFTED]
    ]


def _shares(classes: NDArray[Any], labels: NDArray[Any], predicted: NDArray[Any]) -> list[dict[str, Any]]:
    """The share of each class in the source and among the predictions for the target."""
    return [
        {"class": str(name), "source": float((labels == name).mean()), "target": float((predicted == name).mean())}
        for name in classes
    ]


def _units(source: NDArray[Any], target: NDArray[Any]) -> list[dict[str, Any]]:
    """Activations of the hidden units whose means differ most."""
    gaps = np.abs(source.mean(axis=0) - target.mean(axis=0))
    dots: list[Matrix] = [np.round(_sample(hidden, _DOTS), 4) for hidden in (source, target)]
    return [
        {
            "unit": int(unit) + 1,
            "gap": float(gaps[unit]),
            "source": dots[0][:, unit].tolist(),
            "target": dots[1][:, unit].tolist(),
        }
        for unit in np.argsort(-gaps, kind="stable")[:_UNITS]
    ]


def _spread(values: NDArray[Any]) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "deviation": float(values.std()),
        "smallest": float(values.min()),
        "largest": float(values.max()),
    }


def _sample(rows: Matrix, most: int) -> Matrix:
    """At most so many rows, drawn at random, in order."""
    if rows.shape[0] <= most:
        return rows
    return rows[np.sort(np.random.default_rng(0).choice(rows.shape[0], most, replace=False))]
