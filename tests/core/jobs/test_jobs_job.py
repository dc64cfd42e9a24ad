"""One transform job, as timelines: what it says at each thing that it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.jobs.job import TransformJob
from penstock.core.jobs.job_actions import (
    AWAY,
    COMPLETED,
    CRASH,
    FAILED,
    FULL,
    LATER,
    STOPPED,
    TAKEN,
    WRONG,
    Action,
    AssembleObject,
    EndJob,
    FailObject,
    JobPolicy,
    KeepCase,
    NotDone,
    ReleaseCapacity,
    RunSpan,
    StopSpans,
)
from penstock.core.jobs.spec import InputObject, Span, SpanDone

RELEASE = ReleaseCapacity("no-span-left")
DONE = EndJob(COMPLETED, "", "all-objects-done")
PASSING = NotDone(LATER, "the copy was full")
NO_ROOM = NotDone(FULL, "no room on the disk")
NO_INPUT = NotDone(AWAY, "the store answered 503")


def span(one: int, number: int) -> Span:
    return Span(object=one, number=number, start=number * 100, stop=number * 100 + 100)


def done(one: int, number: int, refused: int = 0) -> SpanDone:
    return SpanDone(
        object=one, span=number, records=10, refused=refused, bytes_in=100, bytes_out=50, run_s=1.0
    )


class Job:
    """A job over objects of so many spans each, called a, b, c; one span at once on a copy."""

    def __init__(self, *counts: int, policy: JobPolicy | None = None, **recorded: Any) -> None:
        objects = [
            InputObject(number=at, key="abc"[at], uri="file:///x", size=100 * count, stamp="1")
            for at, count in enumerate(counts)
        ]
        spans = [span(at, number) for at, count in enumerate(counts) for number in range(count)]
        self.machine = TransformJob(
            objects, spans, policy or JobPolicy(spans_at_once=1), **recorded
        )

    def checked(self, actions: Sequence[Action]) -> list[Action]:
        self.machine.check_invariants()
        return list(actions)

    def begin(self, now: float = 0.0) -> list[Action]:
        return self.checked(self.machine.begin(now=now))

    def copies(self, *copies: int, now: float = 0.0) -> list[Action]:
        return self.checked(self.machine.copies(copies, now=now))

    def done(self, one: int, number: int, refused: int = 0, now: float = 0.0) -> list[Action]:
        words = "record 3 at byte 30: no number" if refused else ""
        result = done(one, number, refused)
        return self.checked(self.machine.done(span(one, number), result, words, now=now))

    def not_done(self, one: int, number: int, why: NotDone, now: float = 0.0) -> list[Action]:
        return self.checked(self.machine.not_done(span(one, number), why, now=now))

    def assembled(self, number: int, now: float = 0.0) -> list[Action]:
        return self.checked(self.machine.assembled(number, now=now))

    def not_assembled(self, number: int, why: NotDone, now: float = 0.0) -> list[Action]:
        return self.checked(self.machine.not_assembled(number, why, now=now))

    def timer(self, now: float) -> list[Action]:
        return self.checked(self.machine.on_timer(now=now))


def run(
    copy: int,
    one: int,
    number: int,
    reason: str = "next-in-share",
    case: CrashCase | None = None,
) -> RunSpan:
    return RunSpan(copy, span(one, number), reason, case)


def keep(one: int, number: int, case: CrashCase, reason: str = "instance-ended") -> KeepCase:
    return KeepCase(one, number, case, reason)


def whole(number: int) -> AssembleObject:
    return AssembleObject(number, "object-whole")


def test_a_job_from_its_first_span_to_its_end() -> None:
    job = Job(2, 1)
    assert job.begin() == []  # no copy yet
    assert job.copies(7) == [run(7, 0, 0)]
    assert job.done(0, 0) == [run(7, 0, 1)]
    assert job.done(0, 1) == [run(7, 1, 0), whole(0)]
    assert job.done(1, 0) == [whole(1), RELEASE]  # outputs need no copies
    assert job.assembled(1) == []
    assert job.assembled(0) == [DONE]
    assert job.machine.ended
    assert job.copies(7) == []


def test_the_next_span_is_read_while_one_runs() -> None:
    job = Job(5, policy=JobPolicy())
    job.begin()
    assert job.copies(1, 2) == [run(1, 0, 0), run(2, 0, 3), run(1, 0, 1), run(2, 0, 4)]
    assert job.done(0, 0) == [run(1, 0, 2)]


def test_of_few_spans_each_copy_has_one_before_any_has_two() -> None:
    job = Job(2, policy=JobPolicy(spans_at_once=2))
    job.begin()
    assert job.copies(1, 2) == [run(1, 0, 0), run(2, 0, 1)]


def test_a_copy_that_comes_late_steals() -> None:
    job = Job(5)
    job.begin()
    assert job.copies(1) == [run(1, 0, 0)]
    assert job.copies(1, 2) == [run(2, 0, 3, "stolen")]


def test_what_an_instance_had_when_it_was_taken_away_is_done_again_at_once_and_often() -> None:
    """Online work needed its memory: nobody's fault, so nobody counts."""
    job = Job(1)
    job.begin()
    job.copies(1)
    for copy in range(1, 50):
        job.copies(now=1.0)
        assert job.not_done(0, 0, NotDone(TAKEN, "gone"), now=1.0) == []
        assert job.copies(copy + 1, now=1.0) == [run(copy + 1, 0, 0, "again")]


