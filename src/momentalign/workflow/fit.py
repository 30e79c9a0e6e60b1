"""``ma.fit`` and ``momentalign fit``: two tables are read and preprocessed, and an estimator is fitted to them.

Target labels are set apart before anything is fitted, and compared with the predictions of the finished model.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.auto import AutoClassifier
from momentalign.estimators.auto_regressor import AutoRegressor
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.regressor import MANNRegressor
from momentalign.moments.streaming import Moments
from momentalign.tables.database import without_password
from momentalign.tables.encoders import column_numbers, kind_of
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.read import read_table
from momentalign.tables.table import Table, quoted
from momentalign.training.config import Optimizer
from momentalign.validation import (
    check_choice,
    check_device,
    check_int,
    check_number,
    check_row_values,
    check_seed,
    positive_int,
)
from momentalign.workflow.comparison import known_labels
from momentalign.workflow.model import Estimator, TableModel
from momentalign.workflow.risk import ask, distances, risk_cut, risk_scores
from momentalign.workflow.summary import summarise
from momentalign.workflow.threshold import choose_threshold, parse_threshold, rarer_class

__all__ = ["METHODS", "fit"]

METHODS = ("auto", "cmd", "cv-cmd", "mmd", "coral", "dann", "none")
"""The portfolio, names of distances for a network of one kind, and "none" for the plain network alone."""

# A path, or a frame of pandas, polars or Arrow.
Data: TypeAlias = Any

_MOST_SEEDS = 1000
_HIDDEN, _BATCH, _PATIENCE = 50, 300, 10
# As many updates as the paper's longest training on reviews; a large table gets there in fewer epochs.
_UPDATES, _FEWEST_EPOCHS, _MOST_EPOCHS = 10_000, 10, 1500
_HELD_OUT, _MOST_HELD_OUT = 0.3, 10_000


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
    threshold: float | str | None = None,
    class_weight: Any = None,
    sample_weight: str | None = None,
    strict: bool = False,
    random_state: int | None = 0,
    verbose: int = 0,
) -> TableModel:
    """Train on a labelled table so that the model works on an unlabelled one, as ``momentalign fit`` does.

    Parameters
    ----------
    source, target
        Files, folders of images, tables of a database (``"sqlite:///shop.db#customers"``), or frames of pandas,
        polars, Arrow or Hugging Face datasets, with the same columns.
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
    threshold
        For two classes: the probability from which on a row is given the class that is rarer in the source. A number,
        or ``"f1"`` for the best F1 and ``"cost:FP,FN"`` for the lowest cost of false positives and false negatives on
        held-out source rows. None gives each row its most probable class.
    class_weight
        ``"balanced"`` or a dictionary of weights by class, as in scikit-learn, for the portfolio.
    sample_weight
        Column of the source that holds one weight for each row, for the portfolio; it is no feature.
    strict
        Whether rows without a label, and columns that only one table has, are an error; if not, they are left out with
        a warning.
    random_state
        Seed of all that is drawn: the same seed gives the same model.
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
    rule = None if threshold is None else parse_threshold(threshold)
    _refuse_for(method, regression, class_weight, sample_weight, rule)
    seed = check_seed(random_state)
    if label is None:
        raise InvalidTypeError('label must be the name of a column, got None; try label="label".')
    labelled = read_table(
        source, name="the source", label=label, regression=regression, drop_unlabelled=not strict, id_column=id_column
    )
    assert labelled.labels is not None  # noqa: S101  (a file without labels is refused by its reader)
    label, y = labelled.label or label, labelled.labels
    if not regression:
        _refuse_values(label, y)
    if rule is not None and (classes := len(set(y.tolist()))) != 2:
        raise InvalidInputError(f"threshold is for two classes, and {label!r} has {classes}; leave it out.")
    unlabelled, hint = _target(target, labelled, label, target_label, id_column)
    labelled, weights = _set_apart(labelled, sample_weight)
    unlabelled = _without(unlabelled, sample_weight)
    truth = None if target_label is None else known_labels(unlabelled, target_label, regression=regression)
    # A portfolio standardises features itself; of sparse rows, as of text, it leaves the proportions as they are.
    scale = method != "auto" or text is not None
    preprocessor = Preprocessor(scale=scale, text=text, strict=strict).fit(labelled, X_target=unlabelled)
    X, X_target = (preprocessor.transform(table) for table in (labelled, unlabelled))
    estimator: Estimator
    settings: dict[str, Any] = {}
    if method == "auto":
        common = {"random_state": seed, "n_jobs": -1, "verbose": verbose}
        portfolio = AutoRegressor(**common) if regression else AutoClassifier(class_weight=class_weight, **common)
        estimator = portfolio.fit(X, y, X_target, sample_weight=weights)
    else:
        settings = _settings(X, X_target, max_epochs) | {
            "discrepancy": None if method == "none" else method,
            "weight": weight if weight is not None else 1.0 if regression else "auto",
            "device": check_device(device),
        }
        kind = MANNRegressor if regression else MANNClassifier
        networks = [kind(random_state=seed + more, verbose=verbose, **settings) for more in range(seeds)]
        estimator = min((one.fit(X, y, X_target) for one in networks), key=_held_out_loss)
        settings["seeds"] = seeds
    chosen = None if rule is None else choose_threshold(rule, rarer_class(y, estimator.classes_) or 0, estimator)
    answers = ask(estimator, X_target, chosen)
    moments = Moments.of(X), Moments.of(X_target)
    distance = distances(X_target, *moments)
    model = TableModel(
        estimator,
        preprocessor,
        moments[1],
        label,
        id_column,
        threshold=chosen,
        source_moments=moments[0],
        risk_cut=risk_cut(risk_scores(answers, distance)),
    )
    tables = {"source": source, "target": target}
    summary = {
        **summarise(model, X, y, X_target, answers, distance, truth),
        "notes": [*labelled.notes, *preprocessor.notes_, *hint],
        "method": method,
        "settings": {name: settings[name] for name in sorted(settings)},
        **{name: without_password(str(data)) for name, data in tables.items() if _is_path(data)},
        "seconds": round(time.perf_counter() - begun, 2),
    }
    return replace(model, summary=summary)


