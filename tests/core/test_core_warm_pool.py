"""`core/machine/warm_pool.py`: spare instance processes, one at a time, and not for ever."""

from __future__ import annotations

from penstock.core.machine.warm_pool import SparesDecision, SparesObserved, decide


def seen(
    ready: int = 0, starting: int = 0, *, failures: int = 0, failed_at: float = 0.0
) -> SparesObserved:
    return SparesObserved(ready=ready, starting=starting, failures=failures, failed_at=failed_at)


def test_spares_come_up_one_after_the_other_until_as_many_stand_ready_as_wished() -> None:
    assert decide(2, seen(), now=0.0) == SparesDecision(1, 0, None)
    assert decide(2, seen(starting=1), now=0.1) == SparesDecision(0, 0, None)
    assert decide(2, seen(1), now=0.5) == SparesDecision(1, 0, None)
    assert decide(2, seen(1, 1), now=0.6) == SparesDecision(0, 0, None)
    assert decide(2, seen(2), now=1.0) == SparesDecision(0, 0, None)


def test_one_that_was_taken_is_replaced() -> None:
    assert decide(1, seen(0), now=9.0) == SparesDecision(1, 0, None)


def test_none_is_started_where_none_is_wished_and_what_is_too_much_stops() -> None:
    assert decide(0, seen(), now=0.0) == SparesDecision(0, 0, None)
    assert decide(1, seen(3), now=0.0) == SparesDecision(0, 2, None)
    assert decide(0, seen(1, 1), now=0.0) == SparesDecision(0, 1, None)


def test_spares_that_keep_dying_are_replaced_ever_more_seldom() -> None:
    for failures, pause_s in ((1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (10_000, 30.0)):
        state = seen(failures=failures, failed_at=100.0)
        due = 100.0 + pause_s
        assert decide(1, state, now=due - 0.01) == SparesDecision(0, 0, due)
        assert decide(1, state, now=due) == SparesDecision(1, 0, None)
