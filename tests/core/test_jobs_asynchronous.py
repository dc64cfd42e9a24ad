"""Asynchronous requests of one endpoint, as literal timelines: what is sent, and what fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.backoff import Backoff
from penstock.core.jobs.asynchronous import AsyncQueue
from penstock.core.jobs.asynchronous_actions import (
    Accepted,
    Action,
    FailRequest,
    Fetch,
    FetchOverdue,
    QueueSpec,
    Retry,
    Send,
    Wake,
    Write,
    decide,
)

SPEC = QueueSpec(concurrency_max=2, window_max=4, retry=Backoff(1.0, 8.0))
NEVER = 1e9


def request(number: int, expires: float = NEVER, timeout_s: float = 900.0) -> Accepted:
    return Accepted(number, expires, timeout_s)


def queue(*found: Accepted, ready: int = 1, spec: QueueSpec = SPEC) -> tuple[AsyncQueue, list[int]]:
    """A queue whose record holds these and no others, and what it sent at once, at second 0."""
    made = AsyncQueue(spec, backlog=len(found))
    made.configure(spec, ready=ready, now=0.0)
    actions = made.loaded(found, whole=False, now=0.0)
    return made, sent(actions)


def sent(actions: list[Action]) -> list[int]:
    return [one.number for one in actions if isinstance(one, Send)]


def refuse(made: AsyncQueue, number: int, code: str, now: float, **more: object) -> list[Action]:
    told = {"family": "not-now", "retry_after_s": None} | more
    return made.failed(number, code=code, now=now, **told)  # type: ignore[arg-type]


def finish(made: AsyncQueue, number: int, now: float) -> list[Action]:
    return [*made.answered(number, now=now), *made.ended(number, now=now)]


def test_the_record_is_loaded_a_window_at_a_time_and_again_when_half_of_it_is_free() -> None:
    made = AsyncQueue(SPEC, backlog=6)
    assert made.configure(SPEC, ready=1, now=0.0) == [Fetch(0, 4)]
    first = [request(number) for number in (1, 2, 3, 4)]
    assert made.loaded(first, whole=True, now=0.0) == [
        Send(1, 900.0, "copy-free"),
        Send(2, 900.0, "copy-free"),
        Fetch(4, 2),  # two wait, two are sent: half of the window is free
    ]
    assert made.loaded([request(5), request(6)], whole=True, now=0.0) == []
    assert made.answered(1, now=1.0) == [Send(3, 900.0, "copy-free")]
    assert made.answered(2, now=1.0) == [Send(4, 900.0, "copy-free"), Fetch(6, 2)]
    assert made.loaded([], whole=False, now=1.0) == []
    assert made.ended(1, now=1.0) == []
    made.check_invariants()


def test_as_many_are_sent_as_the_bound_allows_for_each_ready_copy_the_oldest_first() -> None:
    made, first = queue(*[request(number) for number in (3, 1, 5, 2, 4)], ready=2)
    assert first == [1, 2, 3, 4]
    assert finish(made, 2, 1.0) == [Send(5, 900.0, "copy-free")]
    assert made.configure(SPEC, ready=1, now=2.0) == []
    made.check_invariants()


def test_with_no_copy_nothing_is_sent_and_capacity_is_asked_for_until_it_is_there() -> None:
    made = AsyncQueue(SPEC, backlog=0)
    assert made.on_timer(now=0.0) == []
    assert made.accepted(1, now=1.0) == [Fetch(0, 4), Wake(1, "no-capacity")]
    assert made.loaded([request(1)], whole=False, now=1.0) == []
    assert made.configure(SPEC, ready=1, now=9.0) == [
        Send(1, 900.0, "copy-free"),
        Wake(0, "capacity-there"),
    ]


def test_capacity_is_no_longer_asked_for_once_nothing_waits() -> None:
    made, _ = queue(request(1, expires=60.0), ready=0)
    assert made.next_deadline() == 60.0
    assert made.on_timer(now=60.0) == [FailRequest(1, "expired")]
    assert made.ended(1, now=60.0) == [Wake(0, "nothing-waits")]
    assert (made.backlog, made.next_deadline()) == (0, None)


def test_no_more_is_sent_while_many_outputs_are_being_written() -> None:
    """A store that is slower than the model must not fill the memory with answers."""
    made, first = queue(*[request(number) for number in range(1, 9)])
    assert first == [1, 2]
    assert sent(made.answered(1, now=1.0)) == [3]
    assert sent(made.answered(2, now=1.0)) == [4]
    assert sent(made.answered(3, now=1.0)) == [5]
    assert sent(made.answered(4, now=1.0)) == []  # four are written, two times two
    assert sent(made.ended(1, now=2.0)) == [6]


def test_a_request_expires_where_it_waits_and_not_where_it_is_computed() -> None:
    made, first = queue(*[request(number, expires=60.0) for number in (1, 2, 3)])
    assert first == [1, 2]
    assert made.next_deadline() == 60.0
    assert made.on_timer(now=59.9) == []
    assert made.on_timer(now=60.0) == [FailRequest(3, "expired")]
    # One that comes back later was not sent by its time: it has expired.
    assert refuse(made, 1, "all-copies-full", 61.0) == [FailRequest(1, "expired")]
    assert made.answered(2, now=62.0) == []
    made.check_invariants()


def test_those_beyond_the_window_are_told_of_their_time_within_seconds() -> None:
    made = AsyncQueue(SPEC, backlog=9)
    assert made.on_timer(now=0.0) == [Fetch(0, 4), Wake(9, "no-capacity")]
    window = [request(number) for number in (1, 2, 3, 4)]
    assert made.loaded(window, whole=True, now=0.0) == [FetchOverdue(4)]
    assert made.overdue([], now=0.0) == []
    assert made.next_deadline() == 5.0
    assert made.on_timer(now=4.9) == []
    assert made.on_timer(now=5.0) == [FetchOverdue(4)]
    assert made.next_deadline() == NEVER  # while it looks
    assert made.overdue([request(8, expires=4.0)], now=5.0) == [FailRequest(8, "expired")]
    assert made.next_deadline() == 10.0


def test_what_ended_while_the_record_was_read_is_not_taken_up_again() -> None:
    made, _ = queue(request(1), request(2), request(3))
    assert made.accepted(1, now=1.0) == [Fetch(3, 3)]
    finish(made, 1, 1.0)
    assert sent(made.loaded([request(1), request(4)], whole=False, now=1.0)) == []
    assert finish(made, 2, 2.0) == [Send(4, 900.0, "copy-free")]
    made.check_invariants()


def test_what_is_accepted_while_the_record_is_read_is_looked_for_afterwards() -> None:
    made = AsyncQueue(SPEC, backlog=0)
    made.configure(SPEC, ready=1, now=0.0)
    assert made.accepted(1, now=0.0) == [Fetch(0, 4)]
    assert made.accepted(1, now=0.1) == []
    assert made.loaded([request(1)], whole=False, now=0.2) == [
        Send(1, 900.0, "copy-free"),
        Fetch(1, 4),
    ]


def test_for_want_of_capacity_the_endpoint_waits_longer_each_time_and_the_order_stays() -> None:
    made, _ = queue(request(1), request(2), request(3))
    assert refuse(made, 1, "all-copies-full", 10.0) == []
    assert refuse(made, 2, "all-copies-full", 10.1) == []  # it was sent before the pause began
    assert made.next_deadline() == 11.0
    assert made.on_timer(now=10.9) == []
    again = [Send(1, 900.0, "tried-again"), Send(2, 900.0, "tried-again")]
    assert made.on_timer(now=11.0) == again
    assert refuse(made, 1, "queue-full", 11.0) == []
    assert made.next_deadline() == 13.0
    assert made.on_timer(now=13.0) == again[:1]
    assert refuse(made, 1, "queue-full", 13.0, retry_after_s=7.0) == []
    assert made.next_deadline() == 20.0
    # The same copies change nothing; one more ends the pause, and the series of pauses.
    assert made.configure(SPEC, ready=1, now=14.0) == []
    assert made.configure(SPEC, ready=2, now=15.0) == [
        *again[:1],
        Send(3, 900.0, "copy-free"),
    ]
    assert refuse(made, 1, "queue-full", 16.0) == []
    assert made.next_deadline() == 17.0


def test_an_answer_ends_the_series_of_pauses() -> None:
    made, _ = queue(request(1), request(2))
    refuse(made, 1, "queue-full", 0.0)
    made.on_timer(now=1.0)
    refuse(made, 1, "queue-full", 1.0)
    assert made.next_deadline() == 3.0
    made.answered(2, now=1.5)
    made.on_timer(now=3.0)
    refuse(made, 1, "queue-full", 3.0)
    assert made.next_deadline() == 4.0


def test_waits_begin_with_the_first_and_double_where_nothing_else_is_told() -> None:
    made, _ = queue(request(1), spec=QueueSpec(concurrency_max=1, retry=Backoff(0.25, 60.0)))
    refuse(made, 1, "input-unreachable", 0.0)
    assert made.next_deadline() == 0.25
    made.on_timer(now=0.25)
    refuse(made, 1, "input-unreachable", 0.25)
    assert made.next_deadline() == 0.75


def test_a_queue_of_one_request_is_loaded_at_the_start() -> None:
    made = AsyncQueue(SPEC, backlog=1)
    assert made.on_timer(now=0.0) == [Fetch(0, 4), Wake(1, "no-capacity")]


def test_the_window_is_filled_up_once_half_of_it_is_free_and_not_before() -> None:
    spec = QueueSpec(concurrency_max=1, window_max=6)
    made = AsyncQueue(spec, backlog=100)
    made.configure(spec, ready=0, now=0.0)
    window = [request(number, expires=10.0 * number) for number in range(1, 7)]
    made.overdue([], now=0.0)
    made.loaded(window, whole=True, now=0.0)
    made.overdue([], now=0.0)
    fetches = []
    for number in (1, 2, 3):
        actions = made.on_timer(now=10.0 * number)
        fetches.append([one for one in actions if isinstance(one, Fetch)])
    assert fetches == [[], [], [Fetch(6, 3)]]


def test_what_expires_out_of_the_middle_leaves_the_others_in_their_order() -> None:
    spec = QueueSpec(concurrency_max=9)
    numbers = (1, 5, 2, 6, 7, 3, 4)
    made, _ = queue(
        *[request(number, expires=5.0 if number == 1 else NEVER) for number in numbers],
        ready=0, spec=spec,
    )  # fmt: skip
    assert made.on_timer(now=5.0) == [FailRequest(1, "expired")]
    assert sent(made.configure(spec, ready=1, now=6.0)) == [2, 3, 4, 5, 6, 7]


def test_those_that_are_put_off_expire_where_they_are() -> None:
    made, _ = queue(request(1, expires=0.9), *[request(number) for number in (2, 3, 4)])
    assert sent(refuse(made, 1, "input-unreachable", 0.0)) == [3]
    assert sent(refuse(made, 2, "input-unreachable", 0.2)) == [4]
    assert made.next_deadline() == 0.9
    assert made.on_timer(now=0.9) == [FailRequest(1, "expired")]
    made.check_invariants()
    assert made.next_deadline() == 1.2
    assert made.on_timer(now=1.2) == []
    assert sent(finish(made, 3, 1.3)) == [2]


def test_what_ended_well_before_the_record_is_read_is_forgotten() -> None:
    made, _ = queue(request(1), request(2))
    finish(made, 1, 0.0)
    made.check_invariants()
    made.accepted(1, now=1.0)
    finish(made, 2, 1.0)
    made.loaded([request(2), request(3)], whole=False, now=1.0)
    made.check_invariants()
    assert made.backlog == 1


def test_a_pause_is_never_longer_than_the_most() -> None:
    made, _ = queue(request(1))
    assert refuse(made, 1, "rate", 0.0, retry_after_s=1000.0) == []
    assert made.next_deadline() == 8.0


def test_where_its_own_input_is_out_of_reach_others_go_on_and_it_comes_back_to_its_place() -> None:
    made, _ = queue(*[request(number) for number in (1, 2, 3, 4)])
    assert refuse(made, 1, "input-unreachable", 0.0) == [Send(3, 900.0, "copy-free")]
    assert made.next_deadline() == 1.0
    assert made.on_timer(now=1.0) == []  # two are sent already
    assert finish(made, 2, 1.5) == [Send(1, 900.0, "tried-again")]
    assert refuse(made, 1, "input-unreachable", 2.0) == [Send(4, 900.0, "copy-free")]
    assert made.next_deadline() == 4.0
    made.check_invariants()


def test_an_answer_that_could_not_be_written_is_written_again_with_growing_pauses() -> None:
    """Its time to live was for being sent: 6 s here, which pass."""
    made, _ = queue(request(1, expires=6.0))
    assert made.answered(1, now=0.0) == []
    for at, due in ((0.0, 1.0), (1.0, 3.0), (3.0, 7.0), (7.0, 15.0), (15.0, 23.0)):
        assert made.unwritten(1, kept=True, now=at) == []
        assert made.next_deadline() == due
        assert made.on_timer(now=due) == [Write(1, "tried-again")]
    made.check_invariants()
    assert made.ended(1, now=23.0) == []


def test_an_answer_that_could_not_be_kept_is_computed_again_and_does_not_expire() -> None:
    made, _ = queue(request(1, expires=1.2))
    assert made.answered(1, now=0.0) == []
    assert made.unwritten(1, kept=False, now=0.5) == []
    assert made.next_deadline() == 1.5
    assert made.on_timer(now=1.5) == [Send(1, 900.0, "tried-again")]
    made.check_invariants()
    assert finish(made, 1, 2.0) == []


def test_where_outputs_can_not_be_written_no_more_are_computed_than_are_kept() -> None:
    made, _ = queue(*[request(number) for number in (1, 2, 3, 4, 5, 6)])
    for number in (1, 2):  # two at once on the copy, so that 3 and 4 are sent
        made.answered(number, now=0.0)
        made.unwritten(number, kept=True, now=0.0)
    assert made.answered(3, now=0.5) == [Send(5, 900.0, "copy-free")]
    assert made.answered(4, now=0.5) == []  # four answers are there already
    assert made.unwritten(3, kept=True, now=0.5) == []
    assert made.on_timer(now=1.0) == [Write(1, "tried-again"), Write(2, "tried-again")]
    assert made.ended(1, now=1.1) == [Send(6, 900.0, "copy-free")]
    made.check_invariants()


def test_an_answer_whose_place_never_comes_back_is_given_up_in_the_end() -> None:
    spec = QueueSpec(concurrency_max=1, outcome_s_max=100.0)
    made, _ = queue(request(1, expires=10.0), spec=spec)
    made.answered(1, now=0.0)
    assert made.unwritten(1, kept=True, now=109.9) == []
    assert made.on_timer(now=110.9) == [Write(1, "tried-again")]
    assert made.unwritten(1, kept=True, now=110.9) == [
        FailRequest(1, "output-unwritten", last=True)
    ]
    made.check_invariants()


def test_those_that_are_put_off_are_bounded_too() -> None:
    made = AsyncQueue(SPEC, backlog=1000)
    made.configure(SPEC, ready=1, now=0.0)
    number = 0
    fetched = True
    while fetched:
        found = [request(number + at) for at in (1, 2)]
        number += 2
        actions = made.loaded(found, whole=True, now=0.0)
        for one in sent(actions):
            actions += refuse(made, one, "input-unreachable", 0.0)
        fetched = any(isinstance(one, Fetch) for one in actions)
    assert made.snapshot()["put-off"] == 34  # eight windows of four, and the last fetch


@pytest.mark.parametrize(
    ("family", "code", "reason"),
    [
        ("model", "crash", "model-failed"),
        ("caller", "bad-shape", "refused"),
        ("internal", "bug", "internal"),
        ("not-now", "deadline-passed", "invocation-timeout"),
        ("not-now", "deadline-cannot-be-met", "invocation-timeout"),
    ],
)
def test_what_trying_again_cannot_help_fails(family: str, code: str, reason: str) -> None:
    made, _ = queue(request(1))
    assert refuse(made, 1, code, 1.0, family=family) == [FailRequest(1, reason)]
    assert made.ended(1, now=1.0) == []


def test_an_endpoint_that_is_not_known_yet_is_waited_for() -> None:
    made, _ = queue(request(1))
    assert refuse(made, 1, "endpoint-not-found", 0.0, family="caller") == []
    assert made.next_deadline() == 1.0


def test_a_request_that_loses_its_copies_again_and_again_fails() -> None:
    made, _ = queue(request(1))
    assert refuse(made, 1, "copies-lost", 0.0) == []
    assert sent(made.on_timer(now=1.0)) == [1]
    assert refuse(made, 1, "stream-broken", 1.0) == []
    assert sent(made.on_timer(now=3.0)) == [1]
    assert refuse(made, 1, "copies-lost", 4.0) == [FailRequest(1, "copies-lost")]


def test_a_request_whose_workers_died_is_put_off_alone_and_fails_the_third_time() -> None:
    """Who kills workers at the moment may have stopped by then; those behind it are not held up."""
    made, _ = queue(request(1), request(2), request(3))
    died = {"code": "model-worker-died", "family": "model"}
    assert refuse(made, 1, now=0.0, **died) == [Send(3, 900.0, "copy-free")]
    assert finish(made, 2, 0.5) == []
    assert made.on_timer(now=1.0) == [Send(1, 900.0, "tried-again", suspect=True)]
    assert finish(made, 3, 1.0) == []
    assert refuse(made, 1, now=1.1, **died) == []
    made.check_invariants()
    assert made.on_timer(now=3.0) == []
    assert made.on_timer(now=3.1) == [Send(1, 900.0, "tried-again", suspect=True)]
    assert refuse(made, 1, now=3.2, **died) == [FailRequest(1, "model-failed")]
    made.check_invariants()
    assert made.ended(1, now=3.3) == []


def test_what_waits_for_an_endpoint_that_is_deleted_fails_and_so_does_what_comes_back() -> None:
    made, _ = queue(request(1), request(2), request(3))
    refuse(made, 2, "input-unreachable", 0.0)
    assert made.close("endpoint-deleted", now=0.5) == [FailRequest(2, "endpoint-deleted")]
    made.check_invariants()
    assert refuse(made, 1, "endpoint-not-found", 1.0, family="caller") == [
        FailRequest(1, "endpoint-deleted")
    ]
    assert made.answered(3, now=1.0) == []
    assert made.ended(3, now=1.0) == []
    assert made.accepted(1, now=2.0) == [Fetch(3, 4)]
    assert made.loaded([request(4)], whole=False, now=2.0) == [FailRequest(4, "endpoint-deleted")]
    made.check_invariants()


def test_a_failure_that_cannot_be_written_down_is_tried_again_and_the_last_time_is_named() -> None:
    spec = QueueSpec(concurrency_max=1, outcome_s_max=0.5)
    made, _ = queue(request(1, expires=100.0), spec=spec)
    assert refuse(made, 1, "crash", 0.0, family="model") == [FailRequest(1, "model-failed")]
    assert refuse(made, 1, "output-unreachable", 99.5) == []
    # Neither does it expire meanwhile, nor is it sent again, nor does its endpoint's end change it.
    assert made.on_timer(now=100.0) == []
    assert made.close("endpoint-deleted", now=100.0) == []
    assert made.on_timer(now=100.5) == [FailRequest(1, "model-failed", last=True)]
    assert made.ended(1, now=101.0) == []
    assert made.snapshot() == {
        "backlog": 0, "ready": 1, "paused_until": None,
        "waiting": 0, "put-off": 0, "sent": 0, "answered": 0, "unwritten": 0, "ending": 0,
    }  # fmt: skip


#: What a copy's answer can be, but for the answer.
CODES = {
    "refuse": "all-copies-full",
    "own": "input-unreachable",
    "crash": "crash",
    "died": "model-worker-died",
}
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ("accept", "answer", "end", "ready", "later", "unwritten", "kept", "lost", *CODES)
        ),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(EVENTS)
def test_every_request_ends_once_and_none_is_lost(events: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order; and at its deadline the timer acts or moves it."""
    made = AsyncQueue(SPEC, backlog=0)
    world = _World(made)
    for what, which in events:
        world.step(what, which)
        made.check_invariants()
    world.settle()
    assert world.record == {}
    assert made.backlog == 0
    assert sorted(world.done) == list(range(1, world.last + 1))


