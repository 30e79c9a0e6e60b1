"""The rows of a file, what a reader is asked for, and names and cells as messages show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "KINDS",
    "Kind",
    "Request",
    "Rows",
    "Table",
    "check_cells",
    "is_unicode",
    "quoted",
    "refuse_duplicates",
    "shown",
    "split_frame",
]

Kind: TypeAlias = Literal["number", "date", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Rows: TypeAlias = "pd.DataFrame | sparse.csr_matrix | NDArray[np.float32]"


@dataclass(frozen=True)
class Table:
    """Rows of a file.

    Attributes
    ----------
    rows
        A DataFrame; CSR of float32 for svmlight and sparse archives; an array of float32 for images.
    labels
        The label of each row, or None.
    ids
        The identifier of each row, or None.
    start
        The number of rows that stand before these in the file.
    label
        The name of the label's column as the file spells it.
    notes
        What was left out.
    """

    rows: Rows
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    start: int = 0
    label: str | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def columns(self) -> list[str]:
        """Names of the columns; those of a matrix are their indices."""
        if isinstance(self.rows, np.ndarray) or sparse.issparse(self.rows):
            return [str(column) for column in range(self.rows.shape[1])]
        return [str(name) for name in self.rows.columns]


@dataclass(frozen=True)
class Request:
    """What a reader is asked for; `rows` of None asks for all of them at once."""

    rows: int | None = None
    label: str | None = None
    label_required: bool = True
    id_column: str | None = None
    columns: Sequence[str] | None = None
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    def resolve(self, names: Sequence[str], path: Path | str) -> Request:
        """Return the request with the columns to read of those a file has, or name what it lacks.

        A label that is required is found in another case too: "Churn" is "churn" where only that is there.
        """
        refuse_duplicates(names, path)
        known, label = set(names), self.label
        if label is not None and label not in known and self.label_required:
            alike = [name for name in names if name.casefold() == label.casefold()]
            label = alike[0] if len(alike) == 1 else label
        for name, role in ((label, "label"), (self.id_column, "id")):
            if name is not None and name not in known and (role == "id" or self.label_required):
                raise InvalidInputError(f"{path} has no {role} column {name!r}; its columns are {quoted(names)}.")
        if self.columns is None:
            return replace(self, label=label, columns=list(names))
        absent = [name for name in self.columns if name not in known]
        if absent:
            raise InvalidInputError(
                f"{path} lacks {len(absent)} of {len(self.columns)} columns the model was trained with: "
                f"{quoted(absent)}; add them."
            )
        apart = [name for name in (label, self.id_column) if name in known]
        return replace(self, label=label, columns=list(dict.fromkeys([*self.columns, *apart])))

    @property
    def wanted(self) -> list[str]:
        """The columns to read, once they are resolved."""
        return list(self.columns or ())

    def parts(self, count: int) -> Iterator[slice]:
        """Yield slices of as many of `count` rows as are asked for at once."""
        step = self.rows or max(count, 1)
        return (slice(start, min(start + step, count)) for start in range(0, count, step))

    def kind(self, name: str) -> Kind | None:
        """What a column of text is to be read as; labels and identifiers stay as they are written."""
        return "text" if name in (self.label, self.id_column) else self.kinds.get(name)


def split_frame(frame: pd.DataFrame, request: Request, start: int) -> Table:
    """Set labels and identifiers apart from the rest."""
    labels, ids = (
        frame[name].to_numpy() if name is not None and name in frame.columns else None
        for name in (request.label, request.id_column)
    )
    apart = {request.label, request.id_column}.intersection(frame.columns)
    return Table(frame.drop(columns=list(apart)) if apart else frame, labels, ids, start, request.label)


def check_cells(frame: pd.DataFrame, where: object) -> None:
    """Refuse a column of lists, bytes or the like: one that holds no numbers, dates or text.

    Examples
    --------
    >>> import pandas as pd
    >>> check_cells(pd.DataFrame({"x": [None, [1, 2]]}), "a.json")
    Traceback (most recent call last):
    ...
    momentalign.errors.InvalidInputError: a.json: column 'x' holds values of type list, which are no numbers, dates or \
text; convert or remove it.
    """
    import pandas as pd

    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind not in "cO":
            continue
        if isinstance(column.dtype, pd.StringDtype) and column.dtype.storage == "pyarrow":
            _check_arrow_text(column, where)
            continue
        cells = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
        for cell in cells.tolist():
            if isinstance(cell, str) and not is_unicode(cell):
                raise InvalidInputError(
                    f"{where}: column {name!r:.80} holds {shown(cell)}, which is not valid Unicode; correct it."
                )
            if isinstance(cell, bytes | complex) or not pd.api.types.is_scalar(cell):
                raise InvalidInputError(
                    f"{where}: column {name!r:.80} holds values of type {type(cell).__name__}, which are no numbers, "
                    "dates or text; convert or remove it."
                )


def _check_arrow_text(column: pd.Series[Any], where: object) -> None:
    import pyarrow as pa

    try:
        pa.chunked_array(column.array.__arrow_array__()).validate(full=True)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"{where}: column {column.name!r:.80} is damaged ({error!s:.200}); read it again."
        ) from error


def is_unicode(text: str) -> bool:
    """Whether a text can be written to a file: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def quoted(names: Sequence[Any], most: int = 10) -> str:
    """Names as a message lists them.

    Examples
    --------
    >>> quoted(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    listed = ", ".join(map(shown, names[:most]))
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def shown(cell: Any) -> str:
    """A cell as a message shows it: short, a number as a number.

    Examples
    --------
    >>> shown(np.float64(1.5)), shown("x" * 99)
    ('1.5', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
    """
    plain = cell.item() if isinstance(cell, np.generic) else cell
    return f"{plain!r:.40}"


def refuse_duplicates(names: Sequence[str], where: object) -> None:
    """Name the columns that appear more than once."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(f"{where} has more than one column named {quoted(twice)}; give each its own name.")