def test_a_span_that_can_not_be_done_now_waits_longer_each_time_then_fails_its_object() -> None:
    job = Job(1)
    job.begin()
    job.copies(1)
    now = 10.0
    for pause_s in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0):
        assert job.not_done(0, 0, PASSING, now=now) == []
        assert job.machine.next_deadline() == now + pause_s
        assert job.timer(now + pause_s - 0.1) == []
        now += pause_s
        assert job.timer(now) == [run(1, 0, 0, "again")]
        assert job.machine.next_deadline() is None
    why = "a: bytes 0 to 100: tried 8 times: the copy was full"
    assert job.not_done(0, 0, PASSING, now=now) == [
        FailObject(0, why, "span-attempts"),
        RELEASE,
        EndJob(FAILED, why, "objects-failed"),
    ]


def test_the_pause_has_an_upper_bound() -> None:
    job = Job(1, policy=JobPolicy(spans_at_once=1, attempts_max=100))
    job.begin()
    job.copies(1)
    now, pauses = 0.0, []
    for _ in range(9):
        job.not_done(0, 0, PASSING, now=now)
        due = job.machine.next_deadline()
        assert due is not None
        pauses.append(due - now)
        now = due
        assert job.timer(now) == [run(1, 0, 0, "again")]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_span_whose_instance_crashed_is_done_again_alone() -> None:
    """Two spans were on it; the second one is the cause, and the first is not blamed for it."""
    job = Job(4, policy=JobPolicy(spans_at_once=2, crashes_max=2))
    job.begin()
    assert job.copies(1) == [run(1, 0, 0), run(1, 0, 1)]
    unknown, reading = NotDone(CRASH, "signal 11"), NotDone(CRASH, "signal 11", ())
    job.copies(now=1.0)
    assert job.not_done(0, 0, unknown, now=1.0) == [keep(0, 0, CrashCase(tries=1))]
    assert job.not_done(0, 1, unknown, now=1.0) == [keep(0, 1, CrashCase(tries=1))]
    # nothing beside it
    assert job.copies(2, now=2.0) == [run(2, 0, 0, "again", CrashCase(tries=1))]
    assert job.done(0, 0, now=3.0) == [run(2, 0, 1, "again", CrashCase(tries=1))]
    job.copies(now=4.0)
    case = CrashCase(tries=2, deaths=1, common=(-1,))
    assert job.not_done(0, 1, reading, now=4.0) == [keep(0, 1, case)]
    assert job.copies(3, now=6.0) == [run(3, 0, 1, "again", case)]
    job.copies(now=7.0)
    why = "a: bytes 100 to 200: 3 instances ended while they had it: signal 11"
    assert job.not_done(0, 1, reading, now=7.0) == [
        FailObject(0, why, "span-crashes"),
        RELEASE,
        EndJob(FAILED, why, "objects-failed"),
    ]


