"""A table of what is measured, bounded, guessed or unknown about the error on a target without labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from momentalign.errors import InvalidInputError

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["KNOWN_PART", "BoundReport", "BoundRow", "Kind"]

Kind: TypeAlias = Literal["measured", "bound", "heuristic", "unknown"]

KNOWN_PART = "known part of Theorem 1"
"""Name of the row with the sum of what Theorem 1 lets be known."""


class BoundRow(NamedTuple):
    """One quantity: its value, None where it is unknown, and what kind of statement that is."""

    name: str
    symbol: str
    value: float | None
    kind: Kind
    words: str


@dataclass(frozen=True)
class BoundReport:
    """What can be said about the target error, row by row.

    Attributes
    ----------
    rows
        Each with ``name``, ``symbol``, ``value``, ``kind`` and ``words``. A value is *measured* on the given rows, a
        *bound* that holds for what its words name, a *heuristic* that rests on an assumption which may fail, or
        *unknown*.
    confidence
        With this probability all bounds that speak of whole domains hold together.
    """

    rows: tuple[BoundRow, ...]
    confidence: float

    def __iter__(self) -> Iterator[BoundRow]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> BoundRow:
        """Return the row of this name."""
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise InvalidInputError(f"there is no row {name!r}; the rows are {names}.")

    @property
    def conclusion(self) -> str:
        """One sentence: what Theorem 1 gives here, and what is missing."""
        value = self[KNOWN_PART].value or 0.0
        worth = ", not below 1 and so vacuous" if value >= 1.0 else ""
        return (
            f"The known part of Theorem 1 is {value:.2f}{worth}; it is no bound on the target error, since the "
            "labelling disagreement is missing, which cannot be known without target labels."
        )

    def __str__(self) -> str:
        cells = [(row.name, _figure(row.value), row.kind, row.words) for row in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        lines = [
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {kind:<{widths[2]}}  {words}"
            for name, value, kind, words in cells
        ]
        return "\n".join([*lines, self.conclusion])

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("to_frame() needs pandas: pip install momentalign[tables]") from error
        return pandas.DataFrame(list(self.rows), columns=list(BoundRow._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON knows; None is what is unknown."""
        return {
            "confidence": self.confidence,
            "conclusion": self.conclusion,
            "rows": [row._asdict() for row in self.rows],
        }


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"
