"""What a job may hope for: copies that come, room that others hold, or never."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.deployment.endpoint_state import SlotFailure
from penstock.core.jobs.capacity import FINE, HOPELESS, SHORT, CapacityVerdict, decide, waits


def failure(reason: str, **fields: Any) -> SlotFailure:
    told = {"variant": "transform", "generation": 1, "ordinal": 0, "count": 1, "at": 5.0}
    return SlotFailure(**told | {"message": f"told of {reason}", "reason": reason} | fields)


def verdict(*failures: SlotFailure, **seen: Any) -> CapacityVerdict:
    return decide(failures, **{"copies": 0, "coming": 0, "answered": False} | seen)


def test_nothing_has_failed() -> None:
    assert verdict(coming=1) == CapacityVerdict(FINE)
    assert verdict() == CapacityVerdict(FINE)


def test_a_copy_that_answers_is_enough_whatever_befell_the_others() -> None:
    assert verdict(failure("load-failed", permanent=True), copies=1).outcome == FINE


def test_a_model_that_can_not_be_loaded_is_hopeless() -> None:
    told = verdict(failure("artifact-not-found", permanent=True), coming=1)
    assert told == CapacityVerdict(HOPELESS, "told of artifact-not-found")


@pytest.mark.parametrize("reason", ["larger-than-type", "larger-than-machine"])
def test_what_no_room_would_be_enough_for_is_hopeless(reason: str) -> None:
    assert verdict(failure(reason, permanent=True)).outcome == HOPELESS


@pytest.mark.parametrize(
    "reason", ["memory-taken", "memory-short", "memory-outgrown", "accelerators-taken"]
)
def test_room_that_others_hold_is_waited_for(reason: str) -> None:
    """The slot's failure is permanent, for an endpoint: nothing would change by trying again."""
    told = verdict(failure(reason, permanent=True, count=9))
    assert told == CapacityVerdict(SHORT, f"told of {reason}")
    assert verdict(failure(reason, permanent=True), coming=1).outcome == FINE


@pytest.mark.parametrize("reason", ["instance-exit", "worker-died"])
def test_what_keeps_ending_while_it_loads_is_hopeless_after_six(reason: str) -> None:
    assert verdict(failure(reason, count=5)).outcome == FINE
    assert verdict(failure(reason, count=6)).outcome == HOPELESS


def test_after_a_copy_has_answered_more_is_put_up_with() -> None:
    """A record that crashes its instance makes it start again a few times."""
    assert verdict(failure("instance-exit", count=9), answered=True).outcome == FINE
    assert verdict(failure("instance-exit", count=10), answered=True).outcome == HOPELESS


def test_a_guest_that_gets_no_core_is_tried_for_ever() -> None:
    for reason in ("start-timeout", "connection-lost", "instance-silent", "instance-gone"):
        assert verdict(failure(reason, count=99)).outcome == FINE


def test_the_lowest_slot_tells() -> None:
    told = verdict(failure("b", ordinal=1, permanent=True), failure("a", ordinal=0, permanent=True))
    assert told.message == "told of a"


@pytest.mark.parametrize(
    "reason", ["instance-start-still", "instance-stood-still", "instance-unreachable"]
)
def test_a_guest_that_gets_no_core_is_started_again_without_end(reason: str) -> None:
    assert verdict(failure(reason, count=99)).outcome == FINE


@pytest.mark.parametrize("reason", ["startup-timeout", "load-timeout"])
def test_a_model_that_loads_slowly_beside_others_gets_its_attempts(reason: str) -> None:
    assert verdict(failure(reason, permanent=True, count=5)).outcome == FINE
    assert verdict(failure(reason, permanent=True, count=6)).outcome == HOPELESS


def why(outcome: str = FINE, **seen: Any) -> str:
    nothing = {
        "again": False,
        "listed": True,
        "asked": True,
        "copies": 0,
        "starting": 0,
        "loading": 0,
    }
    return waits(outcome, **nothing | seen)


def test_a_job_that_computes_nothing_always_says_why() -> None:
    assert why(again=True, copies=1) == "taken-up-again"
    assert why(listed=False, asked=False) == "input-listing"
    assert why(asked=False) == "outputs-assembling"
    assert why(starting=2) == "instance-starting"
    assert why(starting=1, loading=1) == "model-loading"
    assert why() == "instance-starts-again"
    assert why(SHORT) == "room"
    assert why(copies=1, starting=1) == ""