def test_a_record_that_ends_instances_is_found_and_the_others_are_written() -> None:
    job = Job(1, policy=JobPolicy(refused_max=1))
    job.begin()
    job.copies(1)
    whole_run = CrashCase(deaths=1, common=(4, 5, 6))
    cases = [
        CrashCase(tries=1),
        replace(whole_run, tries=2, suspects=(4, 5, 6)),
        replace(whole_run, tries=3, suspects=(5, 4, 6), first_deaths=1),
        replace(whole_run, tries=4, suspects=(5, 4, 6), first_deaths=2),
        CrashCase(suspects=(4, 6), refused=((5, "signal 8"),)),
    ]
    for copy, (at_work, case) in enumerate(
        zip((None, (4, 5, 6), (5,), (5,), (5,)), cases, strict=True), start=2
    ):
        job.copies()
        assert job.not_done(0, 0, NotDone(CRASH, "signal 8", at_work), now=copy) == [
            keep(0, 0, case)
        ]
        reason = "suspects-apart" if case.suspects else "again"
        assert job.copies(copy, now=copy + 0.5) == [run(copy, 0, 0, reason, case)]
    found = CrashCase(refused=((5, "signal 8"),))
    assert job.checked(job.machine.passed(span(0, 0), now=9.0)) == [
        keep(0, 0, found, "suspects-passed"),
        run(6, 0, 0, "again", found),
    ]
    assert job.done(0, 0, refused=1, now=9.0) == [whole(0), RELEASE]


def test_one_record_too_many_that_ends_instances_ends_the_search() -> None:
    """What is left is run once, for the object's errors; another death then is enough."""
    job = Job(1)
    job.begin()
    job.copies(1)
    found = CrashCase(refused=((5, "signal 8"),))
    for at_work in (None, (4, 5, 6), (5,), (5,)):
        job.not_done(0, 0, NotDone(CRASH, "signal 8", at_work))
        job.timer(1.0)
    assert job.not_done(0, 0, NotDone(CRASH, "signal 8", (5,)), now=1.0) == [
        keep(0, 0, found),
        run(1, 0, 0, "again", found),
    ]
    why = "a: bytes 0 to 100: record 5 of them ends the instances that have it: signal 8"
    assert job.not_done(0, 0, NotDone(CRASH, "signal 8", (6,)), now=2.0) == [
        FailObject(0, why, "span-crashes"),
        RELEASE,
        EndJob(FAILED, why, "objects-failed"),
    ]


def given_up(job: Job, *at_work: tuple[int, ...]) -> list[Any]:
    """Each whole run ends an instance, and its suspects pass: what the last death leads to."""
    actions: list[Any] = []
    for now, records in enumerate(at_work):
        actions = job.not_done(0, 0, NotDone(CRASH, "signal 8", records), now=100.0 * now)
        job.timer(100.0 * now + 50.0)
        if job.machine.running() and records is not at_work[-1]:
            job.checked(job.machine.passed(span(0, 0), now=100.0 * now + 60.0))
    return actions


def test_suspects_who_pass_and_yet_were_there_every_time_are_given_up() -> None:
    """Each is innocent by itself: it takes two of them."""
    job = Job(1, policy=JobPolicy(refused_max=None))
    job.begin()
    job.copies(1)
    why = "a: bytes 0 to 100: 5 instances ended while they had it: signal 8"
    actions = given_up(job, (4, 5), (3, 4, 5), (4, 5, 6), (4, 5, 7), (4, 5, 8))
    assert actions[0] == FailObject(0, why, "span-crashes")


