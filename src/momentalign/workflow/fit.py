"""From two tables to a model: networks over a grid of weights, combined or chosen without target labels.

What is done with the networks depends on the labels: :mod:`momentalign.workflow.classification` combines those that
predict classes, :mod:`momentalign.workflow.regression` takes one of those that predict numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.estimators.domains import as_float32, joined_task
from momentalign.files import check_folder
from momentalign.moments.streaming import Moments
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.read import read_table
from momentalign.tables.table import Table, quoted
from momentalign.training.config import LossName, Optimizer, Task, TrainingConfig
from momentalign.validation import check_device, positive_int
from momentalign.workflow.classification import Classes
from momentalign.workflow.grid import Progress, grid_points, train_again, train_points
from momentalign.workflow.model import TableModel, save_model
from momentalign.workflow.regression import Values
from momentalign.workflow.summary import Fit

__all__ = ["METHODS", "FitResult", "fit_files", "fit_tables"]

METHODS = ("cmd", "cv-cmd", "mmd", "coral", "dann", "none")
"""Names of the distances; "none" trains the plain network alone."""

HIDDEN, BATCH, MOST_EPOCHS, FEWEST_EPOCHS, PATIENCE = 50, 300, 1500, 10, 10
# As many updates as the paper's longest training on reviews; a large table gets there in fewer epochs.
UPDATES = 10_000
HELD_OUT, MOST_HELD_OUT = 0.3, 10_000
# Below this part of the source, rows that were held out are not worth a second training.
WORTH_TRAINING_AGAIN = 0.2


@dataclass(frozen=True)
class FitResult:
    """A fitted model and what there is to say about it.

    Attributes
    ----------
    model
        What :func:`~momentalign.workflow.model.save_model` writes and
        :func:`~momentalign.workflow.predict.predict_file` reads.
    summary
        All that the command prints and the page shows, as plain JSON.
    """

    model: TableModel
    summary: Mapping[str, Any]

    @property
    def interrupted(self) -> bool:
        """Whether ^C cut the training short; the model is that of the networks that were finished."""
        return bool(self.summary["interrupted"])


def fit_files(
    source: str | Path,
    target: str | Path,
    *,
    label: str,
    out: str | Path,
    method: str = "cmd",
    seeds: int = 1,
    max_epochs: int | None = None,
    device: str = "auto",
    text: str | None = None,
    target_label: str | None = None,
    regression: bool = False,
    id_column: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> FitResult:
    """Fit a model to two files and write its folder.

    Parameters
    ----------
    source, target
        Files or folders of images, see :func:`~momentalign.tables.read.read_table`.
    label
        Column of the source's labels. A column of this name in the target is not looked at.
    out
        The model folder to write.
    target_label
        Column of the target's labels, for evaluation only: they are set apart before anything is fitted and compared
        with the predictions of the finished model.
    id_column
        Column that identifies rows; it is set apart, and predictions keep it.
    method, seeds, max_epochs, device, text, regression, strict, progress
        As for :func:`fit_tables`.
    """
    _refuse_bad_options(method, seeds, max_epochs)
    check_folder(out)
    ours = read_table(source, label=label, regression=regression, id_column=id_column)
    theirs = _read_target(target, label, target_label, id_column)
    result = fit_tables(
        ours,
        theirs,
        label=label,
        method=method,
        seeds=seeds,
        max_epochs=max_epochs,
        device=device,
        text=text,
        target_label=target_label,
        regression=regression,
        id_column=id_column,
        strict=strict,
        progress=progress,
    )
    summary = {**result.summary, "source": str(source), "target": str(target), "model": str(out)}
    save_model(result.model, out)
    return replace(result, summary=summary)


def fit_tables(
    source: Table,
    target: Table,
    *,
    label: str = "label",
    method: str = "cmd",
    seeds: int = 1,
    max_epochs: int | None = None,
    device: str = "auto",
    text: str | None = None,
    target_label: str | None = None,
    regression: bool = False,
    id_column: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> FitResult:
    """Fit a model to a labelled source and an unlabelled target.

    Parameters
    ----------
    source, target
        Tables; the labels of the target are compared with predictions where `target_label` is given, else not used.
    label, id_column
        Names to keep with the model.
    method
        ``"cmd"``, ``"cv-cmd"``, ``"mmd"``, ``"coral"``, ``"dann"``, or ``"none"`` for the plain network.
    seeds
        Networks to train with each weight.
    max_epochs
        Most epochs of a network; None takes as many as give 10,000 updates, at least 10 and at most 1,500.
    device
        ``"cpu"``, ``"cuda"``, ... or ``"auto"``: a GPU if there is one.
    text
        A column of free text.
    target_label
        Name of the target's labels, for evaluation only.
    regression
        Whether labels are numbers to predict.
    strict
        Whether a column that only one domain has is an error.
    progress
        Called after every epoch with the number of finished epochs and of all.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> random = np.random.default_rng(0)
    >>> x, y = random.normal(size=(60, 2)), np.repeat(["left", "right"], 30)
    >>> x[y == "right"] += 3
    >>> frames = [pd.DataFrame(x + shift, columns=["a", "b"]) for shift in (0.0, 1.0)]
    >>> result = fit_tables(Table(frames[0], y), Table(frames[1]), max_epochs=50)
    >>> result.model.estimator.classes_.tolist(), len(result.summary["rows"])
    (['left', 'right'], 6)
    """
    started = time.perf_counter()
    _refuse_bad_options(method, seeds, max_epochs)
    if source.labels is None:
        raise InvalidInputError(f"the source has no labels; name their column, for instance label={label!r}.")
    points = grid_points(None if method == "none" else method, seeds=seeds)
    place = check_device(device)
    preprocessor = Preprocessor(text=text, strict=strict).fit(source, X_target=target)
    rows, others = (as_float32(preprocessor.transform(part), "the table") for part in (source, target))
    learned = (Values if regression else Classes).read(source.labels, target, label=label, target_label=target_label)
    task = learned.task(rows, others, share=_share(rows.shape[0]))
    config = _config(task, max_epochs, learned.loss)
    networks, interrupted = train_points(points, task, config, device=place, progress=progress)
    if not networks:
        raise KeyboardInterrupt
    coefficients = learned.choose(networks, task)
    if not interrupted and _is_worth_training_again(task):
        used = {point: networks[point] for point in coefficients}
        again, interrupted = train_again(used, joined_task(task), config, device=place, progress=progress)
    else:
        again = networks
    estimator = learned.estimator(again, coefficients, config, method, features=rows.shape[1])
    model = TableModel(estimator, preprocessor, Moments.of(others), label, id_column)
    fit = Fit(model, task, networks, coefficients, rows, others, interrupted)
    settings = _settings(method, seeds, config, place, trained_again=again is not networks)
    seconds = time.perf_counter() - started
    return FitResult(model, {**learned.summarise(fit), "settings": settings, "seconds": round(seconds, 2)})


def _refuse_bad_options(method: str, seeds: int, max_epochs: int | None) -> None:
    """Say what cannot work before files are read."""
    if method not in METHODS:
        raise InvalidInputError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    positive_int(seeds, "seeds", example="1")
    if max_epochs is not None:
        positive_int(max_epochs, "max_epochs", example="100")


def _read_target(path: str | Path, label: str, target_label: str | None, id_column: str | None) -> Table:
    """Read the target with every column apart that could hold its labels."""
    table = read_table(path, label=target_label or label, label_required=False, id_column=id_column)
    if target_label is not None and table.labels is None:
        raise InvalidInputError(
            f"{path} has no label column {target_label!r}; its columns are {quoted(table.columns)}."
        )
    if target_label is None or target_label == label or label not in table.columns:
        return table if target_label is not None else replace(table, labels=None)
    return replace(table, rows=table.rows.drop(columns=label))  # type: ignore[union-attr]


def _share(rows: int) -> float:
    """The part of the source to train on; the rest is held out."""
    return max(1.0 - HELD_OUT, 1.0 - MOST_HELD_OUT / rows)


def _config(task: Task, max_epochs: int | None, loss: LossName) -> TrainingConfig:
    # Sparse rows as in the paper's reviews; on dense ones Adam is as good in a fraction of the epochs.
    optimizer = Optimizer("adagrad") if sparse.issparse(task.source) else Optimizer("adam", 0.003)
    # Nine trainings are worth compiling, however short each is.
    config = TrainingConfig(
        hidden=(HIDDEN,), optimizer=optimizer, batch_size=BATCH, patience=PATIENCE, compiled=True, loss=loss
    )
    if max_epochs is None:
        epochs = math.ceil(UPDATES / len(config.epoch(task)))
        return replace(config, max_epochs=min(max(epochs, FEWEST_EPOCHS), MOST_EPOCHS))
    return replace(config, max_epochs=max_epochs)


def _is_worth_training_again(task: Task) -> bool:
    held_out = task.validation.shape[0]  # type: ignore[union-attr]
    return bool(held_out > WORTH_TRAINING_AGAIN * (held_out + task.source.shape[0]))


def _settings(method: str, seeds: int, config: TrainingConfig, device: str, *, trained_again: bool) -> dict[str, Any]:
    return {
        "method": method,
        "seeds": seeds,
        "hidden": HIDDEN,
        "optimizer": config.optimizer.name,
        "learning_rate": config.optimizer.rate,
        "batch_size": config.batch_size,
        "max_epochs": config.max_epochs,
        "device": device,
        "trained_again": trained_again,
    }
