"""What an instance says of the copies that it loads."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.instance.loading.phases import FETCHING, LOADING, LoadPhases


class HandClock(Clock):
    now = 10.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def test_the_phase_and_its_time_are_those_of_the_last_change() -> None:
    clock = HandClock()
    phases = LoadPhases(clock)
    phases.begin(7, FETCHING)
    clock.now = 12.0
    phases.enter(7, LOADING)
    clock.now = 15.0
    phases.enter(7, LOADING)  # said twice: it goes on
    assert phases.to_list() == [{"copy": 7, "phase": "loading", "phase_s": 3.0}]


def test_a_copy_that_is_loaded_has_none_and_gets_none() -> None:
    """The work may go on for a moment on its thread after the load was called off."""
    phases = LoadPhases(HandClock())
    phases.begin(7, FETCHING)
    phases.end(7)
    phases.enter(7, LOADING)
    assert phases.to_list() == []
    assert 7 not in phases