class _World:
    """A record, copies and a clock around one machine."""

    def __init__(self, made: AsyncQueue) -> None:
        self.made = made
        self.now = 0.0
        self.last = 0
        self.record: dict[int, Accepted] = {}
        self.sent: list[int] = []
        self.answered: list[int] = []
        self.failing: list[int] = []
        self.done: list[int] = []
        self.carry(made.configure(SPEC, ready=1, now=0.0))

    def carry(self, actions: list[Action]) -> None:
        for one in actions:
            if isinstance(one, Send):
                self.sent.append(one.number)
            elif isinstance(one, Write):
                self.answered.append(one.number)
            elif isinstance(one, FailRequest):
                self.failing.append(one.number)
            elif isinstance(one, Fetch):
                found = [r for n, r in sorted(self.record.items()) if n > one.after][: one.count]
                whole = len(found) == one.count
                self.carry(self.made.loaded(found, whole=whole, now=self.now))
            elif isinstance(one, FetchOverdue):
                found = [r for _, r in sorted(self.record.items()) if self.now >= r.expires]
                self.carry(self.made.overdue(found[: one.count], now=self.now))

    def step(self, what: str, which: int) -> None:
        made, now = self.made, self.now
        if what == "accept":
            self.last += 1
            self.record[self.last] = request(self.last, expires=now + 60.0 * which + 60.0)
            self.carry(made.accepted(1, now=now))
        elif what == "ready":
            self.carry(made.configure(SPEC, ready=which, now=now))
        elif what == "later":
            due = made.next_deadline()
            if due is not None:
                self.now = max(now, due)
                self.carry(made.on_timer(now=self.now))
                again = made.next_deadline()
                assert again is None or again > self.now or self.sent or self.failing
        elif what == "answer" and self.sent:
            number = self.sent.pop(which % len(self.sent))
            self.answered.append(number)
            self.carry(made.answered(number, now=now))
        elif what in CODES and self.sent:
            number = self.sent.pop(which % len(self.sent))
            code = CODES[what]
            family = "model" if what in ("crash", "died") else "not-now"
            self.carry(refuse(made, number, code, now, family=family))
        elif what in ("kept", "lost") and self.answered:
            number = self.answered.pop(which % len(self.answered))
            self.carry(made.unwritten(number, kept=what == "kept", now=now))
        elif what == "unwritten" and self.failing:
            self.carry(refuse(made, self.failing.pop(0), "output-unreachable", now))
        elif what == "end" and (self.answered or self.failing):
            self.end((self.answered or self.failing).pop(0))

    def end(self, number: int) -> None:
        del self.record[number]
        self.done.append(number)
        self.carry(self.made.ended(number, now=self.now))

    def settle(self) -> None:
        self.step("ready", 2)
        for _ in range(10 * self.last + 10):
            self.step("later", 0)
            while self.sent or self.answered or self.failing:
                self.step("answer", 0)
                self.step("end", 0)


# Notifications that were not delivered: when they are sent again, and for how long.


def test_it_is_sent_again_after_twice_the_time_but_never_more_than_twenty_minutes() -> None:
    times = [decide(made=100.0, tries=tries, now=1000.0).at for tries in (1, 2, 3, 11, 12, 99)]
    assert times == [1001.0, 1002.0, 1004.0, 2024.0, 2200.0, 2200.0]


def test_after_a_day_it_is_given_up() -> None:
    assert decide(made=100.0, tries=1, now=86_499.0) == Retry(86_500.0, "not-delivered")
    assert decide(made=100.0, tries=1, now=86_499.5) == Retry(None, "given-up")