def _refuse_values(label: str, y: NDArray[Any]) -> None:
    """Refuse labels that are values to predict rather than classes."""
    found = None
    if y.dtype.kind == "f" and (y % 1 != 0).any():
        found = f"fractions such as {y[y % 1 != 0][0]:.4g}"
    elif y.dtype.kind in "iu" and (classes := len(np.unique(y))) > max(len(y) / 2, 10):
        found = f"{classes:,} different numbers in {len(y):,} rows"
    if found is not None:
        raise InvalidInputError(
            f"label column {label!r} holds {found}, which name no classes; give regression=True (--regression) to "
            "predict values."
        )


def _check_method(method: str, weight: Any, seeds: int, max_epochs: int | None, device: str) -> str:
    """Return the method that the settings mean; the numbers are checked before any file is read."""
    check_choice(method, "method", METHODS)
    check_int(seeds, "seeds", least=1, most=_MOST_SEEDS, example=1)
    if max_epochs is not None:
        positive_int(max_epochs, "max_epochs", example="100")
    if weight is not None and method == "none":
        raise InvalidInputError(f"weight={weight!r} has no meaning for method='none'; leave one of them out.")
    if weight is not None and weight != "auto":
        check_number(weight, "weight", least=0.0)
    of_networks = weight is not None or seeds > 1 or max_epochs is not None or device not in ("auto", "cpu")
    return "cmd" if method == "auto" and of_networks else method


