"""``ma.fit`` and ``momentalign fit``: two tables are read and preprocessed, and an estimator is fitted to them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.estimators.auto import AutoClassifier, AutoRegressor
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.regressor import MANNRegressor
from momentalign.moments.streaming import Moments
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.read import as_table
from momentalign.tables.table import Table, quoted, shown
from momentalign.validation import check_choice, check_device, check_number, positive_int
from momentalign.workflow.model import Estimator, TableModel
from momentalign.workflow.summary import known_labels, summarise

__all__ = ["METHODS", "fit"]

METHODS = ("auto", "cmd", "cv-cmd", "mmd", "coral", "dann", "none")
"""The portfolio, names of distances for a network of one kind, and "none" for the plain network alone."""

# A path, or a frame of pandas, polars or Arrow.
Data: TypeAlias = Any

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
    summary = summarise(model, X, y, X_target, truth)
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
