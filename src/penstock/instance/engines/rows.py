"""Rows of large data sets, directly through a model of this process: no queue, no requests.

An engine that can do this reads a window of records at once, runs any of its rows together, and
writes the answers to all of them. The caller decides which rows run together. Rows of one batch
fail together; the caller finds out which of them caused it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.core.jobs.windows import RowsSpec
from penstock.errors import PenstockError
from penstock.wire.frames import RequestMeta


class WindowRows(Protocol):
    """The decoded records of one window."""

    @property
    def unread(self) -> Mapping[int, PenstockError]:
        """Errors of records that can't be read, by index in the window; these have no rows."""

    @property
    def lengths(self) -> Sequence[int]:
        """The length of each row, in tokens; 1 where rows have no length."""

    @property
    def kinds(self) -> Sequence[int] | None:
        """A number for each row: rows with different numbers can't share a run. None: all can."""

    def record_of(self, row: int) -> int:
        """The index in the window of the record to which a row belongs."""

    def run(self, lane: int, rows: Sequence[int]) -> None:
        """Runs rows together and keeps the results, on the lane's thread.

        Raises ModelError, or an exception of the library, when the model fails on these rows.
        """

    def answers(self, failed: Collection[int]) -> list[bytes | PenstockError]:
        """The answer to each record, when all rows have run. Entries for unreadable records and
        those in `failed` have no meaning."""


class RowsEngine(Protocol):
    rows_spec: RowsSpec

    def read(self, asked: RequestMeta, records: Sequence[bytes]) -> WindowRows:
        """May run on any thread. Raises ModelError if no record could ever be answered."""
