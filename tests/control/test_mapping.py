"""Records and rows: the same value in a field and in its column, text for what has structure."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    create_engine,
    insert,
    select,
)

from penstock.control.database.mapping import from_json, record_of, to_json, values_of

shelves = Table(
    "shelves",
    MetaData(),
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("key", Text),
    Column("label", Text),
    Column("open", Integer),
    Column("seal", LargeBinary),
    Column("books", Text),
    Column("row", Integer),
)


@dataclass(frozen=True, slots=True)
class Book:
    title: str
    pages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfRow:
    label: str
    open: bool
    seal: bytes = b""
    books: tuple[Book, ...] = ()
    number: int = 0
    note: str = ""

    @property
    def key(self) -> str:
        return self.label.lower()


SHELF = ShelfRow(label="Top", open=True, seal=b"\0x", books=(Book("A", 3), Book("B")))


def test_fields_and_properties_become_columns_and_structure_becomes_text() -> None:
    assert values_of(shelves, SHELF, row=7) == {
        "key": "top",
        "label": "Top",
        "open": 1,
        "seal": b"\0x",
        "books": '[{"title":"A","pages":3},{"title":"B","pages":0}]',
        "row": 7,
    }


def test_a_record_comes_back_from_its_row() -> None:
    with create_engine("sqlite://").begin() as db:
        shelves.create(db)
        db.execute(insert(shelves).values(**values_of(shelves, SHELF)))
        row = db.execute(select(shelves)).mappings().one()
    found = record_of(ShelfRow, row, open=bool(row["open"]), books=(), note="read")
    assert found == ShelfRow(label="Top", open=True, seal=b"\0x", number=1, note="read")


def test_text_comes_back_with_defaults_for_what_an_older_version_did_not_write() -> None:
    assert from_json(Book, to_json(Book("A", 3))) == Book("A", 3)
    assert from_json(Book, '{"title": "A"}') == Book("A", 0)


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (Book, "", "zero-length"),
        (Book, "[]", "Expected `object`"),
        (Book, "{}", "missing required field `title`"),
        (Book, '{"title": 7}', "Expected `str`"),
        (Book, '{"title": "A", "colour": "red"}', "unknown members: colour"),
        (ShelfRow, '{"label": "x", "open": true, "books": [{"title": "A", "a": 1}]}', "members: a"),
    ],
)
def test_text_that_is_no_record_of_this_version_is_refused(kind: type, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_json(kind, text)
