"""Labels of a file: classes as they are written, or numbers; none missing, not all the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.data.tables.table import shown
from momentalign.errors import InvalidInputError

__all__ = ["LabelKind", "check_labels"]

LabelKind: TypeAlias = Literal["classes", "numbers"]
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
# 007 is a name.
_PADDED = re.compile(r"[+-]?0\d.*")


def check_labels(labels: NDArray[Any], name: str, path: Path, *, kind: LabelKind = "classes") -> NDArray[Any]:
    """Return labels that can be learned from, or say which rows are in the way.

    Parameters
    ----------
    labels
        The cells of the label column.
    name
        Name of the column.
    path
        The file, for errors.
    kind
        ``"classes"``: strings or numbers, as they are written; ``"numbers"``: float64.

    Examples
    --------
    >>> check_labels(np.array(["2", "10", "2"], dtype=object), "y", Path("a.csv")).tolist()
    [2, 10, 2]
    >>> check_labels(np.array(["cat", "dog"], dtype=object), "y", Path("a.csv")).tolist()
    ['cat', 'dog']
    """
    import pandas as pd

    if kind not in ("classes", "numbers"):
        raise InvalidInputError(f'label_kind must be "classes" or "numbers", got {kind!r}.')
    absent = np.flatnonzero(pd.isna(labels))
    if len(absent):
        rows = ", ".join(str(row + 1) for row in absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise InvalidInputError(
            f"{path}: label column {name!r} is empty in {len(absent)} rows ({rows}); fill them in or remove the rows."
        )
    values = read_labels(labels)
    if kind == "numbers":
        values = _numbers(values, name, path)
    if len(labels) and (values == values[0]).all():
        raise InvalidInputError(
            f"{path}: label column {name!r} holds {shown(values[0])} in every row; give a column with at "
            "least two values."
        )
    return values


def read_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels that were read as text as whole numbers or numbers where all are, else as they are."""
    import pandas as pd

    if labels.dtype.kind in "biuf":
        return labels
    codes, seen = pd.factorize(labels)
    words = [str(word) for word in seen]
    if (codes < 0).any() or any(_PADDED.fullmatch(word) for word in words if "." not in word):
        return labels.astype(object)
    if all(_WHOLE.fullmatch(word) and len(word) < 19 for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)[codes]
    try:
        return np.array([float(word) for word in words])[codes]
    except ValueError:
        return np.array(words, dtype=object)[codes]


def _numbers(labels: NDArray[Any], name: str, path: Path) -> NDArray[np.float64]:
    import pandas as pd

    values = np.asarray(pd.to_numeric(pd.Series(labels), errors="coerce"), dtype=np.float64)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"{path}: label column {name!r}, row {row + 1} holds {shown(labels[row])}, which is not a number to "
            "predict; correct it or train a classifier."
        )
    return values