def test_kills_by_chance_are_put_up_with_for_longer() -> None:
    """At no record do they meet; a machine that is failing is no good for ever."""
    job = Job(1, policy=JobPolicy(refused_max=None))
    job.begin()
    job.copies(1)
    why = "a: bytes 0 to 100: 16 instances ended while they had it: signal 8"
    actions = given_up(job, *[(at, at + 1) for at in range(0, 32, 2)])
    assert actions[0] == FailObject(0, why, "span-crashes")


def test_a_search_makes_no_pause_until_it_has_taken_many_instances() -> None:
    job = Job(1)
    job.begin()
    job.copies(1)
    now, pauses = 0.0, []
    for at_work in (None, (1, 2, 3), (1,), (2,), (3,), (1,), (2,), (3,), (1,)):
        job.not_done(0, 0, NotDone(CRASH, "x", at_work), now=now)
        due = job.machine.next_deadline()
        pauses.append(0.0 if due is None else due - now)
        now += pauses[-1]
        job.timer(now)
    assert pauses == [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 2.0]


def test_what_was_found_out_of_a_span_outlives_the_server() -> None:
    found = CrashCase(suspects=(4, 6), refused=((5, "signal 8"),))
    job = Job(2, cases={(0, 1): found})
    job.begin()
    assert job.copies(1, now=1.0) == [run(1, 0, 0)]
    assert job.done(0, 0, now=1.0) == [run(1, 0, 1, "suspects-apart", found)]
    job = Job(2, cases={(0, 1): found}, done=[done(0, 1, refused=1)])
    assert job.copies(1, now=1.0) == [run(1, 0, 0)]


def test_suspects_that_pass_after_a_stop_change_nothing_more() -> None:
    job = Job(1, cases={(0, 0): CrashCase(suspects=(4,))})
    job.begin()
    job.copies(1)
    job.machine.stop(now=1.0)
    assert job.checked(job.machine.passed(span(0, 0), now=2.0)) == [
        RELEASE,
        EndJob(STOPPED, "", "stop-asked"),
    ]


def test_others_are_done_while_a_crashed_span_waits_for_an_idle_copy() -> None:
    job = Job(6, policy=JobPolicy(spans_at_once=2))
    job.begin()
    job.copies(1, 2)  # 0 and 1 on the first, 3 and 4 on the second
    job.copies(2)
    job.not_done(0, 0, NotDone(CRASH, "x"), now=0.0)
    assert job.not_done(0, 1, NotDone(TAKEN, "x"), now=0.0) == []
    assert job.done(0, 3, now=1.0) == [run(2, 0, 1, "again")]  # the other one needs a copy alone
    assert job.done(0, 4, now=1.0) == [run(2, 0, 5)]
    assert job.done(0, 1, now=1.0) == [run(2, 0, 2)]
    assert job.done(0, 5, now=1.0) == []
    assert job.done(0, 2, now=1.0) == [run(2, 0, 0, "again", CrashCase(tries=1))]
    assert job.done(0, 0, now=1.0) == [whole(0), RELEASE]


def test_an_object_that_can_not_be_read_fails_and_the_others_are_gone_on_with() -> None:
    """As in SageMaker: the job has failed, what was processed whole has its output."""
    job = Job(3, 1, 1)
    job.begin()
    job.copies(1)
    why = "a: it was changed while it was read. Start anew."
    assert job.not_done(0, 0, NotDone(WRONG, "it was changed while it was read. Start anew.")) == [
        FailObject(0, why, "span-wrong"),
        run(1, 1, 0),
    ]
    assert job.done(1, 0) == [run(1, 2, 0), whole(1)]
    assert job.not_done(2, 0, NotDone(WRONG, "not UTF-8")) == [
        FailObject(2, "c: not UTF-8", "span-wrong"),
        RELEASE,
    ]
    assert job.assembled(1) == [
        EndJob(FAILED, f"{why} (1 other object failed too)", "objects-failed")
    ]


