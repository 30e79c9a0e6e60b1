"""Chunks as they reach an estimator: any iterable that can be read again, checked in every reading.

A checksum tells other rows, or the same in another order, from those of the first reading. Rows are held out by lot,
each by its number, in bounded memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, validate_data

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.domains import Labels, as_float32, refuse_missing, stacked_rows
from momentalign.networks.shallow import Matrix
from momentalign.training.chunked import ChunkedTask, Labelled
from momentalign.training.config import FEWEST_ROWS, Task
from momentalign.validation import naming

__all__ = ["HeldOut", "checksums", "lots", "read_chunked_domains"]


def checksums(rows: Any, labels: NDArray[Any] | None, before: Mapping[str, int]) -> dict[str, int]:
    """Return the CRC-32 of all rows and labels so far, the same however they are cut into chunks.

    The code is that of Peterson and Brown (Cyclic codes for error detection, Proceedings of the IRE 49, 1961); other
    rows have the same one by a chance of 2^-32. It is no protection against forgery.

    Examples
    --------
    >>> rows, labels = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    >>> whole = checksums(rows, labels, {})
    >>> whole == checksums(rows[1:], labels[1:], checksums(rows[:1], labels[:1], {}))
    True
    >>> whole == checksums(rows[::-1], labels, {})
    False
    """
    contents: dict[str, Any] = {"rows": rows}
    if hasattr(rows, "indptr"):
        # Integers of one width: scipy chooses it by the size of a chunk.
        columns, lengths = (part.astype(np.int32, copy=False) for part in (rows.indices, np.diff(rows.indptr)))
        contents = {"values": rows.data[: rows.nnz], "columns": columns[: rows.nnz], "lengths": lengths}
    if labels is not None and labels.dtype.kind in "biuf":
        contents["labels"] = labels.astype(np.float64)
    elif labels is not None:
        # As bytes: the type that numpy gives to text differs from chunk to chunk, by the longest name.
        text = "\0".join([*map(str, labels.tolist()), ""])
        contents["labels"] = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)
    return {**before, **{k: zlib.crc32(np.ascontiguousarray(v).data, before.get(k, 0)) for k, v in contents.items()}}


def lots(start: int, count: int, seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each of `count` rows from number `start` on, the same whoever asks.

    The finaliser of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014)
    on the row's number times its golden increment: lots of neighbours have nothing in common, so that no period of the
    file, such as labels that alternate, shows in the rows that are held out.

    Examples
    --------
    >>> bool((lots(0, 10, seed=1)[4:] == lots(4, 6, seed=1)).all()), round(float(lots(0, 10_000, seed=1).mean()), 2)
    (True, 0.5)
    """
    numbers = np.arange(start, start + count, dtype=np.uint64) + np.uint64(1)
    mixed = (numbers + np.uint64(seed % 2**32) * np.uint64(2**32)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


class HeldOut:
    """Collects the rows of a stream whose lot is below a share, which is halved whenever they become too many.

    Parameters
    ----------
    share
        The part of all rows to hold out.
    seed
        Another seed holds out other rows.
    most
        The most rows to hold.

    Examples
    --------
    >>> held = HeldOut(share=0.5, seed=0, most=100)
    >>> for start in range(0, 1000, 50):
    ...     held.add(start, np.arange(start, start + 50)[:, None], np.zeros(50))
    >>> held.share, len(held) <= 100
    (0.0625, True)
    """

    def __init__(self, share: float, seed: int, most: int) -> None:
        self.share, self._seed, self._most = share, seed, most
        # Lots, rows and labels of each chunk.
        self._parts: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return sum(len(part[0]) for part in self._parts)

    def mask(self, start: int, count: int) -> NDArray[np.bool_]:
        """Return which rows from number `start` on are held out."""
        return lots(start, count, self._seed) < self.share

    def add(self, start: int, rows: Any, labels: NDArray[Any]) -> None:
        """Look at the next rows of the stream, of which the first has the number `start`."""
        drawn = lots(start, len(labels), self._seed)
        self._parts.append(tuple(values[drawn < self.share] for values in (drawn, rows, labels)))
        while len(self) > self._most:
            self.lower(self.share / 2.0)

    def lower(self, share: float) -> None:
        """Hold out a smaller share of all rows; 0 holds out nothing."""
        self.share = share
        self._parts = [tuple(values[part[0] < share] for values in part) for part in self._parts]

    def rows(self) -> tuple[Any, NDArray[Any]]:
        """Return rows and labels in the order of the stream; at least one part was added."""
        _, rows, labels = zip(*self._parts, strict=True)
        return stacked_rows(rows), np.concatenate(labels)


def read_chunked_domains(
    estimator: BaseEstimator, source: Any, target: Any, labels: Labels, *, held_out: HeldOut
) -> ChunkedTask:
    """Read both domains once, check all they hold, and return what training reads again in every epoch.

    Parameters
    ----------
    estimator
        Gets to know the number and the names of the features.
    source, target
        Iterables of chunks (X, y) and of chunks X that start from the first chunk whenever they are asked; the target
        may be None.
    labels
        Learns what y holds.
    held_out
        Collects rows of the source; it is emptied where these or the others would be fewer than two or than the
        classes.
    """
    source_rows = _Domain(estimator, source, "source", labels)
    target_rows = None if target is None else _Domain(estimator, target, "target", None)
    for chunk in source_rows.read():
        with naming(chunk.where, ours=True):
            labels.note(chunk.labels)
        held_out.add(chunk.start, chunk.rows, chunk.labels)
    with naming("source", ours=True):
        labels.finish()
    if target_rows is not None:
        for _ in target_rows.read():
            pass  # Read for the checks and the number of rows.
    if min(len(held_out), source_rows.rows - len(held_out)) < labels.fewest:
        held_out.lower(0.0)
    is_sparse = source_rows.is_sparse or (target_rows is not None and target_rows.is_sparse)

    def of_kind(rows: Matrix) -> Matrix:
        """Where one chunk of one domain is sparse all others are made so."""
        return sparse.csr_matrix(rows) if is_sparse and not sparse.issparse(rows) else rows

    def training_chunks() -> Iterator[Labelled]:
        for chunk in source_rows.read():
            with naming(chunk.where, ours=True):
                codes = labels.coded(chunk.labels)
            kept = ~held_out.mask(chunk.start, len(codes)) if held_out.share else slice(None)
            yield Labelled(of_kind(chunk.rows)[kept], codes[kept])

    def target_chunks() -> Iterator[Labelled]:
        assert target_rows is not None  # noqa: S101
        for chunk in target_rows.read():
            yield Labelled(of_kind(chunk.rows), None)

    rows, raw = held_out.rows()
    codes, nothing = labels.coded(raw), of_kind(np.zeros((0, estimator.n_features_in_), np.float32))
    empty = Task(nothing, codes[:0], None if target is None else nothing, labels.n_outputs)
    if len(held_out):
        empty = replace(empty, validation=of_kind(rows), validation_labels=codes)
    others = (None, 0) if target_rows is None else (target_chunks, target_rows.rows)
    return ChunkedTask(training_chunks, others[0], source_rows.rows - len(held_out), others[1], empty)


class _Chunk(NamedTuple):
    """A chunk that was checked; `start` rows stand before it."""

    where: str
    start: int
    rows: Matrix
    labels: Any
    """Those of the target are None."""


class _Domain:
    """One domain in chunks; which rows it has is known from the first reading on."""

    def __init__(self, estimator: BaseEstimator, chunks: Any, name: str, labels: Labels | None) -> None:
        _refuse_what_ends(chunks, name, "X" if labels is None else "(X, y)")
        self._estimator, self._chunks, self._name, self._labels = estimator, chunks, name, labels
        self.rows = 0
        self.is_sparse = False
        self._checksums: dict[str, int] | None = None

    def read(self) -> Iterator[_Chunk]:
        """Yield all chunks that have rows, checked; a reading that finds other rows than the first is refused."""
        start, found = 0, dict[str, int]()
        for number, content in enumerate(self._chunks, start=1):
            chunk = self._checked(content, f"{self._name}, chunk {number}", start)
            if chunk.rows.shape[0]:
                self.is_sparse |= sparse.issparse(chunk.rows)
                start += chunk.rows.shape[0]
                found = checksums(chunk.rows, chunk.labels, found)
                yield chunk
        if start < FEWEST_ROWS:
            raise InvalidInputError(f"{self._name} has {start} rows; a distribution needs at least {FEWEST_ROWS}.")
        # Rows are held out by their number: those of another order would be trained on and held out.
        if self._checksums not in (None, found):
            now = f"has {start} now" if start != self.rows else "has others now, or the same in another order"
            raise InvalidInputError(
                f"{self._name} had {self.rows} rows when it was first read and {now}; give chunks that are the same "
                "whenever they are read."
            )
        self.rows, self._checksums = start, found

    def _checked(self, content: Any, where: str, start: int) -> _Chunk:
        if self._labels is None:
            return _Chunk(where, start, self._rows(content, where, start), None)
        if not isinstance(content, tuple | list) or len(content) != 2:
            raise InvalidTypeError(f"{where} must be a pair (X, y), got {type(content).__name__}.")
        rows = self._rows(content[0], where, start)
        with naming(where, ours=True):
            labels = np.zeros(0)
            if rows.shape[0]:
                labels = self._labels.read(content[1])
                refuse_missing(labels)
            check_consistent_length(rows, labels)
        return _Chunk(where, start, rows, labels)

    def _rows(self, X: Any, where: str, start: int) -> Matrix:
        if isinstance(X, tuple):
            raise InvalidTypeError(f"{where}: X must be an array, a DataFrame or a CSR matrix, got a tuple.")
        is_first = self._labels is not None and start == 0 and not self.rows
        with naming(where, ours=True):
            rows = validate_data(
                self._estimator,
                X,
                reset=is_first,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
                ensure_min_samples=0,
            )
            _refuse_gaps(rows, start)
            narrow = as_float32(rows, "X")
            # Of a DataFrame they stand column by column; rows are what is cut from them.
            return narrow if sparse.issparse(narrow) else np.ascontiguousarray(narrow)


def _refuse_what_ends(chunks: Any, name: str, content: str) -> None:
    remedy = f"give a list of {content}, or an object whose __iter__ yields them"
    if not isinstance(chunks, Iterable) or isinstance(chunks, str | bytes | dict):
        raise InvalidTypeError(f"{name} must yield chunks {content}, got {type(chunks).__name__}; {remedy}.")
    if iter(chunks) is chunks:
        raise InvalidTypeError(
            f"{name} is a {type(chunks).__name__}, which can be read once only, every epoch reads it again; {remedy}."
        )


def _refuse_gaps(rows: Matrix, start: int) -> None:
    """Name the first value that is not finite."""
    is_sparse = hasattr(rows, "tocsr")
    finite = np.isfinite(rows.data if is_sparse else rows)
    if finite.all():
        return
    index = int(finite.argmin())
    row, column = divmod(index, rows.shape[1])
    if is_sparse:
        row, column = int((rows.indptr <= index).sum()) - 1, int(rows.indices[index])
    raise InvalidInputError(
        f"row {row + 1} (row {start + row + 1} of all) holds {rows[row, column]} in column {column + 1}; fill it in or "
        "leave the row out."
    )
