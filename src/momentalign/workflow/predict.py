"""Predictions for a file of any size: chunk by chunk, in the order of its rows, with a warning of drift."""

from __future__ import annotations

import sys
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from momentalign.errors import InvalidInputError, MomentAlignError, MomentAlignWarning
from momentalign.files import check_path, whole_file
from momentalign.moments.streaming import Moments
from momentalign.tables.database import without_password
from momentalign.tables.encoders import unseen_note
from momentalign.tables.opening import check_outputs
from momentalign.tables.read import read_chunks
from momentalign.tables.table import Table
from momentalign.workflow.drift import Drift, find_drift
from momentalign.workflow.model import TableModel, load_model
from momentalign.workflow.risk import RISK_COLUMNS

__all__ = ["PREDICTION", "PredictSummary", "in_order", "open_output", "predict_file"]

PREDICTION = "prediction"
"""The column of the predicted class or number."""
_PROBABILITY = "probability_{}"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}

Part = TypeVar("Part")
Result = TypeVar("Result")


@dataclass(frozen=True)
class PredictSummary:
    """How many rows were predicted, how many of each class, and whether they drifted.

    Where numbers are predicted, `classes` is empty and `values` holds their ``mean``, ``smallest`` and ``largest``.
    `unseen` says of each column of categories in how many rows it holds one that the model does not know.
    """

    rows: int
    classes: dict[str, int]
    drift: Drift
    values: dict[str, float] | None = None
    unseen: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON."""
        return {
            "kind": "predict",
            "rows": self.rows,
            "classes": self.classes,
            "values": self.values,
            "drift": self.drift.to_dict(),
            "unseen": self.unseen,
        }


def predict_file(
    model: TableModel | str | Path,
    data: str | Path,
    *,
    out: str | Path | None = None,
    proba: bool = False,
    risk: bool = False,
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
        A file, or a table of a database, of the columns the model was trained with, in any order; others are left out.
    out
        The file to write: ``.csv``, ``.tsv`` or ``.parquet``; None writes CSV to standard output. On any error an
        earlier file of this name stays as it was.
    proba
        Whether to write the probability of each class too; a model of numbers has none.
    risk
        Whether to write the columns of :meth:`~momentalign.workflow.model.TableModel.risk` too.
    id_column
        Column to keep beside the predictions; None takes the model's, if it has one.
    chunk_rows
        Rows in memory at a time.
    progress
        Called after every chunk with the number of rows so far.

    Warns
    -----
    MomentAlignWarning
        If the rows have drifted away from the target that the model was adapted to, or hold categories that the model
        does not know.
    """
    fitted = model if isinstance(model, TableModel) else load_model(model)
    if proba:
        fitted.refuse_probabilities()
    kept, path = id_column or fitted.id_column, None if out is None else check_path(out, "out")
    _refuse_id_column(fitted, kept, proba=proba, risk=risk)
    if path is not None:
        check_outputs({"the predictions": path}, [data])
    named = fitted.preprocessor.form_ == "columns"
    chunks = read_chunks(
        data,
        rows=chunk_rows,
        id_column=kept,
        columns=fitted.preprocessor.columns_ if named else None,
        kinds=fitted.preprocessor.kinds_ if named else None,
    )
    tally = _Tally(getattr(fitted.estimator, "classes_", None))

    def work(table: Table) -> tuple[Moments, NDArray[Any], dict[str, Counter[str]], Any]:
        rows = fitted.preprocessor.transform(table)
        predicted, columns = _predict(fitted, rows, proba=proba, risk=risk)
        ids = {} if table.ids is None else {str(kept): pa.array(table.ids, from_pandas=True)}
        unseen = fitted.preprocessor.count_unseen(table)
        return Moments.of(rows), predicted, unseen, pa.table({**ids, **columns})

    finished = in_order(work, chunks, threads=cpu_count())
    # Threads of a product would only wait for those of another chunk.
    with open_output(path) as write, threadpool_limits(limits=1, user_api="blas"), closing(finished):
        for moments, predicted, unseen, columns in finished:
            tally.add(moments, predicted, unseen)
            write(columns)
            if progress is not None:
                progress(tally.rows)
    drift = find_drift(tally.moments, fitted.moments, fitted.feature_names)
    if drift.found:
        warnings.warn(drift.message, MomentAlignWarning, stacklevel=2)
    for name, counts in tally.unseen.items():
        note = unseen_note(name, counts, without_password(str(data)))
        warnings.warn(note, MomentAlignWarning, stacklevel=2)
    rows_of_unseen = {name: counts.total() for name, counts in tally.unseen.items()}
    return PredictSummary(tally.rows, tally.classes, drift, tally.values, rows_of_unseen)


