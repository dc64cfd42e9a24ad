"""The decisions of a run, in order: the common form in which twin and live drivers are compared.

One row per decision, JSON-ready, times in s:

    (at, "admission", request, reason, retry_after_s)                         a refusal
    (at, "router", request, copy, variant, reason, outstanding)               a reserved slot
    (at, "router", request, None, None, reason, retry_after_s)                no route
    (at, "batcher", copy, "run", lane, requests, rows, bucket, waited_s, queue_rows, reason)
    (at, "batcher", copy, "refuse" | "expire", request, reason)

Requests are numbered from 1 in order of arrival. The digest is SHA-256 over the rows as compact
JSON, each followed by a comma. JSON writes the shortest text of a float, so equal digests
mean equal floats on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import orjson

from penstock.core.batching.batcher import Action, RefuseItem, RunBatch
from penstock.core.request.admission import Refusal
from penstock.core.routing import NoRoute, Routed

Row = tuple[Any, ...]

#: rows for each call of the JSON writer and the hash; it does not affect the digest
_CHUNK_ROWS = 2048


def admission_row(at: float, request: int, refusal: Refusal) -> Row:
    return (at, "admission", request, refusal.reason, refusal.retry_after_s)


def router_row(at: float, request: int, answer: Routed | NoRoute) -> Row:
    if isinstance(answer, Routed):
        copy = answer.state.copy
        return (at, "router", request, copy, answer.variant, answer.reason, answer.outstanding)
    return (at, "router", request, None, None, answer.reason, answer.retry_after_s)


def batcher_row(at: float, copy: int, action: Action) -> Row:
    """The row of a batcher's action. The ids in `action` must be request numbers."""
    if isinstance(action, RunBatch):
        return (
            at, "batcher", copy, "run", action.lane, action.ids, action.rows, action.bucket,
            action.waited_s, action.queue_rows, action.reason,
        )  # fmt: skip
    kind = "refuse" if isinstance(action, RefuseItem) else "expire"
    return (at, "batcher", copy, kind, action.id, action.reason)


class DecisionRecorder:
    """Hashes rows as they come; keeps them only on request (tests compare whole lists)."""

    def __init__(self, *, keep: bool = False) -> None:
        self.count = 0
        self._hash = hashlib.sha256()
        self._rows: list[Row] = []
        self._kept: list[Row] | None = [] if keep else None

    def add(self, row: Row) -> None:
        rows = self._rows
        rows.append(row)
        if len(rows) >= _CHUNK_ROWS:
            self._flush()

    def digest(self) -> str:
        """The hash of all rows so far, hexadecimal."""
        self._flush()
        return self._hash.hexdigest()

    def rows(self) -> Iterator[Row]:
        """All rows so far, in order; needs `keep`."""
        self._flush()
        assert self._kept is not None, "this recorder does not keep its rows"
        return iter(self._kept)

    def _flush(self) -> None:
        rows = self._rows
        if rows:
            self.count += len(rows)
            self._hash.update(orjson.dumps(rows)[1:-1])
            self._hash.update(b",")
            if self._kept is not None:
                self._kept += rows
            rows.clear()
