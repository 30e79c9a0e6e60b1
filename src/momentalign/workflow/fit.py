"""``ma.fit`` and ``momentalign fit``: two tables are read and preprocessed, and an estimator is fitted to them.

What was found is kept as plain JSON: what was decided, what shifted and what is predicted. Target labels are compared
with predictions there and nowhere else, after the model is finished.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import confusion_matrix, r2_score, root_mean_squared_error

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.errors import InvalidInputError
from momentalign.estimators.auto import AutoClassifier, AutoRegressor
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.regressor import MANNRegressor
from momentalign.moments.streaming import Moments
from momentalign.networks.shallow import Matrix
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.read import as_table
from momentalign.tables.table import Table, quoted, shown
from momentalign.validation import check_choice, check_device, check_number, positive_int
from momentalign.version import __version__
from momentalign.workflow.drift import standardised_shift
from momentalign.workflow.model import Estimator, TableModel

__all__ = ["METHODS", "KnownLabels", "fit", "known_labels", "verdict"]

METHODS = ("auto", "cmd", "cv-cmd", "mmd", "coral", "dann", "none")
"""The portfolio, names of distances for a network of one kind, and "none" for the plain network alone."""

# A path, or a frame of pandas, polars or Arrow.
Data: TypeAlias = Any

_HIDDEN, _BATCH, _PATIENCE = 50, 300, 10
# As many updates as the paper's longest training on reviews; a large table gets there in fewer epochs.
_UPDATES, _FEWEST_EPOCHS, _MOST_EPOCHS = 10_000, 10, 1500
_HELD_OUT, _MOST_HELD_OUT = 0.3, 10_000
# Rows of each domain that distances look at.
_SEEN = 10_000
_SHIFTED, _UNITS, _DOTS, _RELABELLINGS = 20, 5, 200, 5


def fit(
    source: Data,
    target: Data,
    *,
    label: str,
    method: str = "auto",
    weight: float | Literal["auto"] | None = None,
    seeds: int = 1,
    max_epochs: int | None = None,
    device: str = "auto",
    text: str | None = None,
    target_label: str | None = None,
    regression: bool = False,
    id_column: str | None = None,
    strict: bool = False,
    verbose: int = 0,
) -> TableModel:
    """Train on a labelled table so that the model works on an unlabelled one, as ``momentalign fit`` does.

    Parameters
    ----------
    source, target
        Files, folders of images, or frames of pandas, polars or Arrow, with the same columns.
    label
        Column of the source's labels. A column of this name in the target is not looked at.
    method
        ``"auto"`` trains a portfolio, :class:`~momentalign.AutoClassifier` or :class:`~momentalign.AutoRegressor`.
        ``"cmd"``, ``"cv-cmd"``, ``"mmd"``, ``"coral"`` and ``"dann"`` train networks aligned by that distance,
        ``"none"`` a plain network. `weight`, `seeds`, `max_epochs` and a GPU are settings of such networks: where one
        is given and no method, the method is ``"cmd"``.
    weight
        Weight of the distance; None is ``"auto"`` for classes, a combination of several weights, and 1 for values.
    seeds
        Models to train, each from another seed; the one with the lowest loss on held-out source rows is kept.
    max_epochs
        Most epochs of a network; None takes as many as give 10,000 updates, at least 10 and at most 1,500.
    device
        ``"cpu"``, ``"cuda"``, ... or ``"auto"``: a GPU if there is one, for networks. A portfolio is trained on all
        cores of the CPU.
    text
        A column of free text.
    target_label
        Column of the target's labels, for evaluation only: they are set apart before anything is fitted and compared
        with the predictions of the finished model.
    regression
        Whether the labels are continuous values to predict.
    id_column
        Column that identifies rows; it is no feature, and the predictions of files keep it.
    strict
        Whether rows without a label, and columns that only one table has, are an error; if not, they are left out with
        a warning.
    verbose
        1 shows a progress bar.

    Returns
    -------
    TableModel
        Predicts tables like these; see :class:`~momentalign.workflow.model.TableModel`.

    Examples
    --------
    >>> import momentalign as ma, numpy as np, pandas as pd
    >>> random = np.random.default_rng(0)
    >>> frame = pd.DataFrame(random.normal(size=(60, 2)), columns=["spend", "visits"])
    >>> labelled = frame.assign(churn=np.where(frame["spend"] > 0, "yes", "no"))
    >>> model = ma.fit(labelled, frame + [0.0, 1.0], label="churn")
    >>> model.predict(frame[:2] + [0.0, 1.0]).tolist()
    ['yes', 'yes']
    """
    begun = time.perf_counter()
    method = _check_method(method, weight, seeds, max_epochs, device)
    labelled = as_table(
        source, "the source", label=label, regression=regression, drop_unlabelled=not strict, id_column=id_column
    )
    assert labelled.labels is not None  # noqa: S101  (a file without labels is refused by its reader)
    label, y = labelled.label or label, labelled.labels
    if not regression and y.dtype.kind == "f" and (y % 1 != 0).any():
        raise InvalidInputError(
            f"label column {label!r} holds fractions such as {shown(y[y % 1 != 0][0])}, which name no classes; give "
            "regression=True (--regression) to predict values."
        )
    unlabelled, hint = _target(target, label, target_label, id_column)
    truth = None if target_label is None else known_labels(unlabelled, target_label, regression=regression)
    # A portfolio standardises features itself; of sparse rows, as of text, it leaves the proportions as they are.
    scale = method != "auto" or text is not None
    preprocessor = Preprocessor(scale=scale, text=text, strict=strict).fit(labelled, X_target=unlabelled)
    X, X_target = (preprocessor.transform(table) for table in (labelled, unlabelled))
    estimator: Estimator
    if method == "auto":
        settings: dict[str, Any] = {}
        kind = AutoRegressor if regression else AutoClassifier
        estimator = kind(random_state=0, n_jobs=-1, verbose=verbose).fit(X, y, X_target)
    else:
        settings = _settings(X, X_target, max_epochs) | {
            "discrepancy": None if method == "none" else method,
            "weight": weight if weight is not None else 1.0 if regression else "auto",
            "device": check_device(device),
        }
        estimator = _fit_network(X, y, X_target, settings, seeds, regression=regression, verbose=verbose)
        settings["seeds"] = seeds
    model = TableModel(estimator, preprocessor, Moments.of(X_target), label, id_column)
    summary = _summarise(model, X, y, X_target, truth)
    notes = [*labelled.notes, *preprocessor.notes_, *hint]
    summary |= {"notes": notes, "method": method, "settings": {name: settings[name] for name in sorted(settings)}}
    names = {name: str(data) for name, data in (("source", source), ("target", target)) if _is_path(data)}
    return replace(model, summary={**summary, **names, "seconds": round(time.perf_counter() - begun, 2)})


def _check_method(method: str, weight: Any, seeds: int, max_epochs: int | None, device: str) -> str:
    """Return the method that the settings mean; the numbers are checked before any file is read."""
    check_choice(method, "method", METHODS)
    positive_int(seeds, "seeds", example="1")
    if max_epochs is not None:
        positive_int(max_epochs, "max_epochs", example="100")
    if weight is not None and method == "none":
        raise InvalidInputError(f"weight={weight!r} has no meaning for method='none'; leave one of them out.")
    if weight is not None and weight != "auto":
        check_number(weight, "weight", least=0.0)
    of_networks = weight is not None or seeds > 1 or max_epochs is not None or device not in ("auto", "cpu")
    return "cmd" if method == "auto" and of_networks else method


def _fit_network(
    X: Any,
    y: NDArray[Any],
    X_target: Any,
    settings: dict[str, Any],
    seeds: int,
    *,
    regression: bool,
    verbose: int,
) -> MANNClassifier | MANNRegressor:
    kind = MANNRegressor if regression else MANNClassifier
    fitted = [kind(random_state=seed, verbose=verbose, **settings).fit(X, y, X_target) for seed in range(seeds)]
    return min(fitted, key=lambda one: min(one.history_["validation_loss"], default=math.inf))


def _settings(X: Any, X_target: Any, max_epochs: int | None) -> dict[str, Any]:
    """Return parameters of a network that suit tables of these sizes."""
    rows, target_rows = X.shape[0], X_target.shape[0]
    fraction = min(_HELD_OUT, _MOST_HELD_OUT / rows)
    updates = math.ceil(max((1.0 - fraction) * rows, target_rows) / _BATCH)
    epochs = min(max(math.ceil(_UPDATES / updates), _FEWEST_EPOCHS), _MOST_EPOCHS)
    # Sparse rows as in the paper's reviews; on dense ones Adam is as good in a fraction of the epochs.
    optimizer = ("adagrad", 0.01) if sparse.issparse(X) else ("adam", 0.003)
    return {
        "hidden": (_HIDDEN,),
        "optimizer": optimizer[0],
        "learning_rate": optimizer[1],
        "batch_size": _BATCH,
        "max_epochs": epochs if max_epochs is None else max_epochs,
        "patience": _PATIENCE,
        "validation_fraction": fraction,
    }


def _target(data: Data, label: str, target_label: str | None, id_column: str | None) -> tuple[Table, list[str]]:
    """Return the target with every column set apart that could hold its labels, and what to say of that."""
    table = as_table(data, "the target", label=target_label or label, label_required=False, id_column=id_column)
    if target_label is None:
        hint = f"the target's column {label!r} was not looked at; to compare it with the predictions, give target_label"
        return replace(table, labels=None), [] if table.labels is None else [f"{hint}={label!r} (--target-label)."]
    if table.labels is None:
        where = data if _is_path(data) else "the target"
        raise InvalidInputError(
            f"{where} has no label column {target_label!r}; its columns are {quoted(table.columns)}."
        )
    rows: Any = table.rows
    apart = target_label != label and not (sparse.issparse(rows) or isinstance(rows, np.ndarray))
    return replace(table, rows=rows.drop(columns=label, errors="ignore")) if apart else table, []


def _is_path(data: Data) -> bool:
    return isinstance(data, str | Path)


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


def _summarise(
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
