"""Any order of answers, failures, copies that come and go, and restarts: nothing lost, nothing
done twice, and an end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.jobs.job import TransformJob
from penstock.core.jobs.job_actions import (
    AWAY,
    COMPLETED,
    CRASH,
    FULL,
    LATER,
    TAKEN,
    Action,
    AssembleObject,
    EndJob,
    FailObject,
    JobPolicy,
    KeepCase,
    NotDone,
    RunSpan,
)
from penstock.core.jobs.spec import InputObject, Span, SpanDone

Key = tuple[int, int]


class JobWorld:
    """Carries out what the machine says, with what is durable kept apart from what is not."""

    def __init__(self, counts: list[int]) -> None:
        self.objects = [
            InputObject(number=at, key=f"o{at}", uri="file:///x", size=count, stamp="1")
            for at, count in enumerate(counts)
        ]
        self.spans = [
            Span(object=at, number=number, start=number, stop=number + 1)
            for at, count in enumerate(counts)
            for number in range(count)
        ]
        self.done: dict[Key, SpanDone] = {}
        self.assembled: set[int] = set()
        self.failed: dict[int, str] = {}
        self.cases: dict[Key, CrashCase] = {}
        self.ends: list[EndJob] = []
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        """What is not on record is lost."""
        self.running: dict[Key, RunSpan] = {}
        self.assembling: list[int] = []
        self.machine = TransformJob(
            self.objects, self.spans,
            JobPolicy(
                refused_max=None, attempts_max=10**9, crashes_max=10**9, crash_tries_max=10**9
            ),
            done=self.done.values(), failed=self.failed, assembled=self.assembled,
            cases=self.cases,
        )  # fmt: skip
        self.carry_out(self.machine.begin(now=self.now))

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case RunSpan(span=span):
                    key = span.object, span.number
                    assert key not in self.running, "on two copies at once"
                    assert key not in self.done, "done twice"
                    self.running[key] = action
                case AssembleObject(object=number):
                    assert number not in self.assembled
                    assert all(
                        (span.object, span.number) in self.done
                        for span in self.spans
                        if span.object == number
                    )
                    self.assembling.append(number)
                case KeepCase(object=number, span=span_number, case=found):
                    self.cases[number, span_number] = found
                case FailObject():
                    raise AssertionError("nothing here fails an object")
                case EndJob():
                    assert not self.ends, "ended twice"
                    assert not self.running
                    self.ends.append(action)
        self.machine.check_invariants()

    def step(self, what: int, which: int) -> None:
        self.now += 0.25
        now = self.now
        if what == 0:
            self.carry_out(self.machine.copies(range(which % 4), now=now))
        elif what == 1 and self.assembling:
            number = self.assembling.pop(which % len(self.assembling))
            self.assembled.add(number)
            self.carry_out(self.machine.assembled(number, now=now))
        elif what == 2 and not self.ends:
            self.restart()
        elif what == 3 and self.running:
            key = sorted(self.running)[which % len(self.running)]
            at_work = ((), (1, 2), (2,), (1, 2, 3))[which % 4]
            why = NotDone((TAKEN, CRASH, LATER, FULL, AWAY)[which % 5], "x", at_work)
            self.carry_out(self.machine.not_done(self.running.pop(key).span, why, now=now))
        elif what >= 4 and self.running:
            self.finish(sorted(self.running)[which % len(self.running)])

    def finish(self, key: Key) -> None:
        action = self.running.pop(key)
        span, case = action.span, action.case
        if case is not None and case.suspects:
            self.carry_out(self.machine.passed(span, now=self.now))
            return
        result = SpanDone(
            object=span.object, span=span.number, records=1, refused=0,
            bytes_in=1, bytes_out=1, run_s=0.0,
        )  # fmt: skip
        self.done[key] = result
        self.carry_out(self.machine.done(span, result, now=self.now))


@settings(max_examples=150, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 11)), max_size=60),
)
def test_whatever_happens_each_span_is_done_once_and_the_job_ends(
    counts: list[int], steps: list[tuple[int, int]]
) -> None:
    world = JobWorld(counts)
    for what, which in steps:
        world.step(what, which)
    # From here on all goes well.
    world.carry_out(world.machine.copies([1, 2], now=world.now))
    for _ in range(200):
        if world.ends:
            break
        deadline = world.machine.next_deadline()
        if world.running:
            world.finish(min(world.running))
        elif world.assembling:
            world.step(1, 0)
        else:
            assert deadline is not None, "nothing runs, and nothing will happen"
            assert deadline >= world.now
            world.now = deadline
            world.carry_out(world.machine.on_timer(now=deadline))
            assert world.running or world.ends or world.machine.next_deadline() != deadline
    assert world.ends == [EndJob(COMPLETED, "", "all-objects-done")]
    assert len(world.done) == sum(counts)
    assert world.assembled == set(range(len(counts)))
