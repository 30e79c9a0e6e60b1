"""Tables of a database, by SQLAlchemy: ``sqlite:///shop.db#customers``, or a query in place of the table's name.

What stands before the # is SQLAlchemy's URL, of any database it has a driver for. Messages never show its password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import pandas as pd

from momentalign.errors import DataNotFoundError, InvalidInputError, MissingExtraError
from momentalign.tables.opening import one_line
from momentalign.tables.table import Request, Table, check_cells, quoted, split_frame

__all__ = ["is_database", "read_database", "without_password"]

_ADDRESS = re.compile(r"[a-z][a-z0-9]*(\+[a-z0-9_]+)?://")
_QUERY = re.compile(r"\s*(select|with)\s", re.IGNORECASE)


def is_database(data: Any) -> TypeGuard[str]:
    """Whether data are the address of a table of a database.

    Examples
    --------
    >>> is_database("sqlite:///shop.db#customers"), is_database("customers.csv")
    (True, False)
    """
    return isinstance(data, str) and _ADDRESS.match(data) is not None


def without_password(address: str) -> str:
    """Return an address as messages and files may show it.

    Examples
    --------
    >>> without_password("postgresql://me:secret@host/shop#customers")
    'postgresql://me:***@host/shop#customers'
    """
    hidden = re.sub(r"^([^:]+://[^:/@]*):.*@", r"\1:***@", address)
    return re.sub(r"([?&](?:password|passwd|pwd|token)=)[^&#]*", r"\1***", hidden, flags=re.IGNORECASE)


def read_database(address: str, request: Request) -> Iterator[Table]:
    """Yield the rows of a table, or of what a query selects, in the order in which the database gives them."""
    url, _, selection = address.partition("#")
    where = without_password(address)
    with _connected(url, where) as connection:
        statement = _statement(connection, selection, where)
        result = connection.execution_options(stream_results=True).execute(statement)
        names = [str(name) for name in result.keys()]  # noqa: SIM118  (a result is no dictionary)
        start = 0
        request = request.resolve(names, where)
        while rows := result.fetchmany(request.rows) if request.rows else result.fetchall():
            frame = pd.DataFrame([tuple(row) for row in rows], columns=names)[list(request.columns or ())]
            check_cells(frame, where)
            yield split_frame(frame, request, start)
            start += len(frame)


@contextmanager
def _connected(url: str, where: str) -> Iterator[Any]:
    """Connect to a database; what it or its driver complains about is one sentence."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingExtraError.of("databases are read by SQLAlchemy", "sql") from error
    try:
        parsed = sqlalchemy.make_url(url)
        if parsed.drivername.startswith("sqlite") and parsed.database and not Path(parsed.database).is_file():
            raise DataNotFoundError(f"{parsed.database} is not there; give the path of a database.")
        engine = sqlalchemy.create_engine(parsed)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"{where} needs the driver {error.name}, which is not installed; install it, or name another one in the "
            "address."
        ) from error
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise InvalidInputError(
            f"{where} is no address of a database ({without_password(one_line(error))}); write it as "
            "sqlite:///FILE#TABLE or postgresql://USER:PASSWORD@HOST/DATABASE#TABLE."
        ) from error
    try:
        with engine.connect() as connection:
            yield connection
    except sqlalchemy.exc.SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise InvalidInputError(f"{where} cannot be read ({one_line(cause)}); correct the address.") from error
    finally:
        engine.dispose()


def _statement(connection: Any, selection: str, where: str) -> Any:
    """Return the query, or the one that selects a whole table."""
    import sqlalchemy

    if _QUERY.match(selection):
        return sqlalchemy.text(selection)
    schema, _, name = selection.rpartition(".")
    inspector = sqlalchemy.inspect(connection)
    known = [*inspector.get_table_names(schema or None), *inspector.get_view_names(schema or None)]
    if name not in known:
        raise InvalidInputError(f"{where} names no table of the database; write one after a #: {quoted(known)}.")
    table = sqlalchemy.Table(name, sqlalchemy.MetaData(), schema=schema or None, autoload_with=connection)
    return sqlalchemy.select(table)