def test_a_refused_record_fails_its_object_where_none_may_be_refused() -> None:
    job = Job(2, 1)
    job.begin()
    job.copies(1)
    why = "a: record 3 at byte 30: no number"
    assert job.done(0, 0, refused=2) == [FailObject(0, why, "records-refused"), run(1, 1, 0)]
    assert job.done(1, 0) == [whole(1), RELEASE]
    assert job.assembled(1) == [EndJob(FAILED, why, "objects-failed")]


def test_what_still_runs_of_a_failed_object_changes_nothing_more() -> None:
    job = Job(3, policy=JobPolicy(spans_at_once=2))
    job.begin()
    job.copies(1)
    assert job.done(0, 0, refused=1) == [
        FailObject(0, "a: record 3 at byte 30: no number", "records-refused")
    ]
    assert job.done(0, 1, refused=1) == [
        RELEASE,
        EndJob(FAILED, "a: record 3 at byte 30: no number", "objects-failed"),
    ]


def test_up_to_so_many_refused_records_the_job_goes_on() -> None:
    job = Job(2, 1, policy=JobPolicy(spans_at_once=1, refused_max=5))
    job.begin()
    job.copies(1)
    assert job.done(0, 0, refused=3) == [run(1, 0, 1)]
    assert job.done(0, 1, refused=2) == [run(1, 1, 0), whole(0)]
    assert job.done(1, 0) == [whole(1), RELEASE]
    job.assembled(0)
    assert job.assembled(1) == [DONE]


def test_one_refused_record_too_many_ends_the_job() -> None:
    """What runs is stopped; an output that can still be put together is."""
    job = Job(1, 3, policy=JobPolicy(spans_at_once=1, refused_max=5))
    job.begin()
    job.copies(1, 2)
    assert job.done(0, 0, refused=6) == [
        StopSpans("refused-too-many"),
        whole(0),
    ]
    assert job.not_done(1, 1, NotDone(TAKEN, "stopped")) == [RELEASE]
    message = "6 records were refused, one of a: record 3 at byte 30: no number"
    assert job.assembled(0) == [EndJob(FAILED, message, "refused-too-many")]


def test_any_number_may_be_refused_where_it_is_said_so() -> None:
    job = Job(1, policy=JobPolicy(refused_max=None))
    job.begin()
    job.copies(1)
    assert job.done(0, 0, refused=10) == [whole(0), RELEASE]


def test_a_stop_ends_what_runs_and_keeps_what_is_whole() -> None:
    job = Job(1, 2)
    job.begin()
    job.copies(1, 2)
    assert job.done(0, 0) == [run(1, 1, 0), whole(0)]
    assert job.checked(job.machine.stop(now=1.0)) == [StopSpans("stop-asked")]
    assert job.checked(job.machine.stop(now=1.0)) == []
    assert job.not_done(1, 0, NotDone(TAKEN, "stopped")) == []
    assert job.copies(1, 2, 3) == []  # nothing is begun any more
    assert job.done(1, 1) == [RELEASE]  # it was quicker
    assert job.assembled(0) == [EndJob(STOPPED, "", "stop-asked")]


def test_what_does_not_stop_is_ended_with_its_instance() -> None:
    """A model's own code may take ten minutes for a request."""
    job = Job(1, policy=JobPolicy())
    job.begin()
    job.copies(1)
    assert job.machine.next_deadline() is None
    assert job.checked(job.machine.stop(now=5.0)) == [StopSpans("stop-asked")]
    assert job.machine.next_deadline() == 35.0
    assert job.timer(34.9) == []
    assert job.timer(35.0) == [ReleaseCapacity("stop-overdue")]
    assert job.machine.next_deadline() is None
    assert job.copies(now=35.1) == []
    assert job.not_done(0, 0, NotDone(TAKEN, "gone"), now=35.2) == [
        EndJob(STOPPED, "", "stop-asked")
    ]


