"""What comes when no copy can take it: held or refused, and why."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core.deployment.deployment import ModelSource
from penstock.core.request.holding import (
    HOLD,
    REFUSE,
    HoldSpec,
    HoldStep,
    decide,
    zero_capacity_of,
)

SPEC = HoldSpec(count_max=3, bytes_max=100)
AWS = dataclasses.replace(SPEC, zero_capacity=REFUSE)
HELD = HoldStep("hold", "no-capacity")
REFUSED = HoldStep("refuse", "zero-capacity-refused")


def ask(spec: HoldSpec = SPEC, **changed: object) -> HoldStep:
    """A request of 10 bytes that may take until second 60, at second 50."""
    asked: dict[str, object] = {
        "zero_capacity": "",
        "others_wait": False,
        "held_count": 0,
        "held_bytes": 0,
        "body_bytes": 10,
        "ready_in_s": None,
        "deadline": 60.0,
        "now": 50.0,
    }
    return decide(spec, **(asked | changed))  # type: ignore[arg-type]


def test_it_is_held_where_nothing_is_known_against_it() -> None:
    assert ask() == HELD


def test_the_server_or_its_model_may_refuse_as_aws_does_and_the_model_has_the_last_word() -> None:
    assert ask(AWS) == REFUSED
    assert ask(AWS, zero_capacity=HOLD) == HELD
    assert ask(zero_capacity=REFUSE) == REFUSED


def test_the_number_of_those_held_is_bounded() -> None:
    assert ask(held_count=2) == HELD
    assert ask(held_count=3) == HoldStep("refuse", "held-too-many", 1.0)


def test_the_bytes_of_those_held_are_bounded() -> None:
    assert ask(held_bytes=90) == HELD
    assert ask(held_bytes=91) == HoldStep("refuse", "held-bytes-too-many", 1.0)
    assert ask(body_bytes=101) == HoldStep("refuse", "held-bytes-too-many", 1.0)


def test_what_no_start_could_serve_in_time_is_told_so_at_once_and_when_to_come_again() -> None:
    assert ask(ready_in_s=9.9) == HELD
    assert ask(ready_in_s=10.0) == HoldStep("refuse", "ready-too-late", 10.0)
    assert ask(ready_in_s=0.0) == HELD


def test_a_refusal_for_want_of_room_says_when_a_copy_may_be_ready() -> None:
    assert ask(held_count=3, ready_in_s=4.5) == HoldStep("refuse", "held-too-many", 4.5)


def test_who_comes_behind_others_that_wait_waits_too_even_where_copies_are_ready_by_now() -> None:
    """Neither the mode nor a start's time is asked: there may be a copy, only not its turn."""
    behind = HoldStep("hold", "others-wait")
    assert ask(others_wait=True) == behind
    assert ask(AWS, others_wait=True, ready_in_s=1000.0) == behind
    assert ask(others_wait=True, held_count=3).reason == "held-too-many"


@pytest.mark.parametrize(
    ("said", "mode"),
    [({}, ""), ({"PENSTOCK_ZERO_CAPACITY": "refuse"}, REFUSE),
     ({"PENSTOCK_ZERO_CAPACITY": "hold"}, HOLD), ({"PENSTOCK_ZERO_CAPACITY": "no"}, "")],
)  # fmt: skip
def test_a_model_says_it_in_its_environment(said: dict[str, str], mode: str) -> None:
    model = ModelSource(model_name="m", environment=tuple(said.items()))
    assert zero_capacity_of(model) == mode
