"""Deadlines of many requests behind one timer: each ends at its own, and nothing is kept of it."""

from __future__ import annotations

from typing import Any

from tests.kit.gateway import Recording
from tests.kit.timers import ManualTimers

from penstock.clock import ManualClock
from penstock.gateway.dispatch.deadlines import Deadlines
from penstock.gateway.dispatch.invocation import ANSWERED, SENT, Invocation


class DeadlineBook:
    """Deadlines with a limit of 10 s, and who expired when."""

    def __init__(self) -> None:
        self.clock = ManualClock(monotonic_s=100.0)
        self.timers = ManualTimers(self.clock)
        self.expired: list[tuple[int, float]] = []
        self.deadlines = Deadlines(self.clock, self.timers, self._expire, limit_s=10.0)
        self.number = 0

    def _expire(self, invocation: Invocation) -> None:
        self.expired.append((invocation.number, self.clock.monotonic()))
        invocation.state = ANSWERED
        del self.deadlines.live[invocation.number]

    def take(self, own_s: float | None = None, *, received: float | None = None) -> Invocation:
        """A request that is sent now; `own_s`: its own time, else the limit's."""
        self.number += 1
        at = self.clock.monotonic() if received is None else received
        deadline = at + (10.0 if own_s is None else own_s)
        invocation = Invocation(
            "echo", b"", b"", Recording(), received=at, deadline=deadline, number=self.number
        )
        invocation.state = SENT
        self.deadlines.live[self.number] = invocation
        if own_s is None:
            self.deadlines.watch(deadline)
        else:
            self.deadlines.watch_own(invocation, deadline)
        return invocation

    def over(self, invocation: Invocation) -> None:
        invocation.state = ANSWERED
        self.deadlines.live.pop(invocation.number, None)

    @property
    def rings(self) -> list[float]:
        """When timers will ring."""
        return sorted(timer.at for timer in self.timers.set)

    @property
    def kept(self) -> list[Any]:
        return self.deadlines._own


def test_each_ends_at_its_deadline_and_not_before() -> None:
    book = DeadlineBook()
    book.take()
    book.timers.advance(3.0)
    book.take()
    book.take(own_s=1.5)
    book.timers.advance(20.0)
    assert book.expired == [(3, 104.5), (1, 110.0), (2, 113.0)]
    assert (book.rings, book.kept) == ([], [])


def test_one_timer_rings_at_the_first_deadline() -> None:
    book = DeadlineBook()
    assert book.deadlines.timer_at == float("inf")
    book.take()
    assert (book.rings, book.deadlines.timer_at) == ([110.0], 110.0)
    book.take(own_s=4.0)
    assert (book.rings, book.deadlines.timer_at) == ([104.0], 104.0)
    book.take(own_s=7.0)
    assert (book.rings, book.deadlines.timer_at) == ([104.0], 104.0)
    book.timers.advance(4.0)
    assert (book.rings, book.deadlines.timer_at) == ([107.0], 107.0)
    book.timers.advance(3.0)
    assert (book.rings, book.deadlines.timer_at) == ([110.0], 110.0)


def test_what_is_over_does_not_end_again() -> None:
    book = DeadlineBook()
    first, second = book.take(), book.take(own_s=2.0)
    book.over(first)
    book.over(second)
    book.timers.advance(2.0)
    assert (book.expired, book.kept, book.rings) == ([], [], [])


def test_what_is_answered_and_not_yet_written_is_left_alone() -> None:
    book = DeadlineBook()
    for invocation in (book.take(), book.take(own_s=2.0)):
        invocation.state = ANSWERED
    book.timers.advance(20.0)
    assert book.expired == []


def test_a_stream_outlives_the_limit_and_those_behind_it_do_not() -> None:
    book = DeadlineBook()
    book.take(own_s=480.0)
    book.timers.advance(1.0)
    book.take()
    book.timers.advance(10.0)
    assert (book.expired, book.rings) == ([(2, 111.0)], [580.0])
    book.timers.advance(469.0)
    assert book.expired[1:] == [(1, 580.0)]


def test_one_without_any_deadline_waits_for_ever_and_holds_up_nobody() -> None:
    book = DeadlineBook()
    book.take(own_s=1000.0).deadline = None
    book.kept.clear()
    book.take()
    book.timers.advance(50.0)
    assert book.expired == [(2, 110.0)]


def test_deadlines_of_those_that_are_over_are_swept_out() -> None:
    book = DeadlineBook()
    for _ in range(1024):
        book.over(book.take(own_s=9.0))
    assert len(book.kept) == 1024
    kept = [book.take(own_s=9.0 - n) for n in range(2)]
    assert book.kept == [(108.0, kept[1].number), (109.0, kept[0].number)]
    sizes = []
    for _ in range(1023 + 1028):
        book.over(book.take(own_s=9.0))
        sizes.append(len(book.kept))
    assert sizes[:1024] == [*range(3, 1025), 3, 4]
    assert sizes[1022:] == [*range(3, 1029), 3, 4, 5], "later where more are alive"
    book.timers.advance(9.0)
    assert [number for number, _ in book.expired] == [kept[1].number, kept[0].number]


def test_a_sweep_keeps_the_earliest_first() -> None:
    book = DeadlineBook()
    live = [book.take(own_s=float(n)) for n in (8, 3, 6, 4, 7, 5)]
    for _ in range(1018):
        book.over(book.take(own_s=1.0))
    book.over(live[1])
    book.take(own_s=9.0)
    book.timers.advance(9.0)
    assert [at for _, at in book.expired] == [104.0, 105.0, 106.0, 107.0, 108.0, 109.0]


def test_a_closed_book_rings_no_more() -> None:
    book = DeadlineBook()
    book.take()
    book.deadlines.close()
    assert book.rings == []
    book.take(own_s=1.0)
    assert book.rings == []
    book.deadlines.close()
    book.timers.advance(20.0)
    assert book.expired == []
