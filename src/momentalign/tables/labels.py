"""Labels of a table: classes as they are written, or numbers for regression; none missing, not all the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError
from momentalign.tables.table import shown

__all__ = ["LabelType", "check_labels", "convert_labels", "joint_label_type", "label_type"]

LabelType: TypeAlias = Literal["whole", "float", "text"]
# From the narrowest to the widest: a column has the widest type of its parts.
_TYPES: tuple[LabelType, ...] = ("whole", "float", "text")
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
# 007 is a name, not a number.
_PADDED = re.compile(r"[+-]?0\d.*")


def check_labels(labels: NDArray[Any], name: str, where: object, *, regression: bool = False) -> NDArray[Any]:
    """Return labels that can be learned from, or say which rows cannot.

    Parameters
    ----------
    labels
        The cells of the label column.
    name
        Name of the column.
    where
        The file, for errors.
    regression
        Whether the labels must be numbers: float64. Classes stay as they are.

    Examples
    --------
    >>> check_labels(np.array([2, 10, 2]), "y", "a.csv").tolist()
    [2, 10, 2]
    >>> check_labels(np.array(["2.5", "1"]), "y", "a.csv", regression=True).tolist()
    [2.5, 1.0]
    """
    absent = np.flatnonzero(pd.isna(labels))
    if len(absent):
        rows = ", ".join(str(row + 1) for row in absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise InvalidInputError(
            f"{where}: label column {name!r} is empty in {len(absent)} rows ({rows}); fill them in or remove the rows."
        )
    if regression:
        values = np.asarray(pd.to_numeric(pd.Series(labels), errors="coerce"), dtype=np.float64)
        wrong = ~np.isfinite(values)
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidInputError(
                f"{where}: label column {name!r}, row {row + 1} holds {shown(labels[row])}, which is not a number to "
                "predict; correct it or train a classifier."
            )
        labels = values
    if len(labels) and (labels == labels[0]).all():
        raise InvalidInputError(
            f"{where}: label column {name!r} holds {shown(labels[0])} in every row; give a column with at least two "
            "values."
        )
    return labels


def label_type(labels: NDArray[Any]) -> LabelType | None:
    """Return what labels written as text can be read as; None for labels that are numbers already."""
    if labels.dtype.kind in "biuf":
        return None
    codes, seen = pd.factorize(labels)
    texts = [str(text) for text in seen]
    if (codes < 0).any() or any(_PADDED.fullmatch(text) for text in texts if "." not in text):
        return "text"
    if all(_WHOLE.fullmatch(text) and len(text) < 19 for text in texts):
        return "whole"
    try:
        np.array([float(text) for text in texts])
    except ValueError:
        return "text"
    return "float"


def joint_label_type(types: Sequence[LabelType | None]) -> LabelType | None:
    """Return the type of a column whose parts have these types: the widest of them.

    Examples
    --------
    >>> joint_label_type(["whole", "text", "float"])
    'text'
    """
    return max((found for found in types if found is not None), key=_TYPES.index, default=None)


def convert_labels(labels: NDArray[Any], found: LabelType | None) -> NDArray[Any]:
    """Return labels written as text as what they are; labels that are numbers already stay as they are."""
    if found is None or labels.dtype.kind in "biuf":
        return labels
    if found == "text":
        return labels.astype(object)
    codes, seen = pd.factorize(labels)
    if found == "whole":
        return np.array([int(text) for text in seen], dtype=np.int64)[codes]
    return np.array([float(text) for text in seen])[codes]
