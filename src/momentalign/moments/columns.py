"""Names of columns: where two samples have them, moments are compared of columns with the same name only.

Frames (pandas, Dask) and all of PyArrow name their columns, arrays and tensors do not. As for estimators, names are
strings: a frame whose columns are numbered has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from momentalign.errors import InvalidInputError
from momentalign.moments.chunks import is_arrow

__all__ = ["column_names", "refuse_differing_names", "refuse_other_names"]


def column_names(data: Any) -> tuple[str, ...] | None:
    """Return the names of the columns, None where there are none; no values are read.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"a": [0.0], "b": [1.0]}))
    ('a', 'b')
    >>> column_names(pd.DataFrame([[0.0, 1.0]]))
    """
    names = _arrow_names(data) if is_arrow(data) else getattr(data, "columns", ())
    found = tuple(names) if hasattr(names, "__iter__") else ()
    return found if found and all(isinstance(name, str) for name in found) else None


def _arrow_names(data: Any) -> Any:
    # A scanner may leave out columns of its data.
    schema = getattr(data, "projected_schema", None) or getattr(data, "schema", None)
    return getattr(schema, "names", ())


def refuse_differing_names(samples: Mapping[str, Any]) -> None:
    """Raise if two samples, given by what an error calls them, name their columns and do not name them alike."""
    named = {name: names for name, data in samples.items() if (names := column_names(data)) is not None}
    first = next(iter(named), "")
    for name, names in named.items():
        refuse_other_names(names, name, named[first], first)


def refuse_other_names(names: Sequence[str] | None, name: str, expected: Sequence[str] | None, other: str) -> None:
    """Raise if the columns of `name` are not those of `other`; whether they are as many is for others to see.

    Examples
    --------
    >>> refuse_other_names(("a", "b"), "target", ("a", "b"), "source")
    >>> try:
    ...     refuse_other_names(("b", "a"), "target", ("a", "b"), "source")
    ... except InvalidInputError as error:
    ...     print(error)
    target has the column 'b' where source has 'a'; give both the same columns in the same order.
    """
    if names is None or expected is None or len(names) != len(expected):
        return
    for given, wanted in zip(names, expected, strict=True):
        if given != wanted:
            raise InvalidInputError(
                f"{name} has the column {given!r} where {other} has {wanted!r}; give both the same columns in the same "
                "order."
            )
