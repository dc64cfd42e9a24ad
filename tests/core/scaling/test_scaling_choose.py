"""`core/scaling/choose.py`: which request wins, when a low metric is trusted, how a change ends."""

from __future__ import annotations

import pytest
from tests.kit.core_scaling import steps, tracking

from penstock.core.scaling.actions import settled
from penstock.core.scaling.choose import (
    CountChoice,
    PolicyRequest,
    Scaled,
    against_scale_in,
    choose,
)
from penstock.core.scaling.observed import LoadObserved, LoadWindow
from penstock.core.scaling.spec import VARIANT

STEP = steps((0.0, None, 1))
POLICIES = (tracking("a"), tracking("b"), STEP)


def asks(policy: str, capacity: int | None, *, until: float = 60.0) -> PolicyRequest:
    return PolicyRequest(
        policy=policy, arn=f"arn:{policy}", capacity=capacity, reason=f"{policy} asks",
        alarm="", state="ALARM", values=(), at=0.0, until=until,
    )  # fmt: skip


def seen(
    capacity: int, ready: int | None = None, *, at: float = 0.0, **more: object
) -> LoadObserved:
    there = capacity if ready is None else ready
    return LoadObserved(at=at, capacity=capacity, ready=there, **more)


# requests


def test_the_largest_request_wins_and_of_equal_ones_the_first_by_name() -> None:
    a, b = asks("a", 3), asks("b", 4)
    assert choose(POLICIES, [a, b], 2, now=0.0) == CountChoice(4, b, "b asks")
    same = asks("a", 4)
    assert choose(POLICIES, [b, same], 2, now=0.0) == CountChoice(4, same, "a asks")


def test_a_request_for_the_present_count_keeps_it_and_gives_the_reason() -> None:
    stays, lower = asks("a", 4), asks("b", 2)
    assert choose(POLICIES, [lower, stays], 4, now=0.0) == CountChoice(4, stays, "a asks")


def test_a_request_that_lapsed_or_asks_for_nothing_does_not_count() -> None:
    requests = [asks("a", 9, until=10.0), asks("b", None)]
    assert choose(POLICIES, requests, 2, now=9.9).capacity == 9
    assert choose(POLICIES, requests, 2, now=10.0) == CountChoice(2, None, "no-wish")


def test_nothing_comes_in_until_every_tracking_policy_that_may_asks_for_it() -> None:
    a, b = asks("a", 2), asks("b", 1)
    assert choose(POLICIES, [a], 4, now=0.0) == CountChoice(4, a, "not-all-policies-agree")
    assert choose(POLICIES, [a, b], 4, now=0.0) == CountChoice(2, a, "a asks")
    never_in = (tracking("a"), tracking("b", disable_scale_in=True))
    assert choose(never_in, [a], 4, now=0.0) == CountChoice(2, a, "a asks")


def test_a_step_policy_comes_in_by_itself() -> None:
    step, a = asks("step", 3), asks("a", 2)
    assert choose(POLICIES, [step], 4, now=0.0) == CountChoice(3, step, "step asks")
    assert choose(POLICIES, [a, step], 4, now=0.0) == CountChoice(3, step, "step asks")


# evidence


def test_without_an_observation_of_the_last_ten_seconds_nothing_comes_in() -> None:
    window = LoadWindow()
    assert against_scale_in(window, since=0.0, now=0.0) == "observation-stale"
    window.add(seen(2))
    assert against_scale_in(window, since=0.0, now=9.9) == ""
    assert against_scale_in(window, since=0.0, now=10.0) == "observation-stale"


def test_load_is_trusted_while_one_request_in_twenty_fails_and_not_above() -> None:
    window = LoadWindow()
    window.add(seen(2))
    window.add(seen(2, at=1.0, arrivals=20, errors=1))
    assert against_scale_in(window, since=0.0, now=1.0) == ""
    window.add(seen(2, at=2.0, arrivals=39, errors=2))
    assert against_scale_in(window, since=0.0, now=2.0) == "requests-fail"


# ends


@pytest.mark.parametrize(
    ("last", "observed", "status", "reason"),
    [
        ((2, 4), seen(4, 4), "Successful", "capacity-reached"),
        ((4, 2), seen(2, 2), "Successful", "capacity-reached"),
        ((2, 2), seen(2, 1), "Successful", "capacity-reached"),  # no more copies are waited for
        ((2, 4), seen(4, 3, out_of_reach=True), "Unfulfilled", "capacity-out-of-reach"),
        ((2, 4), seen(2, failure="no room"), "Failed", "capacity-out-of-reach"),
        ((2, 4), seen(3), "Overridden", "capacity-changed"),
        ((2, 4), seen(3, failure="no room", settled=False), "Overridden", "capacity-changed"),
    ],
)
def test_a_change_ends_as_what_is_observed_says(
    last: tuple[int, int], observed: LoadObserved, status: str, reason: str
) -> None:
    change = Scaled(was=last[0], to=last[1], ended=None, cooldown_s=60.0)
    end = settled("one", change, observed, VARIANT)
    assert end is not None
    assert (end.activity_id, end.status, end.reason) == ("one", status, reason)


@pytest.mark.parametrize(("last", "ready"), [((2, 4), 3), ((4, 2), 3)])
def test_a_change_goes_on_until_as_many_copies_answer(last: tuple[int, int], ready: int) -> None:
    change = Scaled(was=last[0], to=last[1], ended=None, cooldown_s=60.0)
    assert settled("one", change, seen(last[1], ready), VARIANT) is None
