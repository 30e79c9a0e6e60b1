"""Tables of a real database, SQLite."""

import datetime
import sqlite3
import sys

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.errors import DataNotFoundError, InvalidInputError, MissingExtraError
from momentalign.tables.database import without_password
from momentalign.tables.encoders import kind_of
from momentalign.tables.read import read_chunks, read_table

pytest.importorskip("sqlalchemy")


@pytest.fixture
def shop(tmp_path):
    """The address of a database with two tables of customers."""
    random = np.random.default_rng(0)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        for name, rows, shift in (("last_year", 60, 0.0), ("this_year", 40, 1.0)):
            columns = "id INTEGER, spend REAL, city TEXT, day DATE, churn TEXT"
            connection.execute(f"CREATE TABLE {name} ({columns})")
            for row in range(rows):
                spend = random.normal(shift)
                cells = (row, None if row == 3 else spend, "LW"[row % 2], f"2024-01-{row % 28 + 1:02d}")
                insert = f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)"  # noqa: S608
                connection.execute(insert, (*cells, "ny"[int(spend > shift)]))
        connection.execute("CREATE TABLE files (content BLOB)")
        connection.execute("INSERT INTO files VALUES (x'00ff')")
        connection.execute("CREATE VIEW Linz AS SELECT * FROM last_year WHERE city = 'L'")
    connection.close()
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_a_table_keeps_the_types_of_the_database(shop):
    table = read_table(f"{shop}#last_year", label="churn", id_column="id")
    assert (len(table), table.columns, set(table.labels)) == (60, ["spend", "city", "day"], {"n", "y"})
    assert {name: kind_of(table.rows[name]) for name in table.columns} == {
        "spend": "number", "city": "text", "day": "date"
    }  # fmt: skip
    assert table.rows["day"].iloc[2] == datetime.date(2024, 1, 3)
    assert np.isnan(table.rows["spend"].iloc[3])
    assert table.ids.tolist() == list(range(60))


def test_a_view_and_a_query_are_tables_too(shop):
    view = read_table(f"{shop}#Linz").rows
    query = read_table(f"{shop}#SELECT * FROM last_year WHERE city = 'L' ORDER BY id").rows  # noqa: S608
    assert view["id"].tolist() == query["id"].tolist() == list(range(0, 60, 2))


def test_chunks_are_the_whole(shop):
    chunks = list(read_chunks(f"{shop}#this_year", rows=15, columns=["city", "spend"]))
    assert [(chunk.start, len(chunk)) for chunk in chunks] == [(0, 15), (15, 15), (30, 10)]
    whole = read_table(f"{shop}#this_year", columns=["city", "spend"]).rows
    pd.testing.assert_frame_equal(pd.concat([chunk.rows for chunk in chunks], ignore_index=True), whole)


def test_a_model_of_two_tables_predicts_a_third(shop):
    settings = {"label": "churn", "id_column": "id", "method": "none", "max_epochs": 20}
    model = ma.fit(f"{shop}#last_year", f"{shop}#this_year", **settings)
    frames = [read_table(f"{shop}#{name}").rows for name in ("last_year", "this_year")]
    np.testing.assert_array_equal(model.predict(f"{shop}#this_year"), ma.fit(*frames, **settings).predict(frames[1]))
    assert model.summary["source"] == f"{shop}#last_year"


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("{shop}", InvalidInputError, "names no table of the database; write one after a #: 'files', 'last_year'"),
        ("{shop}#next_year", InvalidInputError, "names no table of the database"),
        ("{shop}#SELECT * FROM nowhere", InvalidInputError, "cannot be read .no such table: nowhere"),
        ("{shop}#SELECT id, id FROM last_year", InvalidInputError, "more than one column named 'id'"),
        ("{shop}#files", InvalidInputError, "'content' holds values of type bytes, which are no numbers"),
        ("{shop}#SELECT * FROM last_year WHERE id < 0", InvalidInputError, "has no rows"),
        ("sqlite:///absent.db#t", DataNotFoundError, "absent.db is not there; give the path of a database"),
        (
            "nosuch://me:secret@host/shop#t",
            InvalidInputError,
            r"nosuch://me:\*\*\*@host/shop#t is no address of a data",
        ),
        (
            "oracle://me:secret@host/shop#t",
            InvalidInputError,
            "needs the driver .*, which is not installed; install it",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence(shop, tmp_path, monkeypatch, address, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message) as refused:
        read_table(address.format(shop=shop))
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("mysql://me:s@cr:et@host/db#t", "mysql://me:***@host/db#t"),
        ("db2://host/db?user=me&password=secret#t", "db2://host/db?user=me&password=***#t"),
        ("postgresql://me:s#cret@host/db#t", "postgresql://me:***@host/db#t"),
        ("sqlite:///shop.db#t", "sqlite:///shop.db#t"),
    ],
)
def test_passwords_are_never_shown(address, shown):
    assert without_password(address) == shown


def test_without_sqlalchemy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingExtraError, match=r'databases are read by SQLAlchemy: pip install "\.\[sql\]"'):
        read_table("sqlite:///shop.db#t")