def test_a_stop_before_anything_runs() -> None:
    job = Job(2)
    job.begin()
    assert job.checked(job.machine.stop(now=1.0)) == [
        RELEASE,
        EndJob(STOPPED, "", "stop-asked"),
    ]


def test_a_job_without_hope_of_a_copy_ends_with_the_reason() -> None:
    job = Job(2)
    job.begin()
    assert job.checked(job.machine.hopeless("the model is no model", now=1.0)) == [
        RELEASE,
        EndJob(FAILED, "the model is no model", "hopeless"),
    ]


def test_an_output_that_can_not_be_written_now_is_tried_again() -> None:
    job = Job(1, policy=JobPolicy(attempts_max=3))
    job.begin()
    job.copies(1)
    assert job.done(0, 0) == [whole(0), RELEASE]
    assert job.not_assembled(0, PASSING, now=10.0) == []
    assert job.machine.next_deadline() == 10.5
    assert job.timer(10.5) == [whole(0)]
    assert job.machine.next_deadline() is None
    assert job.not_assembled(0, PASSING, now=11.0) == []
    assert job.timer(12.0) == [whole(0)]
    assert job.not_assembled(0, PASSING, now=13.0) == [
        FailObject(0, "a: the copy was full", "output-attempts"),
        EndJob(FAILED, "a: the copy was full", "objects-failed"),
    ]


def test_an_output_that_never_can_be_written_fails_its_object_at_once() -> None:
    job = Job(1)
    job.begin()
    job.copies(1)
    job.done(0, 0)
    assert job.not_assembled(0, NotDone(WRONG, "read-only")) == [
        FailObject(0, "a: read-only", "output-wrong"),
        EndJob(FAILED, "a: read-only", "objects-failed"),
    ]


def test_a_full_disk_is_waited_for_and_nothing_new_is_begun_meanwhile() -> None:
    """Nobody else's output would fit either: it would be computed for nothing."""
    job = Job(3)
    job.copies(7)
    assert job.not_done(0, 0, NO_ROOM, now=10.0) == []
    assert job.machine.waits_for == "no room on the disk"
    at = 10.0
    for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0):  # more than attempts_max
        assert job.machine.next_deadline() == at + pause
        at += pause
        assert job.timer(at) == [run(7, 0, 0, "again")]
        assert job.machine.waits_for == "no room on the disk"
        assert job.not_done(0, 0, NO_ROOM, now=at) == []
    assert job.timer(at + 30.0) == [run(7, 0, 0, "again")]
    assert job.done(0, 0, now=at + 31.0) == [run(7, 0, 1)]
    assert job.machine.waits_for == ""


def test_an_object_whose_store_is_away_holds_up_no_other() -> None:
    job = Job(1, 1)
    job.copies(7)
    assert job.not_done(0, 0, NO_INPUT) == [run(7, 1, 0)]
    assert job.machine.waits_for == "the store answered 503"
    assert job.done(1, 0, now=0.1) == [whole(1)]
    assert job.timer(0.5) == [run(7, 0, 0, "again")]


def test_an_output_whose_place_takes_nothing_is_tried_for_a_day() -> None:
    job = Job(1, 1)
    job.copies(7)
    job.done(0, 0)
    assert job.done(1, 0) == [whole(1), RELEASE]
    assert job.assembled(1) == []
    assert job.not_assembled(0, NO_ROOM, now=100.0) == []
    assert job.machine.waits_for == "no room on the disk"
    assert job.timer(100.5) == [whole(0)]
    assert job.not_assembled(0, NO_ROOM, now=100.0 + 86_399.0) == []
    assert job.timer(100.0 + 86_400.0) == [whole(0)]
    failed = "a: no room on the disk"
    assert job.not_assembled(0, NO_ROOM, now=100.0 + 86_400.0) == [
        FailObject(0, failed, "storage-overdue"), EndJob(FAILED, failed, "objects-failed")
    ]  # fmt: skip


