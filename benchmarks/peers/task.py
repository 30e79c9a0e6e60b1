"""The task as a file: CSR parts of the labelled source, the unlabelled target, and target rows to be tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

TRAINING_ROWS = 2000


class PeerTask(NamedTuple):
    """Books to kitchen: rows are CSR matrices of float32, labels are 0 and 1."""

    source: sparse.csr_matrix
    labels: NDArray[np.int64]
    target: sparse.csr_matrix
    test: sparse.csr_matrix
    test_labels: NDArray[np.int64]


def write_task(path: Path) -> None:
    """Write the reviews' first 2,000 books and kitchen articles, and the other kitchen articles to test on."""
    from momentalign.paper.problems import load_reviews

    reviews = load_reviews()
    books, kitchen = reviews.rows["books"][:TRAINING_ROWS], reviews.rows["kitchen"]
    rows = {"source": books, "target": kitchen[:TRAINING_ROWS], "test": kitchen[TRAINING_ROWS:]}
    parts: dict[str, Any] = {}
    for name, matrix in rows.items():
        parts |= {f"{name}_data": matrix.data, f"{name}_indices": matrix.indices, f"{name}_indptr": matrix.indptr}
    parts["labels"] = reviews.labels["books"][:TRAINING_ROWS].astype(np.int64)
    parts["test_labels"] = reviews.labels["kitchen"][TRAINING_ROWS:].astype(np.int64)
    np.savez(path, columns=np.array(books.shape[1]), **parts)


def read_task(path: Path) -> PeerTask:
    """Read what `write_task` wrote; needs numpy and scipy alone, so that every peer's environment can."""
    with np.load(path, allow_pickle=False) as arrays:

        def rows(name: str) -> sparse.csr_matrix:
            parts = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
            return sparse.csr_matrix(parts, shape=(len(parts[2]) - 1, int(arrays["columns"])))

        return PeerTask(rows("source"), arrays["labels"], rows("target"), rows("test"), arrays["test_labels"])
