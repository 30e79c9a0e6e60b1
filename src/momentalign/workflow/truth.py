"""Labels of the target, where there are any: for evaluation only, compared with the predictions of a finished model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.data.tables.table import Table
from momentalign.errors import InvalidInputError

__all__ = ["Truth", "read_truth"]


@dataclass(frozen=True)
class Truth:
    """The target rows that have a label, its class (-1 where the source has no such), and the names of classes."""

    label: str
    known: NDArray[np.intp]
    codes: NDArray[np.intp]
    names: list[str]
    unseen: list[str]

    def accuracy(self, predicted: NDArray[np.intp]) -> float:
        """The part of the labelled target rows that is predicted right."""
        return float((predicted[self.known] == self.codes).mean())

    def evaluation(self, predicted: NDArray[np.intp]) -> dict[str, Any]:
        """Accuracy and confusion matrix (true classes, predicted classes); a last row for what the source lacks."""
        count = len(self.names)
        confusion = np.zeros((count + bool(self.unseen), count), dtype=int)
        np.add.at(confusion, (self.codes, predicted[self.known]), 1)
        return {
            "label": self.label,
            "rows": len(self.known),
            "accuracy": self.accuracy(predicted),
            "confusion": confusion.tolist(),
            "unseen": self.unseen,
        }


def read_truth(target: Table, label: str, classes: NDArray[Any]) -> Truth:
    """Return the labels of the target as classes of the source.

    Examples
    --------
    >>> labels = np.array(["cat", None, "cow"], dtype=object)
    >>> truth = read_truth(Table(np.zeros((3, 1), np.float32), labels), "pet", np.array(["cat", "dog"]))
    >>> truth.known.tolist(), truth.codes.tolist(), truth.unseen
    ([0, 2], [0, -1], ['cow'])
    """
    if target.labels is None:
        raise InvalidInputError(f"the target has no labels {label!r}; leave target_label out.")
    # A number is itself whether a file holds it as whole or not.
    places = {name: place for place, name in enumerate(classes.tolist())}
    values = target.labels.tolist()
    known = np.array([place for place, value in enumerate(values) if value is not None and value == value], dtype=int)
    if not len(known):
        raise InvalidInputError(f"target_label={label!r} is empty in every row; leave it out.")
    codes = np.array([places.get(values[place], -1) for place in known], dtype=int)
    unseen = sorted({str(values[place]) for place, code in zip(known, codes, strict=True) if code < 0})
    return Truth(label, known, codes, [str(name) for name in places], unseen)