def test_a_span_that_can_not_be_written_for_a_day_fails_its_object() -> None:
    job = Job(1)
    job.copies(7)
    assert job.not_done(0, 0, NO_ROOM, now=0.0) == []
    assert job.timer(0.5) == [run(7, 0, 0, "again")]
    failed = "a: bytes 0 to 100: no room on the disk"
    assert job.not_done(0, 0, NO_ROOM, now=86_400.0) == [
        FailObject(0, failed, "storage-overdue"), RELEASE, EndJob(FAILED, failed, "objects-failed")
    ]  # fmt: skip
    assert job.machine.waits_for == ""


def test_a_stop_does_not_wait_for_a_disk_longer_than_for_anything_else() -> None:
    job = Job(1, policy=JobPolicy(attempts_max=2))
    job.copies(7)
    assert job.done(0, 0) == [whole(0), RELEASE]
    assert job.not_assembled(0, NO_ROOM, now=0.0) == []
    assert job.checked(job.machine.stop(now=0.1)) == []
    assert job.timer(0.5) == [whole(0)]
    assert job.not_assembled(0, NO_ROOM, now=0.6) == []
    assert job.timer(1.1) == [whole(0)]
    assert job.not_assembled(0, NO_ROOM, now=1.2)[-1] == EndJob(STOPPED, "", "stop-asked")


def test_it_goes_on_from_what_is_on_record() -> None:
    """Killed with one object in its place, one that had failed, and one half done."""
    job = Job(
        1, 2, 2,
        done=[done(0, 0), done(2, 0)], failed={1: "b: not UTF-8"}, assembled=[0],
    )  # fmt: skip
    assert job.begin() == []
    assert job.copies(1) == [run(1, 2, 1)]
    assert job.done(2, 1) == [whole(2), RELEASE]
    assert job.assembled(2) == [EndJob(FAILED, "b: not UTF-8", "objects-failed")]


def test_killed_when_all_spans_were_done_it_needs_no_copy() -> None:
    job = Job(1, 1, done=[done(0, 0), done(1, 0)], assembled=[0])
    assert job.begin() == [whole(1), RELEASE]
    assert job.assembled(1) == [DONE]


def test_killed_before_its_end_was_recorded() -> None:
    assert Job(1, done=[done(0, 0)], assembled=[0]).begin() == [RELEASE, DONE]


def test_killed_before_the_failure_of_an_object_with_refused_records_was_recorded() -> None:
    job = Job(2, done=[done(0, 0, refused=1)], refusals={0: "record 4 at byte 9: no"})
    why = "a: record 4 at byte 9: no"
    assert job.begin() == [
        FailObject(0, why, "records-refused"),
        RELEASE,
        EndJob(FAILED, why, "objects-failed"),
    ]


def test_killed_after_one_refused_record_too_many() -> None:
    policy = JobPolicy(refused_max=2)
    job = Job(2, policy=policy, done=[done(0, 0, refused=3)], refusals={0: "record 4: no"})
    message = "3 records were refused, one of a: record 4: no"
    assert job.begin() == [RELEASE, EndJob(FAILED, message, "refused-too-many")]


def test_refused_records_that_may_be_do_not_end_it_after_a_restart() -> None:
    policy = JobPolicy(refused_max=3)
    job = Job(2, policy=policy, done=[done(0, 0, refused=3)], refusals={0: "record 4: no"})
    assert job.begin() == []
    assert job.machine.waiting == 1
    assert job.machine.running() == {}
