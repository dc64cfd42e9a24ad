"""Records to rows and rows to records: fields and columns of one name are the same value.

A column of text holds anything that is no text as JSON, which `from_json` reads again. Members
that an older version did not write get their defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import msgspec
import orjson
from sqlalchemy import RowMapping, Table

T = TypeVar("T")


def to_json(value: Any) -> str:
    """Plain values, mappings, and dataclasses of them as JSON text."""
    return orjson.dumps(value, default=dict).decode()


def from_json(kind: type[T], text: str) -> T:
    """The inverse of `to_json` for a dataclass. Raises ValueError for text that is none of it, also
    for one with a member that this version does not know: it would be lost, and may matter."""
    found = orjson.loads(text)
    value = msgspec.convert(found, kind)
    _check_members(value, found)
    return value


def values_of(table: Table, record: Any, **others: Any) -> dict[str, Any]:
    """The columns that a record has an attribute for, to be inserted.

    Args:
        others: columns with another value or another name. Columns that the database numbers are
            left out.
    """
    found = {
        column.name: _plain(getattr(record, column.name))
        for column in table.c
        if column.autoincrement is not True
        and column.name not in others
        and hasattr(record, column.name)
    }
    return found | others


def record_of(kind: Callable[..., T], row: RowMapping, **others: Any) -> T:
    """A record from the columns that have a field.

    Args:
        others: fields with another value than their column, or without one.
    """
    named = {field.name for field in fields(cast(Any, kind))} - others.keys()
    return kind(**{name: row[name] for name in named & row.keys()}, **others)


def _check_members(value: Any, found: Any) -> None:
    if is_dataclass(value):
        unknown = found.keys() - {field.name for field in fields(value)}
        if unknown:
            raise ValueError(f"unknown members: {', '.join(sorted(unknown))}")
        for name, member in found.items():
            _check_members(getattr(value, name), member)
    elif isinstance(value, tuple):
        for one, element in zip(value, found, strict=True):
            _check_members(one, element)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):  # PostgreSQL takes none for a column of numbers
        return int(value)
    is_plain = value is None or isinstance(value, str | int | float | bytes)
    return value if is_plain else to_json(value)
