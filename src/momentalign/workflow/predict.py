"""Predictions for a file of any size, chunk by chunk, in the order of its rows, and whether its rows have drifted.

Predictions chunk by chunk: what is written of each chunk, and what is kept to sum up all of them.

Where predictions go: CSV, TSV or Parquet, part by part, to a file that appears whole or not at all.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from momentalign.errors import InvalidInputError, MomentAlignError, MomentAlignWarning
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.regressor import MANNRegressor
from momentalign.files import whole_file
from momentalign.moments.streaming import Moments
from momentalign.networks.shallow import Matrix
from momentalign.tables.opening import find_path
from momentalign.tables.read import read_chunks
from momentalign.tables.table import Table
from momentalign.workflow.classification import joined_networks
from momentalign.workflow.drift import Drift, find_drift
from momentalign.workflow.grid import cores, in_order
from momentalign.workflow.model import TableModel, load_model

__all__ = ["PREDICTION", "ClassTally", "PredictSummary", "ValueTally", "Write", "open_output", "predict_file"]

Floats = NDArray[np.floating[Any]]

PREDICTION = "prediction"
"""The column of the predicted class or number; with `proba` the columns after it are named by :data:`PROBABILITY`."""
PROBABILITY = "probability_{}"


class ClassTally:
    """Predicted classes: with probabilities or without, and how many there are of each."""

    values = None

    def __init__(self, estimator: MANNClassifier, *, proba: bool) -> None:
        self._estimator, self._proba = estimator, proba
        self._predict = joined_networks(estimator)
        self._counts = np.zeros(len(estimator.classes_), dtype=np.int64)

    def predict(self, rows: Matrix) -> Floats:
        """Return the probability of each class, (rows, classes)."""
        return self._predict(rows)

    def columns(self, predictions: Floats) -> dict[str, Any]:
        """Return the columns to write."""
        classes = self._estimator.classes_
        names = pyarrow.array(classes.tolist())
        columns = {PREDICTION: names.take(pyarrow.array(predictions.argmax(axis=1)))}
        for place, name in enumerate(classes if self._proba else ()):
            columns[PROBABILITY.format(name)] = pyarrow.array(predictions[:, place])
        return columns

    def add(self, predictions: Floats) -> None:
        """Count some rows."""
        self._counts += np.bincount(predictions.argmax(axis=1), minlength=len(self._counts))

    @property
    def classes(self) -> dict[str, int]:
        """How many rows there are of each class."""
        return {str(name): int(count) for name, count in zip(self._estimator.classes_, self._counts, strict=True)}


class ValueTally:
    """Predicted numbers: their mean and range."""

    def __init__(self, estimator: MANNRegressor) -> None:
        self._estimator = estimator
        self._count, self._sum, self._smallest, self._largest = 0, 0.0, math.inf, -math.inf
        self.classes: dict[str, int] = {}

    def predict(self, rows: Matrix) -> Floats:
        """Return the number of each row."""
        return self._estimator.predict(rows)

    def columns(self, predictions: Floats) -> dict[str, Any]:
        """Return the column to write."""
        return {PREDICTION: pyarrow.array(predictions)}

    def add(self, predictions: Floats) -> None:
        """Take some rows into mean and range."""
        self._count += len(predictions)
        self._sum += float(predictions.sum())
        self._smallest = min(self._smallest, float(predictions.min()))
        self._largest = max(self._largest, float(predictions.max()))

    @property
    def values(self) -> dict[str, float]:
        """Mean, smallest and largest number."""
        return {"mean": self._sum / self._count, "smallest": self._smallest, "largest": self._largest}


Write = Callable[[Any], None]
"""Takes the next rows as an Arrow table."""
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


@contextmanager
def open_output(path: Path | None) -> Iterator[Write]:
    """Yield a function that writes Arrow tables to a file by the suffix of its name, or as CSV to standard output.

    The file gets its name when all is written; on any error nothing is left of it.
    """
    if path is None:
        with _tables(sys.stdout.buffer, ".csv") as write:
            yield write
        sys.stdout.buffer.flush()
        return
    suffix = path.suffix.lower() or ".csv"
    if suffix not in (*_DELIMITERS, ".parquet"):
        raise InvalidInputError(f"out={str(path)!r} must end in .csv, .tsv or .parquet.")
    if path.is_dir():
        raise InvalidInputError(f"out={str(path)!r} is a folder; name a file in it.")
    with _saying(path), whole_file(path) as file, _tables(file, suffix) as write:
        yield write


@contextmanager
def _tables(file: IO[bytes], suffix: str) -> Iterator[Write]:
    writer: Any = None

    def write(table: Any) -> None:
        nonlocal writer
        if writer is None:
            writer = _writer(file, suffix, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _writer(file: IO[bytes], suffix: str, schema: Any) -> Any:
    if suffix == ".parquet":
        return pq.ParquetWriter(file, schema)
    return arrow_csv.CSVWriter(file, schema, write_options=arrow_csv.WriteOptions(delimiter=_DELIMITERS[suffix]))


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    """Turn what the system says about a file into one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, MomentAlignError):
            raise
        raise InvalidInputError(
            f"{path} cannot be written ({error.strerror or error}); give a place with room in a folder that can be."
        ) from error


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
    ids = {} if table.ids is None else {str(id_column): pyarrow.array(table.ids, from_pandas=True)}
    return pyarrow.table({**ids, **predictions})
