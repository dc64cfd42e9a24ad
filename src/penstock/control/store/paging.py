"""Pages of a list by keyset: a token says where the last page ended, not how many rows it skipped.

So rows that are added or removed between two calls do not shift other rows between pages. A token
also holds a digest of the filters and of the order; with others it is refused.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import ColumnElement, RowMapping, Select, Table, and_, or_

from penstock.control.store.records import InvalidToken, ListQuery, Page, T
from penstock.errors import CallerError

_SORT_COLUMNS = {
    "Name": "key",
    "CreationTime": "created",
    "LastModifiedTime": "modified",
    "Status": "status",
}


def filtered(table: Table, query: ListQuery) -> Select[Any]:
    """The select of one page. It asks for one row more, which shows whether another page
    follows."""
    columns = table.c
    conditions: list[ColumnElement[bool]] = []
    if query.name_contains:
        conditions.append(columns.key.contains(query.name_contains.lower(), autoescape=True))
    if query.created_before is not None:
        conditions.append(columns.created < query.created_before)
    if query.created_after is not None:
        conditions.append(columns.created >= query.created_after)
    if query.modified_before is not None:
        conditions.append(columns.modified < query.modified_before)
    if query.modified_after is not None:
        conditions.append(columns.modified >= query.modified_after)
    if query.status_equals and "status" in columns:
        conditions.append(columns.status == query.status_equals)
    if query.endpoint_equals:
        conditions.append(columns.endpoint_key == query.endpoint_equals.lower())
    if query.variant_equals:
        conditions.append(columns.variant == query.variant_equals)
    column = columns[_sort_column(table, query)]
    ascending = query.sort_order == "Ascending"
    if query.next_token:
        conditions.append(_beyond(column, columns.key, _read_token(table, query), ascending))
    order = (column.asc(), columns.key.asc()) if ascending else (column.desc(), columns.key.desc())
    return table.select().where(*conditions).order_by(*order).limit(query.max_results + 1)


def page(
    table: Table, query: ListQuery, rows: Sequence[RowMapping], make: Callable[[RowMapping], T]
) -> Page[T]:
    """The page, and the token of the next one if there is one. `make` must accept any row, also a
    damaged one: a resource that no list shows could not be found and deleted."""
    items = tuple(make(row) for row in rows[: query.max_results])
    if len(rows) <= query.max_results:
        return Page(items)
    last = rows[query.max_results - 1]
    fields = [_digest(table, query), last[_sort_column(table, query)], last["key"]]
    return Page(items, base64.urlsafe_b64encode(orjson.dumps(fields)).decode().rstrip("="))


def _sort_column(table: Table, query: ListQuery) -> str:
    column = _SORT_COLUMNS.get(query.sort_by)
    if column is None or column not in table.c:
        allowed = [name for name, one in _SORT_COLUMNS.items() if one in table.c]
        raise CallerError(
            "invalid-sort-by", f"SortBy {query.sort_by!r} is not one of {', '.join(allowed)}"
        )
    return column


def _beyond(
    column: ColumnElement[Any], key: ColumnElement[Any], at: tuple[Any, str], ascending: bool
) -> ColumnElement[bool]:
    value, last_key = at
    if ascending:
        return or_(column > value, and_(column == value, key > last_key))
    return or_(column < value, and_(column == value, key < last_key))


def _read_token(table: Table, query: ListQuery) -> tuple[Any, str]:
    token = query.next_token
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        fields = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        digest, value, key = fields
    except (ValueError, TypeError):
        raise InvalidToken() from None
    is_time = _sort_column(table, query) in ("created", "modified")
    fits = isinstance(value, float | int if is_time else str) and isinstance(key, str)
    if digest != _digest(table, query) or not fits:
        raise InvalidToken()
    return value, key


def _digest(table: Table, query: ListQuery) -> str:
    """A digest of the query without the page size, which may change between two calls."""
    parts = repr((table.name, replace(query, max_results=0, next_token="")))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]
