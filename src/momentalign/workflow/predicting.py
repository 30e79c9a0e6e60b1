"""Predictions for a file of any size, chunk by chunk, in the order of its rows, and whether its rows have drifted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from momentalign.data.tables.libraries import need
from momentalign.data.tables.opening import find_path
from momentalign.data.tables.reading import read_chunks
from momentalign.data.tables.table import Table
from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.estimators.regressor import MANNRegressor
from momentalign.moments.running import Moments
from momentalign.workflow.drift import Drift, find_drift
from momentalign.workflow.model_folder import TableModel, load_model
from momentalign.workflow.outputs import open_output
from momentalign.workflow.tally import ClassTally, ValueTally
from momentalign.workflow.threads import cores, in_order

__all__ = ["PredictSummary", "predict_file"]


@dataclass(frozen=True)
class PredictSummary:
    """How many rows were predicted, how many of each class, and whether they drifted.

    Where numbers are predicted, `classes` is empty and `values` holds their ``mean``, ``smallest`` and ``largest``.
    """

    rows: int
    classes: dict[str, int]
    drift: Drift
    values: dict[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON."""
        return {
            "kind": "predict",
            "rows": self.rows,
            "classes": self.classes,
            "values": self.values,
            "drift": self.drift.to_dict(),
        }


def predict_file(
    model: TableModel | str | Path,
    data: str | Path,
    *,
    out: str | Path | None = None,
    proba: bool = False,
    id_column: str | None = None,
    chunk_rows: int = 65_536,
    progress: Callable[[int], None] | None = None,
) -> PredictSummary:
    """Predict the class, or the number, of every row of a file.

    Parameters
    ----------
    model
        A model or its folder.
    data
        A file of the columns the model was trained with, in any order; others are left out.
    out
        The file to write: ``.csv``, ``.tsv`` or ``.parquet``; None writes CSV to standard output. On any error an
        earlier file of this name stays as it was.
    proba
        Whether to write the probability of each class too; a model of numbers has none.
    id_column
        Column to keep beside the predictions; None takes the model's, if it has one.
    chunk_rows
        Rows in memory at a time.
    progress
        Called after every chunk with the number of rows so far.

    Warns
    -----
    MomentAlignWarning
        If the rows have drifted away from the target that the model was adapted to.
    """
    fitted = model if isinstance(model, TableModel) else load_model(model)
    tally = _tally(fitted, proba=proba)
    place = None if out is None else Path(out)
    if place is not None and place.exists() and place.samefile(find_path(data)):
        raise InvalidInputError(f"out={str(place)!r} is the file that is read; give another name.")
    kept = id_column or fitted.id_column
    moments: Moments | None = None

    def work(table: Table) -> tuple[Moments, NDArray[Any], Any]:
        rows = fitted.preprocessor.transform(table)
        predictions = tally.predict(rows)
        return Moments.of(rows), predictions, _columns(table, kept, tally.columns(predictions))

    finished = in_order(work, _chunks(fitted, data, kept, chunk_rows), threads=cores())
    # Threads of a product would only wait for those of another chunk.
    with open_output(place) as write, threadpool_limits(limits=1, user_api="blas"), closing(finished):
        for found, predictions, columns in finished:
            moments = found if moments is None else moments + found
            tally.add(predictions)
            write(columns)
            if progress is not None:
                progress(int(moments.count))
    assert moments is not None  # noqa: S101  (a file without rows is refused by its reader)
    drift = find_drift(moments, fitted.moments, fitted.feature_names)
    if drift.found:
        warnings.warn(drift.words, MomentAlignWarning, stacklevel=2)
    return PredictSummary(int(moments.count), tally.classes, drift, tally.values)


def _tally(model: TableModel, *, proba: bool) -> ClassTally | ValueTally:
    if not isinstance(model.estimator, MANNRegressor):
        return ClassTally(model.estimator, proba=proba)
    if proba:
        raise InvalidInputError(
            f"the model predicts numbers ({model.label!r}), which have no probabilities; leave proba out."
        )
    return ValueTally(model.estimator)


def _chunks(model: TableModel, data: str | Path, id_column: str | None, rows: int) -> Iterator[Table]:
    named = model.preprocessor.form_ == "columns"
    return read_chunks(
        data,
        rows=rows,
        id_column=id_column,
        columns=model.preprocessor.columns_ if named else None,
        kinds=model.preprocessor.kinds_ if named else None,
    )


def _columns(table: Table, id_column: str | None, predictions: Mapping[str, Any]) -> Any:
    """Return what is written for some rows: identifiers, predictions, probabilities."""
    pyarrow = need("pyarrow")
    ids = {} if table.ids is None else {str(id_column): pyarrow.array(table.ids, from_pandas=True)}
    return pyarrow.table({**ids, **predictions})
