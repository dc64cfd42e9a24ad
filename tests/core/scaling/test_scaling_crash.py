"""A crash does not scale in: readiness, errors and arrivals are looked at, not the metric alone."""

from __future__ import annotations

from tests.kit.core_scaling import asked, fired, low, scaler, seen, steps, tracking, watch


def came_in(machine, at: float, **more: int) -> list:  # type: ignore[no-untyped-def, type-arg]
    """What a low alarm comes to, which looked at 112 s: (9 + 2) periods and 2 s on the way."""
    return asked(machine.on_alarm(low("track", 0.5, at=at), seen(at, 6, **more)))


def test_a_low_metric_is_believed_where_all_answered_all_the_time() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 300, 6)
    assert came_in(machine, 300.0) == [(6, 1, "target-tracking")]


def test_copies_that_are_down_do_not_scale_in() -> None:
    """Two of six crashed: what they had in flight is gone from the metric, not from the world."""
    machine = scaler(tracking())
    watch(machine, 0, 300, 6)
    watch(machine, 300, 320, 6, ready=4)
    assert came_in(machine, 320.0, ready=4) == []
    assert machine.decisions()[-1].reason == "copies-not-ready"


def test_a_crash_is_remembered_as_long_as_the_alarm_looks_back() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 300, 6)
    watch(machine, 300, 301, 6, ready=5)  # down for a single second
    watch(machine, 301, 412, 6)
    assert came_in(machine, 412.0) == []
    assert machine.decisions()[-1].reason == "copies-were-not-ready"
    assert came_in(machine, 413.0) == [(6, 1, "target-tracking")]


def test_requests_that_fail_at_once_do_not_scale_in() -> None:
    """A model that answers 500 in no time has no requests in flight (the seed's crash)."""
    machine = scaler(tracking())
    for second in range(300):
        machine.on_observed(seen(second, 6, arrivals=100 * second, errors=10 * second))
    assert came_in(machine, 300.0, arrivals=30_000, errors=3_000) == []
    assert machine.decisions()[-1].reason == "requests-fail"


def test_a_few_errors_are_no_crash() -> None:
    machine = scaler(tracking())
    for second in range(300):
        machine.on_observed(seen(second, 6, arrivals=100 * second, errors=4 * second))
    assert came_in(machine, 300.0, arrivals=30_000, errors=1_200) == [(6, 1, "target-tracking")]


def test_counters_that_begin_anew_are_no_error() -> None:
    """The server was started again: its counts are small, not negative."""
    machine = scaler(tracking())
    watch(machine, 0, 100, 6, arrivals=10_000, errors=400)
    watch(machine, 100, 300, 6, arrivals=30, errors=0)
    assert came_in(machine, 300.0, arrivals=30, errors=0) == [(6, 1, "target-tracking")]


def test_a_server_that_just_started_does_not_scale_in() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 10, 6, ready=0)
    watch(machine, 10, 60, 6)
    assert came_in(machine, 60.0) == []


def test_the_seeds_guard_works_too() -> None:
    """A policy on invocations beside the one on concurrency: traffic goes on, nothing comes in."""
    machine = scaler(tracking("track"), tracking("guard", 100.0))
    watch(machine, 0, 300, 6)
    machine.on_alarm(fired("guard", 90.0, at=300.0, threshold=100.0), seen(300.0, 6))
    assert came_in(machine, 300.5) == []


def test_a_step_policy_does_not_come_in_for_a_crash_either() -> None:
    machine = scaler(steps((None, 0, -2)))
    watch(machine, 0, 300, 6)
    watch(machine, 300, 320, 6, ready=4)
    assert asked(machine.on_alarm(low("step", 0.0, at=320.0), seen(320.0, 6, ready=4))) == []
