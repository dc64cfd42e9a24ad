"""Counts of requests in flight per copy and connection, so that gateways need no shared count.

A gateway knows its own requests exactly; only the instance knows those of others. A connection that
asks for it gets, for every copy, the number of other connections' requests that are accepted and
unanswered: after each write of replies, and otherwise once `TELL_S` has passed since the last
report. Unchanged counts are not sent again, so idle copies cost nothing. With one gateway no
connection asks, and nothing is counted.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from penstock.wire import frames

#: Shortest time between two reports to a connection that gets no replies meanwhile. Requests that
#: are sent in that time are based on an older count: the price of having no shared one
#: (docs/decisions, many gateways).
TELL_S: Final = 0.02


class Listener(Protocol):
    """A connection that gets the counts."""

    def tell_counts(self) -> None:
        """It must send the result of `InFlightCounts.news`, if that is not empty."""


class _CountsTold:
    __slots__ = ("at", "changed", "own", "said", "timer")

    def __init__(self) -> None:
        self.own: dict[int, int] = {}  #: copy -> its own requests in flight
        #: Copy -> others' requests in flight, as last reported to it
        self.said: dict[int, int] = {}
        self.changed: set[int] = set()  #: copies whose last report may be out of date
        self.at = float("-inf")  #: time of the last report, s of the loop's clock
        self.timer: asyncio.TimerHandle | None = None


class InFlightCounts:
    """The counts of one instance, from the time when the first connection asks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._total: dict[int, int] = {}  #: copy -> requests of all connections
        #: Every connection that has requests, or asked for counts
        self._by: dict[Listener, _CountsTold] = {}
        self._listeners: dict[Listener, _CountsTold] = {}

    def listen(self, connection: Listener) -> None:
        """The connection gets reports from now on. Idempotent."""
        if connection not in self._listeners:
            told = self._listeners[connection] = self._by.setdefault(connection, _CountsTold())
            told.changed.update(self._total)
            self._soon(connection, told)

    def taken(self, connection: Listener, copy: int) -> None:
        """A request came for a copy."""
        told = self._by.get(connection)
        if told is None:
            told = self._by[connection] = _CountsTold()
        told.own[copy] = told.own.get(copy, 0) + 1
        self._total[copy] = self._total.get(copy, 0) + 1
        self._note(connection, copy)

    def ended(self, connection: Listener, copy: int) -> None:
        """A request was answered or cancelled."""
        self._less(self._total, copy)
        told = self._by.get(connection)
        if told is not None:
            self._less(told.own, copy)
        self._note(connection, copy)

    def gone(self, connection: Listener) -> None:
        """The connection is closed; each of its requests has ended."""
        told = self._by.pop(connection, None)
        self._listeners.pop(connection, None)
        if told is not None and told.timer is not None:
            told.timer.cancel()

    def news(self, connection: Listener) -> bytes:
        """A COUNTS frame with the changes since the last one; empty: no changes."""
        told = self._listeners.get(connection)
        if told is None or not told.changed:
            return b""
        told.at = self._loop.time()
        pairs = []
        for copy in sorted(told.changed):
            others = self._total.get(copy, 0) - told.own.get(copy, 0)
            if others != told.said.get(copy, 0):
                pairs.append((copy, others))
                if others:
                    told.said[copy] = others
                else:
                    del told.said[copy]
        told.changed.clear()
        return frames.encode_counts(pairs) if pairs else b""

    def _note(self, by: Listener, copy: int) -> None:
        for connection, told in self._listeners.items():
            if connection is not by:
                told.changed.add(copy)
                if told.timer is None:
                    self._soon(connection, told)

    def _soon(self, connection: Listener, told: _CountsTold) -> None:
        delay_s = told.at + TELL_S - self._loop.time()
        told.timer = self._loop.call_later(max(0.0, delay_s), self._tell, connection, told)

    def _tell(self, connection: Listener, told: _CountsTold) -> None:
        told.timer = None
        if told.changed:
            connection.tell_counts()

    @staticmethod
    def _less(counts: dict[int, int], copy: int) -> None:
        left = counts.get(copy, 0) - 1
        if left > 0:
            counts[copy] = left
        else:
            counts.pop(copy, None)
