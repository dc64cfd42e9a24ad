"""When a region is left alone, for how long, and how it comes back."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.traffic.health import RegionHealth
from penstock.core.traffic.spec import HealthSpec

SPEC = HealthSpec(
    failures_max=3,
    failure_share_max=0.5,
    answers_min=4,
    window_s=10.0,
    probes_max=2,
    silence_s_max=3.0,
    eject_s=2.0,
    eject_s_max=6.0,
    slow_start_s=10.0,
    slow_start_from=0.1,
)


def heard(*, at: float = 0.0, spec: HealthSpec = SPEC) -> RegionHealth:
    health = RegionHealth(spec)
    health.heard(now=at)
    return health


def fail(health: RegionHealth, times: int, *, at: float) -> None:
    for _ in range(times):
        health.answered(False, now=at)


def test_a_region_is_not_used_before_anything_is_heard_of_it() -> None:
    health = RegionHealth(SPEC)
    assert (health.is_open(now=0.0), health.reason(now=0.0)) == (False, "not-heard-yet")
    health.heard(now=1.0)
    assert (health.is_open(now=1.0), health.reason(now=1.0)) == (True, "serving")


def test_failures_in_a_row_eject_it_and_an_answer_between_them_does_not() -> None:
    health = heard(spec=replace(SPEC, answers_min=20))
    fail(health, 2, at=1.0)
    health.answered(True, now=1.0)
    fail(health, 2, at=1.1)
    assert health.is_open(now=1.1)
    fail(health, 1, at=1.2)
    assert health.reason(now=1.2) == "failures-in-a-row"


def test_so_does_a_share_of_failures_above_the_bound_once_there_are_enough_answers() -> None:
    health = heard()
    for ok in (False, True, False):
        health.answered(ok, now=1.0)
    assert health.is_open(now=1.0), "two of three, but three are too few"
    health.answered(True, now=1.0)
    assert health.is_open(now=1.0), "two of four are not above a half"
    health.answered(False, now=1.1)
    assert health.reason(now=1.1) == "failure-share"


def test_answers_of_an_earlier_window_do_not_count() -> None:
    health = heard()
    for ok in (False, True, False, True):
        health.answered(ok, now=1.0)
    health.heard(now=11.0)
    health.answered(False, now=11.0)
    assert health.is_open(now=11.0)


def test_probes_in_a_row_without_an_answer_eject_it() -> None:
    health = heard()
    health.probed(False, now=1.0)
    health.probed(True, now=1.2)
    health.probed(False, now=1.5)
    assert health.is_open(now=1.5)
    health.probed(False, now=1.7)
    assert health.reason(now=1.7) == "unreachable"


def test_silence_closes_it_and_any_sign_of_life_opens_it_slowly() -> None:
    health = heard(at=10.0)
    assert health.is_open(now=12.9)
    assert health.reason(now=13.0) == "silent"
    health.heard(now=20.0)
    assert (health.reason(now=20.0), health.share(now=20.0)) == ("slow-start", 0.1)


def test_an_answer_to_a_request_is_a_sign_of_life() -> None:
    health = heard(at=10.0)
    health.answered(True, now=12.0)
    assert health.reason(now=14.0) == "serving"


def test_it_is_back_with_the_first_sign_of_life_after_its_time() -> None:
    health = heard()
    fail(health, 3, at=10.0)
    health.heard(now=11.9)
    assert health.reason(now=11.9) == "failures-in-a-row"
    assert health.reason(now=12.0) == "failures-in-a-row", "nothing has been heard since"
    health.heard(now=12.0)
    assert (health.reason(now=12.0), health.share(now=12.0)) == ("slow-start", 0.1)


def test_its_share_grows_to_all_of_it() -> None:
    health = heard()
    fail(health, 3, at=10.0)
    for second in range(12, 23):
        health.heard(now=float(second))
    assert health.share(now=17.0) == 0.55
    assert health.share(now=22.0) == 1.0
    assert health.reason(now=22.0) == "serving"


def test_one_that_fails_again_soon_stays_away_for_twice_as_long_up_to_the_most() -> None:
    health, at = heard(), 10.0
    for away_s in (2.0, 4.0, 6.0, 6.0):
        fail(health, 3, at=at)
        health.heard(now=at + away_s - 0.01)
        assert not health.is_open(now=at + away_s - 0.01)
        at += away_s
        health.heard(now=at)
        assert health.is_open(now=at)


def test_one_that_did_well_for_long_starts_over() -> None:
    health = heard()
    fail(health, 3, at=10.0)
    health.heard(now=12.0)
    fail(health, 3, at=24.0)
    health.heard(now=26.0)
    assert health.is_open(now=26.0)


def test_failures_of_what_was_under_way_do_not_keep_it_away_for_longer() -> None:
    health = heard()
    fail(health, 3, at=10.0)
    fail(health, 30, at=11.0)
    health.probed(False, now=11.0)
    health.heard(now=12.0)
    assert health.is_open(now=12.0)


def test_it_may_come_back_at_once() -> None:
    health = heard(spec=HealthSpec(slow_start_s=0.0, eject_s=1.0))
    fail(health, 3, at=10.0)
    health.heard(now=11.0)
    assert health.reason(now=11.0) == "serving"


def test_it_tells_its_state() -> None:
    health = heard()
    fail(health, 2, at=1.0)
    assert health.snapshot(now=1.0) == {
        "reason": "serving",
        "share": 1.0,
        "failures_in_a_row": 2,
        "probes_failed_in_a_row": 0,
    }
    health.check_invariants()
