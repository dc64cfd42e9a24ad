"""Which model ended its instance: alone at work, or there every time. Times are literal seconds."""

from __future__ import annotations

import pytest

from penstock.core.residency.culprits import (
    ALONE,
    IN_EVERY_CRASH,
    Crash,
    Culprit,
    CulpritSpec,
    culprits,
    is_crash,
)

SPEC = CulpritSpec(crashes_min=2, remembered_s=3600.0, quarantine_s=300.0)


def crash(at: float, *working: str) -> Crash:
    return Crash(at, frozenset(working))


def found(*crashes: Crash, now: float) -> list[Culprit]:
    return culprits(crashes, SPEC, now=now)


def test_one_crash_accuses_nobody() -> None:
    """A bit may flip once; and who is left alone answers nobody."""
    assert found(crash(100.0, "a"), now=101.0) == []


def test_a_model_alone_at_work_at_two_crashes_is_left_alone_for_a_while() -> None:
    crashes = crash(100.0, "a"), crash(160.0, "a")
    assert found(*crashes, now=160.0) == [Culprit("a", 460.0, ALONE, 2)]
    assert found(*crashes, now=459.9) == [Culprit("a", 460.0, ALONE, 2)]
    assert found(*crashes, now=460.0) == []  # it gets another chance


def test_every_further_crash_doubles_the_time_until_crashes_are_forgotten() -> None:
    crashes = [crash(100.0, "a"), crash(160.0, "a"), crash(470.0, "a")]
    assert found(*crashes, now=500.0) == [Culprit("a", 470.0 + 600.0, ALONE, 3)]
    crashes += [crash(1100.0 + at, "a") for at in range(5)]
    assert found(*crashes, now=1200.0) == [Culprit("a", 1104.0 + 3600.0, ALONE, 8)]


def test_what_was_long_ago_says_nothing_of_now() -> None:
    assert found(crash(100.0, "a"), crash(3699.0, "a"), now=3699.0) != []
    assert found(crash(100.0, "a"), crash(3700.0, "a"), now=3700.0) == []


def test_the_one_that_was_at_work_every_time_is_it() -> None:
    crashes = crash(100.0, "a", "b"), crash(160.0, "a", "c")
    assert found(*crashes, now=160.0) == [Culprit("a", 460.0, IN_EVERY_CRASH, 2)]


def test_nobody_is_accused_where_no_model_was_there_every_time() -> None:
    assert found(crash(1.0, "a", "b"), crash(2.0, "b", "c"), crash(3.0, "c", "a"), now=3.0) == []


def test_two_that_are_always_together_are_told_apart_by_more_crashes() -> None:
    """Of two busy models one is innocent: it is spared as long as crashes may say which."""
    together = [crash(float(at), "a", "b") for at in (1, 2, 3)]
    assert found(*together, now=3.0) == []
    assert found(*together, crash(4.0, "b", "c"), now=4.0) == [
        Culprit("b", 4.0 + 300.0 * 4, IN_EVERY_CRASH, 4)
    ]


def test_two_that_nothing_tells_apart_are_both_left_alone_in_the_end() -> None:
    """An instance that crashes for ever answers for no model at all."""
    together = [crash(float(at), "a", "b") for at in (1, 2, 3, 4)]
    assert found(*together, now=4.0) == [
        Culprit("a", 4.0 + 300.0 * 4, IN_EVERY_CRASH, 4),
        Culprit("b", 4.0 + 300.0 * 4, IN_EVERY_CRASH, 4),
    ]


def test_a_crash_that_a_culprit_explains_accuses_nobody_else() -> None:
    """`busy` is at work at every moment, so also at each crash of the other."""
    crashes = (
        crash(1.0, "bad"), crash(2.0, "bad"), crash(3.0, "bad", "busy"), crash(4.0, "bad", "busy"),
    )  # fmt: skip
    assert found(*crashes, now=4.0) == [Culprit("bad", 302.0, ALONE, 2)]


def test_two_culprits_are_found_each_by_its_own_crashes() -> None:
    crashes = crash(1.0, "a"), crash(2.0, "b"), crash(3.0, "b"), crash(4.0, "a")
    assert found(*crashes, now=4.0) == [
        Culprit("a", 304.0, ALONE, 2),
        Culprit("b", 303.0, ALONE, 2),
    ]


def test_a_crash_of_an_instance_that_was_idle_accuses_no_model() -> None:
    assert found(crash(1.0), crash(2.0), crash(3.0), now=3.0) == []
    assert found(crash(1.0, "a"), crash(2.0), crash(3.0, "a"), now=3.0) == [
        Culprit("a", 303.0, ALONE, 2)
    ]


def test_crashes_may_come_in_any_order() -> None:
    assert found(crash(160.0, "a"), crash(100.0, "a"), now=160.0) == [Culprit("a", 460.0, ALONE, 2)]


@pytest.mark.parametrize("code", [-11, -6, -7, -8, -4, 1, 134])
def test_signals_of_a_processors_faults_and_exits_of_libraries_are_crashes(code: int) -> None:
    assert is_crash(code)


@pytest.mark.parametrize("code", [0, -9, -15, -2, -1])
def test_a_good_end_and_signals_from_outside_are_none(code: int) -> None:
    """The kernel kills the largest process when memory runs out, whoever took it."""
    assert not is_crash(code)
