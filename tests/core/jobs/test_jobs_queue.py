"""Which waiting jobs begin: priority, then fairness between owners, then age, within room."""

from __future__ import annotations

from typing import Any

from penstock.core.jobs.queue import JobRunning, JobWaiting, StartJob, decide


def waiting(name: str, **fields: Any) -> JobWaiting:
    return JobWaiting(
        **{"name": name, "owner": "a", "priority": 0, "created": 1.0, "instances": 1} | fields
    )


def running(name: str, **fields: Any) -> JobRunning:
    return JobRunning(**{"name": name, "owner": "a", "instances": 1} | fields)


def starts(*names: str) -> tuple[StartJob, ...]:
    return tuple(StartJob(name, "next-in-line") for name in names)


def test_one_job_always_runs_however_wide_it_is() -> None:
    decision = decide([waiting("wide", instances=50)], [], cores=2, now=0.0)
    assert decision.starts == starts("wide")
    assert decision.waits == ()


def test_the_higher_priority_goes_first_then_the_older() -> None:
    line = [
        waiting("old", created=1.0),
        waiting("older", created=0.5),
        waiting("urgent", created=9.0, priority=5),
    ]
    decision = decide(line, [], cores=2, now=0.0)
    assert decision.starts == starts("urgent", "older")
    assert decision.waits == (("old", "cores-taken"),)


def test_an_owner_with_nothing_running_goes_before_one_who_came_earlier() -> None:
    """`a` has put ten jobs into the line before `b` came with one."""
    line = [waiting(f"a{n}", created=float(n)) for n in range(10)]
    line.append(waiting("b", owner="b", created=99.0))
    decision = decide(line, [running("a-runs")], cores=3, now=0.0)
    assert decision.starts == starts("b", "a0")


def test_what_begins_in_the_same_turn_counts_for_its_owner() -> None:
    line = [waiting("a1"), waiting("a2", created=2.0), waiting("b", owner="b", created=3.0)]
    assert decide(line, [], cores=2, now=0.0).starts == starts("a1", "b")


def test_one_that_begins_counts_once_for_its_owner() -> None:
    line = [waiting(f"a{n}", created=float(n)) for n in range(3)]
    line += [waiting(f"b{n}", owner="b", created=9.0 + n) for n in range(3)]
    there = [running("r", owner="b")]
    # a0 makes it one each: a1 is older then. Counted twice, it would be b's turn.
    assert decide(line, there, cores=3, now=0.0).starts == starts("a0", "a1")


def test_priority_goes_before_fairness() -> None:
    line = [waiting("a", priority=1), waiting("b", owner="b")]
    assert decide(line, [running("r")], cores=2, now=0.0).starts == starts("a")


def test_nobody_overtakes_a_job_that_needs_more_room() -> None:
    line = [waiting("wide", instances=3), waiting("slim", created=2.0)]
    decision = decide(line, [running("r")], cores=3, now=0.0)
    assert decision.starts == ()
    assert decision.waits == (("wide", "cores-taken"), ("slim", "others-first"))


def test_what_had_begun_before_a_restart_goes_before_all_others() -> None:
    line = [waiting("urgent", priority=9), waiting("begun", begun=True, created=5.0)]
    decision = decide(line, [], cores=1, now=0.0)
    assert decision.starts == (StartJob("begun", "begun-before"),)
    assert decision.waits == (("urgent", "cores-taken"),)


def test_while_one_that_runs_waits_for_memory_no_other_begins() -> None:
    """For a minute: by then it is endpoints that hold it, and a smaller job may fit."""
    line, there = [waiting("next")], [running("short", short_since=100.0)]
    held = decide(line, there, cores=4, now=159.9)
    assert held.starts == ()
    assert held.waits == (("next", "room-short"),)
    assert held.next_deadline == 160.0
    after = decide(line, there, cores=4, now=160.0)
    assert after.starts == starts("next")
    assert after.next_deadline is None


def test_the_first_of_several_that_wait_for_memory_ends_the_wait() -> None:
    there = [running("a", short_since=100.0), running("b", short_since=130.0)]
    assert decide([waiting("next")], there, cores=4, now=140.0).next_deadline == 160.0


def test_an_empty_line_asks_for_nothing() -> None:
    decision = decide([], [running("r")], cores=1, now=0.0)
    assert (decision.starts, decision.waits, decision.next_deadline) == ((), (), None)
