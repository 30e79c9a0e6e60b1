"""Choosing how each column becomes numbers, from both domains together."""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from momentalign.data.tables.encoders import (
    CategoryColumn,
    DateColumn,
    Encoder,
    NumberColumn,
    elapsed_days,
    finite_or_missing,
)
from momentalign.data.tables.kinds import kind_of
from momentalign.data.tables.table import quoted, shown
from momentalign.errors import InvalidInputError, MomentAlignWarning

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Choices", "choose_encoders", "shared_columns"]

# In a table of fewer rows, texts that all differ may still be categories.
_FEWEST_IDS = 20


@dataclass
class Choices:
    """Settings of the choice, and sentences about what was decided."""

    scale: bool
    max_categories: int
    notes: list[str] = field(default_factory=list)

    def warn(self, note: str) -> None:
        """Remember a decision that loses something, and say it."""
        self.notes.append(note)
        warnings.warn(note, MomentAlignWarning, stacklevel=6)


def shared_columns(source: pd.DataFrame, target: pd.DataFrame, choices: Choices, *, strict: bool) -> list[str]:
    """Return the columns that both domains have, in the order of the source."""
    ours, theirs = list(source.columns), list(target.columns)
    shared = source.columns.intersection(target.columns, sort=False).tolist()
    missing = {"source": list(target.columns.difference(shared)), "target": list(source.columns.difference(shared))}
    alone = [f"the {domain} lacks {quoted(names)}" for domain, names in missing.items() if names]
    if not shared:
        raise InvalidInputError(
            f"source and target have no column in common: {quoted(ours)} against {quoted(theirs)}; name them alike."
        )
    if alone and strict:
        raise InvalidInputError(f"the domains have different columns: {' and '.join(alone)}; give both the same.")
    if alone:
        choices.warn(f"columns that one domain lacks are left out: {' and '.join(alone)}.")
    return shared


def choose_encoders(domains: list[pd.DataFrame], names: list[str], choices: Choices) -> list[Encoder]:
    """Return an encoder for each column that varies; `domains` is the source and, where there is one, the target."""
    encoders: list[Encoder] = []
    for name in names:
        columns = [frame[name] for frame in domains]
        encoder = _choose(name, columns, choices)
        if encoder is not None:
            encoders.append(encoder)
    return encoders


def _choose(name: str, columns: list[pd.Series[Any]], choices: Choices) -> Encoder | None:
    if _is_constant(columns):
        choices.notes.append(f"column {name!r} is the same in every row of both domains and is left out.")
        return None
    filled = [column for column in columns if column.notna().any()]
    kinds = {kind_of(column) for column in filled}
    if len(kinds) > 1:
        _refuse_kinds(name, columns)
    indicator = any(bool(column.isna().any()) for column in columns)
    match kinds.pop():
        case "number":
            values = [column.to_numpy(dtype=np.float64, na_value=np.nan) for column in filled]
            values = [finite_or_missing(name, part) for part in values]
            return NumberColumn(name, *_statistics(values, choices), indicator=indicator)
        case "date":
            days = [elapsed_days(column) for column in filled]
            hours = any(bool((part % 1 > 0).any()) for part in days)
            return DateColumn(name, *_statistics(days, choices), indicator=indicator, hours=hours)
    return _choose_categories(name, columns, choices, indicator=indicator)


def _is_constant(columns: list[pd.Series[Any]]) -> bool:
    """Whether all cells of all domains are the same, or all are missing."""
    first = columns[0].iloc[0]
    if first is None or first != first:
        return all(bool(column.isna().all()) for column in columns)
    return all(bool((column == first).fillna(False).all()) for column in columns)


def _refuse_kinds(name: str, columns: list[pd.Series[Any]]) -> None:
    described = [f"{kind_of(column)}s ({shown(column[column.notna()].iloc[0])})" for column in columns]
    raise InvalidInputError(
        f"column {name!r} holds {described[0]} in the source and {described[1]} in the target; make its cells alike in "
        "both, or read it as text in both."
    )


def _statistics(domains: list[NDArray[np.float64]], choices: Choices) -> tuple[float, float, float]:
    """Return fill, centre and scale, each domain with the same weight however many rows it has."""
    present = [values[~np.isnan(values)] for values in domains]
    fill = float(np.mean([np.median(part) for part in present]))
    if not choices.scale:
        return fill, 0.0, 1.0
    centre = float(np.mean([part.mean() for part in present]))
    with np.errstate(over="ignore"):
        spread = float(np.sqrt(np.mean([np.square(part - centre).mean() for part in present])))
    # Squares that overflow leave the column as it is; it is refused where it does not fit into float32.
    return fill, centre, spread if spread > 0 and np.isfinite(spread) else 1.0


def _choose_categories(
    name: str, columns: list[pd.Series[Any]], choices: Choices, *, indicator: bool
) -> CategoryColumn | None:
    shares: defaultdict[str, float] = defaultdict(float)
    rows = distinct = 0
    for column in columns:
        counts = column.value_counts()
        rows, distinct = rows + len(column), distinct + len(counts)
        for text, count in counts.items():
            shares[str(text)] += int(count) / len(column)
    if distinct == rows >= _FEWEST_IDS:
        choices.warn(f"column {name!r} holds another text in every row, like a name or number of it, and is left out.")
        return None
    kept = sorted(shares, key=lambda text: (-shares[text], text))[: choices.max_categories]
    if len(kept) < len(shares):
        choices.warn(
            f"column {name!r} has {len(shares)} categories; the {len(kept)} most frequent are kept, the others count "
            "as unknown."
        )
    return CategoryColumn(name, tuple(sorted(kept)), indicator=indicator)