def _refuse_for(method: str, regression: bool, class_weight: Any, sample_weight: Any, rule: Any) -> None:
    """Refuse what a portfolio of classifiers alone can do."""
    if isinstance(class_weight, str) and class_weight != "balanced":
        raise InvalidInputError(f"class_weight must be 'balanced' or weights by class, got {class_weight!r:.80}.")
    for name, value in {"class_weight": class_weight, "threshold": rule}.items():
        if value is not None and regression:
            raise InvalidInputError(f"{name} has no meaning for regression; leave it out.")
    if method == "auto":
        return
    for name, value in {"class_weight": class_weight, "sample_weight": sample_weight}.items():
        if value is not None:
            raise InvalidInputError(
                f"{name} is not known to networks of method={method!r}; leave it or the method out."
            )
    if rule is not None and rule.value is None:
        raise InvalidInputError(
            f"threshold={rule.text!r} is chosen on held-out rows, which method={method!r} does not keep; give a number "
            "or method='auto'."
        )


def _set_apart(table: Table, sample_weight: str | None) -> tuple[Table, NDArray[Any] | None]:
    """Return a table without its column of weights, and the weights."""
    if sample_weight is None:
        return table, None
    rows: Any = table.rows
    if sample_weight not in table.columns or not hasattr(rows, "columns"):
        raise InvalidInputError(
            f"sample_weight={sample_weight!r} is no column of the source; its columns are {quoted(table.columns)}."
        )
    if kind_of(rows[sample_weight]) != "number":
        raise InvalidInputError(f"sample_weight={sample_weight!r} holds no numbers; give a column of weights.")
    weights = check_row_values(column_numbers(rows[sample_weight]), f"sample_weight={sample_weight!r}")
    return _without(table, sample_weight), weights


def _held_out_loss(network: MANNClassifier | MANNRegressor) -> float:
    return min(network.history_["validation_loss"], default=math.inf)


def _settings(X: Any, X_target: Any, max_epochs: int | None) -> dict[str, Any]:
    """Return parameters of a network that suit tables of these sizes."""
    rows, target_rows = X.shape[0], X_target.shape[0]
    fraction = min(_HELD_OUT, _MOST_HELD_OUT / rows)
    updates = math.ceil(max((1.0 - fraction) * rows, target_rows) / _BATCH)
    epochs = min(max(math.ceil(_UPDATES / updates), _FEWEST_EPOCHS), _MOST_EPOCHS)
    optimizer = Optimizer(by_rows=True).for_rows(X)
    return {
        "hidden": (_HIDDEN,),
        "optimizer": optimizer.name,
        "learning_rate": optimizer.rate,
        "batch_size": _BATCH,
        "max_epochs": epochs if max_epochs is None else max_epochs,
        "patience": _PATIENCE,
        "validation_fraction": fraction,
    }


def _target(
    data: Data, source: Table, label: str, target_label: str | None, id_column: str | None
) -> tuple[Table, list[str]]:
    """Return the target with every column set apart that could hold its labels, and what to say of that."""
    wanted = target_label or label
    table = read_table(data, name="the target", label=wanted, label_required=False, id_column=id_column)
    if table.labels is None:
        # As in the source "Churn" is "churn" where only that is there, unless it is a feature.
        alike = [name for name in table.columns if name.casefold() == wanted.casefold() and name not in source.columns]
        if len(alike) == 1:
            table = read_table(data, name="the target", label=alike[0], label_required=False, id_column=id_column)
    if target_label is None:
        if table.labels is None:
            return table, []
        hint = "was not looked at; to compare it with the predictions, give target_label"
        hint = f"the target's column {table.label!r} {hint}={table.label!r} (--target-label)."
        return replace(table, labels=None), [hint]
    if table.labels is None:
        where = data if _is_path(data) else "the target"
        raise InvalidInputError(
            f"{where} has no label column {target_label!r}; its columns are {quoted(table.columns)}."
        )
    return _without(table, label), []


def _without(table: Table, column: str | None) -> Table:
    """Return a table without a column, if it has it."""
    rows: Any = table.rows
    found = hasattr(rows, "columns") and column in rows.columns
    return replace(table, rows=rows.drop(columns=column)) if found else table


def _is_path(data: Data) -> bool:
    return isinstance(data, str | Path)