def _refuse_id_column(model: TableModel, id_column: str | None, *, proba: bool, risk: bool) -> None:
    """Refuse an id column that has the name of a column that is written beside it."""
    names = [PREDICTION, *(RISK_COLUMNS if risk else ())]
    if proba:
        names += [_PROBABILITY.format(name) for name in model.estimator.classes_]
    if id_column in names:
        raise InvalidInputError(
            f"the id column {id_column!r} has the name of a column of predictions; rename it, or keep another one "
            "with --id."
        )


def _predict(model: TableModel, rows: Any, *, proba: bool, risk: bool) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return the code of the class, or the number, of each row, and the columns to write."""
    estimator: Any = model.estimator
    answers, flags = None, dict[str, Any]()
    if risk:
        answers, table = model.risk_of(rows)
        flags = {str(name): pa.array(column) for name, column in table.items()}
    if not hasattr(estimator, "classes_"):
        values = estimator.predict(rows) if answers is None else answers.values
        return values, {PREDICTION: pa.array(values), **flags}
    # In float32 the rounding of products, which depends on the number of rows in a chunk, is not seen.
    found = estimator.predict_proba(rows) if answers is None else answers.values
    probabilities = found.astype(np.float32)
    codes = probabilities.argmax(axis=1) if model.threshold is None else model.threshold.decide(probabilities)
    columns = {PREDICTION: pa.array(estimator.classes_.tolist()).take(pa.array(codes))}
    for code, name in enumerate(estimator.classes_ if proba else ()):
        columns[_PROBABILITY.format(name)] = pa.array(probabilities[:, code])
    return codes, columns | flags


class _Tally:
    """What is kept of all predicted rows: their moments, and how many there are of each class, or their range."""

    def __init__(self, classes: NDArray[Any] | None) -> None:
        self.moments = Moments()
        self.unseen: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._names = classes
        self._counts = np.zeros(0 if classes is None else len(classes), dtype=np.int64)
        self._sum, self._smallest, self._largest = 0.0, np.inf, -np.inf

    def add(self, moments: Moments, predicted: NDArray[Any], unseen: dict[str, Counter[str]]) -> None:
        self.moments = self.moments + moments if self.rows else moments
        for name, counts in unseen.items():
            self.unseen[name].update(counts)
        if self._names is not None:
            self._counts += np.bincount(predicted, minlength=len(self._names))
            return
        self._sum += float(predicted.sum())
        self._smallest = min(self._smallest, float(predicted.min()))
        self._largest = max(self._largest, float(predicted.max()))

    @property
    def rows(self) -> int:
        return int(self.moments.count)

    @property
    def classes(self) -> dict[str, int]:
        names = [] if self._names is None else self._names.tolist()
        return {str(name): int(count) for name, count in zip(names, self._counts, strict=True)}

    @property
    def values(self) -> dict[str, float] | None:
        if self._names is not None:
            return None
        return {"mean": self._sum / self.rows, "smallest": self._smallest, "largest": self._largest}


def in_order(work: Callable[[Part], Result], parts: Iterable[Part], *, threads: int) -> Generator[Result]:
    """Yield the result of each part in order; no more parts are read ahead than there are threads.

    Examples
    --------
    >>> list(in_order(lambda number: number**2, range(5), threads=2))
    [0, 1, 4, 9, 16]
    """
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[Result]] = deque()
    try:
        for part in parts:
            waiting.append(pool.submit(work, part))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # Nobody waits for what is under way after an error or a ^C.
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[Any], None]]:
    """Yield a function that writes Arrow tables to a file by the suffix of its name, or as CSV to standard output.

    The file gets its name when all is written; on any error nothing is left of it.
    """
    if path is None:
        with _writing(sys.stdout.buffer, ".csv") as write:
            yield write
        sys.stdout.buffer.flush()
        return
    suffix = path.suffix.lower() or ".csv"
    if suffix not in (*_DELIMITERS, ".parquet"):
        raise InvalidInputError(f"out={str(path)!r} must end in .csv, .tsv or .parquet.")
    if path.is_dir():
        raise InvalidInputError(f"out={str(path)!r} is a folder; name a file in it.")
    try:
        with whole_file(path) as file, _writing(file, suffix) as write:
            yield write
    except OSError as error:
        if isinstance(error, MomentAlignError):
            raise
        raise InvalidInputError(
            f"{path} cannot be written ({error.strerror or error}); name a file in a folder that has room and can be "
            "written to."
        ) from error


@contextmanager
def _writing(file: IO[bytes], suffix: str) -> Iterator[Callable[[Any], None]]:
    writer: Any = None

    def write(table: Any) -> None:
        nonlocal writer
        if writer is None and suffix == ".parquet":
            writer = pq.ParquetWriter(file, table.schema)
        elif writer is None:
            options = arrow_csv.WriteOptions(delimiter=_DELIMITERS[suffix])
            writer = arrow_csv.CSVWriter(file, table.schema, write_options=options)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
