"""What becomes of a request that its copy gave back: every step, and why."""

from __future__ import annotations

import pytest

from penstock.core.blame.poison_requests import FRESH, Past
from penstock.core.request.retry import (
    HELD_MAX,
    RetryStep,
    next_retry,
    when_held,
    when_picked,
    when_returned,
)
from penstock.core.routing import CopyState, NoRoute, Routed


def routed(copy: int) -> Routed:
    state = CopyState(copy=copy, instance_id="i", variant="blue", outstanding_max=9)
    return Routed(state, "blue", "retry", 1)


ROUTE = RetryStep("route", "returned")
DIED_TWICE = RetryStep("fail", "worker-died-twice")
LOST = RetryStep("give-up", "instances-lost")

#: What a request comes back with, return by return, and what becomes of it each time.
TIMELINES: dict[str, list[tuple[str, RetryStep]]] = {
    "two workers died under it: it is not sent to a third": [
        ("worker-died", ROUTE),
        ("worker-died", DIED_TWICE),
    ],
    "instances that are killed say nothing of it, but four are too many": [
        ("connection-lost", ROUTE),
        ("connection-lost", ROUTE),
        ("connection-lost", ROUTE),
        ("connection-lost", LOST),
    ],
    "what had not begun is not counted": [
        (reason, ROUTE)
        for reason in (
            "copy-lost", "copy-failed", "copy-closed", "draining", "unknown-copy", "worker-lost",
            "another-is-tried-alone", "a reason of a later version",
        )
    ] * 3,
}  # fmt: skip


@pytest.mark.parametrize("story", TIMELINES)
def test_what_becomes_of_a_request_that_came_back(story: str) -> None:
    past = FRESH
    steps = []
    for reason, _ in TIMELINES[story]:
        past = past.after(reason)
        steps.append(when_returned(past))
    assert steps == [step for _, step in TIMELINES[story]]


def test_an_answer_that_has_begun_cannot_be_begun_again() -> None:
    assert when_returned(Past(deaths=1), streamed=True) == RetryStep("fail", "stream-broken")


def test_another_copy_gets_it_at_once() -> None:
    assert when_picked(routed(2), failures=(1,), was_held=False) == RetryStep("send", "copy-found")


def test_the_copy_that_gave_it_back_gets_it_only_after_it_was_held() -> None:
    at_once = when_picked(routed(1), failures=(1,), was_held=False)
    assert at_once == RetryStep("hold", "only-the-copy-that-returned-it", releases=True)
    assert when_picked(routed(1), failures=(1,), was_held=True) == RetryStep("send", "copy-found")


def test_without_a_copy_it_is_held() -> None:
    for reason in ("no-copies", "no-healthy-copy", "all-copies-full"):
        answer = NoRoute(reason, 1.0)
        step = when_picked(answer, failures=(1,), was_held=True, pinned=True)
        assert step == RetryStep("hold", "no-copy-now")


def test_a_variant_that_left_is_replaced_unless_its_caller_named_it() -> None:
    gone = NoRoute("unknown-variant", None)
    assert when_picked(gone, failures=(), was_held=False) == RetryStep(
        "route-any-variant", "variant-gone"
    )
    assert when_picked(gone, failures=(), was_held=False, pinned=True) == RetryStep(
        "fail", "variant-gone"
    )


def test_the_number_of_those_held_is_bounded() -> None:
    assert when_held(held=HELD_MAX - 1) == RetryStep("hold", "no-copy-now")
    assert when_held(held=HELD_MAX) == RetryStep("give-up", "too-many-held")


def test_held_requests_are_looked_at_again_after_a_twentieth_of_a_second() -> None:
    assert next_retry(now=10.0) == 10.05


def test_a_request_of_a_session_that_is_lost_fails() -> None:
    """Held, it would wait for a state that no copy has."""
    for reason in ("session-lost", "session-unknown"):
        step = when_picked(NoRoute(reason, None), failures=(1,), was_held=False)
        assert step == RetryStep("fail", "session-gone")
