"""Rows of large data sets, straight through a model of this process: no queue, no requests.

An engine that can do this reads a window of records at once, runs any of its rows together, and
writes the answers of all of them. Which rows run together is not its business. Rows of one batch
fail together; whoever asked finds out which of them did it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.core.jobs.windows import RowsSpec
from penstock.errors import PenstockError
from penstock.wire.frames import RequestMeta


class WindowRows(Protocol):
    """The records of one window, read."""

    @property
    def unread(self) -> Mapping[int, PenstockError]:
        """Records that can't be read, by their place in the window: they have no rows."""

    @property
    def lengths(self) -> Sequence[int]:
        """Of each row, in tokens; 1 where rows have no length."""

    @property
    def kinds(self) -> Sequence[int] | None:
        """Rows of two kinds can't share a run; None: all can."""

    def record_of(self, row: int) -> int:
        """The record that a row is of, by its place in the window."""

    def run(self, lane: int, rows: Sequence[int]) -> None:
        """Runs them together and keeps what came out, on the lane's thread.

        Raises ModelError, or whatever the library raises, when the model fails on these rows.
        """

    def answers(self, failed: Collection[int]) -> list[bytes | PenstockError]:
        """What is answered to each record, when all rows have run; of those that can't be read and
        of the `failed` ones nobody needs it, and it says nothing."""


class RowsEngine(Protocol):
    rows_spec: RowsSpec

    def read(self, asked: RequestMeta, records: Sequence[bytes]) -> WindowRows:
        """On any thread. Raises ModelError where no record could ever be answered."""
