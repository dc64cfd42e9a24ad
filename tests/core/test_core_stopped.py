"""`core/machine/stopped.py`: how long a process may stand still."""

from __future__ import annotations

from penstock.core.machine.stopped import GUEST_LOOKS_MAX, LOOK_EVERY_S, StoppedLooks


def test_one_that_is_found_stopped_four_times_in_a_row_is_ended() -> None:
    looks = StoppedLooks()
    assert [looks.look(stopped=True) for _ in range(5)] == [False, False, False, True, True]


def test_one_that_went_on_in_between_is_looked_at_anew() -> None:
    looks = StoppedLooks()
    seen = [True, True, True, False, True, True, True, True]
    assert [looks.look(stopped=stopped) for stopped in seen] == [*[False] * 7, True]


def test_a_guest_may_be_held_still_for_a_minute() -> None:
    assert GUEST_LOOKS_MAX * LOOK_EVERY_S == 60.0
    looks = StoppedLooks(GUEST_LOOKS_MAX)
    assert [looks.look(stopped=True) for _ in range(120)] == [*[False] * 119, True]


def test_one_that_runs_is_never_ended() -> None:
    looks = StoppedLooks()
    assert not any(looks.look(stopped=False) for _ in range(1000))
