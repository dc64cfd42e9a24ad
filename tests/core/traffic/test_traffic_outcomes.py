"""`core/traffic/outcomes.py`: what a region's answer, or its silence, costs a request."""

from __future__ import annotations

import pytest

from penstock.core.traffic.outcomes import (
    BROKEN_OFF,
    PIECES,
    REFUSAL,
    WHOLE,
    RegionStep,
    again_after_s,
    mode_of,
    verdict,
    when_lost,
    when_turned_down,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("status", "length", "repeatable", "mode"),
    [
        (200, 10, True, WHOLE),
        (200, MIB, True, WHOLE),
        (200, MIB + 1, True, PIECES),
        (200, None, True, PIECES),  # a stream, or a body of unknown length
        (204, 0, True, WHOLE),
        (400, 10, True, WHOLE),  # the request's own fault: the client hears of it
        (500, 10, True, WHOLE),  # perhaps the model's: computed again it would fail again
        (429, 10, True, REFUSAL),
        (503, 10, True, REFUSAL),
        (503, 10, False, WHOLE),  # it may have been taken: nobody else is asked
        (401, 10, True, REFUSAL),
        (403, 10, False, REFUSAL),  # whoever is not let in has had nothing taken
    ],
)
def test_how_an_answer_is_passed_on(
    status: int, length: int | None, repeatable: bool, mode: str
) -> None:
    assert mode_of(status, length, begun=False, repeatable=repeatable) == mode


@pytest.mark.parametrize(
    ("status", "mode"), [(200, PIECES), (206, PIECES), (299, PIECES), (300, REFUSAL)]
)
def test_the_rest_of_an_answer_comes_in_pieces_or_is_refused(status: int, mode: str) -> None:
    """The client has a part already: what says anything but more of it is of no use to it."""
    assert mode_of(status, 10, begun=True, repeatable=True) == mode


@pytest.mark.parametrize(
    ("status", "may_retry", "model_errors_are_500", "ok"),
    [
        (200, True, False, True),
        (404, True, False, True),
        (424, True, False, True),  # the model failed, and the region says so
        (500, True, False, False),
        (502, True, False, False),
        (504, True, True, False),
        (500, True, True, None),  # it may be the model's
        (500, False, False, None),
        (502, False, False, None),
    ],
)
def test_what_an_answer_says_of_its_region(
    status: int, may_retry: bool, model_errors_are_500: bool, ok: bool | None
) -> None:
    said = verdict(status, may_retry=may_retry, model_errors_are_500=model_errors_are_500)
    assert said is ok


@pytest.mark.parametrize(
    ("status", "begun", "step"),
    [
        (503, False, RegionStep("route", "spilled", ok=None)),
        (429, True, RegionStep("route", "spilled", ok=None)),
        (401, False, RegionStep("route", "region-refused", ok=False)),
        (403, True, RegionStep("route", "region-refused", ok=False)),
        # The rest of an answer can't be had: no region would say anything else.
        (400, True, RegionStep("fail", "spilled", ok=None)),
    ],
)
def test_a_refusal_costs_another_attempt(status: int, begun: bool, step: RegionStep) -> None:
    assert when_turned_down(status, begun=begun) == step


@pytest.mark.parametrize(
    ("reason", "begun", "repeatable", "do"),
    [
        ("connection-lost", False, True, "route"),
        ("connection-lost", False, False, "fail"),  # it may have been taken: not twice
        ("region-unreachable", False, False, "route"),  # it was never there
        ("connection-lost", True, True, "resume"),
        ("answer-malformed", True, False, "resume"),
    ],
)
def test_what_a_lost_region_costs(reason: str, begun: bool, repeatable: bool, do: str) -> None:
    step = when_lost(reason, begun=begun, repeatable=repeatable)
    assert step == RegionStep(do, reason, ok=False)


def test_a_region_that_says_itself_that_it_broke_off_is_well() -> None:
    step = when_lost(BROKEN_OFF, begun=True, repeatable=True)
    assert step == RegionStep("resume", BROKEN_OFF, ok=None)


def test_regions_that_all_failed_are_tried_again_after_waits_that_double() -> None:
    waits = [again_after_s(attempts, kept=False) for attempts in (1, 2, 3, 15, 16)]
    assert waits == [0.2, 0.4, 0.5, 0.5, None]


def test_a_refusal_that_can_be_told_ends_the_tries() -> None:
    assert again_after_s(1, kept=True) is None
