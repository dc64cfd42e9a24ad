"""Who is told what of the requests that others have in flight: literal stories of three ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.timers import ManualTimer, ManualTimers

from penstock.clock import ManualClock
from penstock.instance.in_flight_counts import TELL_S, InFlightCounts
from penstock.wire import frames


class Loop:
    """A loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self._clock = ManualClock(monotonic_s=100.0)
        self._timers = ManualTimers(self._clock)
        self.time = self._clock.monotonic
        self.until = self._timers.move_to

    def call_later(self, delay_s: float, call: Callable[..., None], *args: object) -> ManualTimer:
        return self._timers.call_at(self.time() + delay_s, lambda: call(*args))

    @property
    def timers(self) -> int:
        return len(self._timers.set)


class CountsEnd:
    """A connection: what it was told without having replies to wait for."""

    def __init__(self, counts: InFlightCounts) -> None:
        self._counts = counts
        self.told: list[dict[int, int]] = []

    def tell_counts(self) -> None:
        self.told.append(self.news())

    def news(self) -> dict[int, int]:
        """What goes with its next write."""
        frame = self._counts.news(self)
        return dict(frames.decode_counts(frame[frames.HEAD.size :])) if frame else {}


def site() -> tuple[Loop, InFlightCounts, CountsEnd, CountsEnd]:
    """Two gateways, both told that there is nothing."""
    loop: Any = Loop()
    counts = InFlightCounts(loop)
    a, b = CountsEnd(counts), CountsEnd(counts)
    counts.listen(a)
    counts.listen(b)
    loop.until(101.0)
    assert (a.told, b.told) == ([], [])
    return loop, counts, a, b


def test_a_gateway_is_told_at_once_of_what_another_sends() -> None:
    loop, counts, a, b = site()
    counts.taken(a, 1)
    counts.taken(a, 1)
    loop.until(loop.time())
    assert b.told == [{1: 2}]
    assert a.news() == {}  # it knows its own


def test_a_reply_carries_what_has_changed_and_nothing_is_told_twice() -> None:
    _, counts, a, b = site()
    counts.taken(b, 1)
    counts.taken(a, 1)
    counts.taken(a, 2)
    counts.ended(b, 1)
    assert b.news() == {1: 1, 2: 1}
    assert b.news() == {}
    counts.ended(a, 2)
    counts.taken(a, 2)
    assert b.news() == {}  # as it was told


def test_who_was_just_told_is_told_again_after_a_while_and_only_of_changes() -> None:
    loop, counts, a, b = site()
    counts.taken(a, 1)
    loop.until(101.0)
    assert b.told == [{1: 1}]
    counts.taken(a, 1)
    counts.taken(a, 1)
    loop.until(101.0 + TELL_S / 2)
    assert len(b.told) == 1
    loop.until(101.0 + TELL_S)
    assert b.told == [{1: 1}, {1: 3}]
    loop.until(200.0)
    assert len(b.told) == 2
    assert loop.timers == 0  # nothing changes: nobody is woken


def test_an_answer_is_told_as_a_request_is() -> None:
    loop, counts, a, b = site()
    counts.taken(a, 1)
    loop.until(102.0)
    counts.ended(a, 1)
    loop.until(103.0)
    assert b.told == [{1: 1}, {1: 0}]


def test_what_a_gateway_had_is_gone_with_it() -> None:
    """Its connection ends each of its requests, and then itself."""
    loop, counts, a, b = site()
    counts.taken(a, 1)
    counts.taken(b, 1)
    loop.until(102.0)
    counts.ended(a, 1)
    counts.gone(a)
    loop.until(103.0)
    assert b.told == [{1: 1}, {1: 0}]
    counts.taken(b, 1)
    loop.until(104.0)
    assert a.told == [{1: 1}]  # nobody tells one that has gone


def test_who_asks_late_is_told_of_what_is_there_already() -> None:
    loop: Any = Loop()
    counts = InFlightCounts(loop)
    a, late = CountsEnd(counts), CountsEnd(counts)
    counts.taken(a, 1)  # it asked for nothing, and counts all the same
    counts.taken(a, 2)
    counts.ended(a, 2)
    counts.listen(late)
    counts.listen(late)
    loop.until(101.0)
    assert late.told == [{1: 1}]
    assert a.news() == {}
