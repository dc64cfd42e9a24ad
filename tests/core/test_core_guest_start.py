"""`core/machine/guest_start.py`: a guest is given up by what it has done, whatever the time."""

from __future__ import annotations

from penstock.core.machine.guest_start import STILL, TIMEOUT, GuestStart, GuestStartSpec

SPEC = GuestStartSpec()


def test_a_guest_that_gets_little_may_take_long() -> None:
    start = GuestStart(SPEC, now=0.0)
    assert [start.look(0.01 * at, now=250.0 * at) for at in range(1, 40)] == [""] * 39


def test_one_that_was_stopped_for_a_while_goes_on() -> None:
    start = GuestStart(SPEC, now=10.0)
    assert start.look(1.5, now=12.0) == ""
    assert start.look(1.5, now=82.0) == ""
    assert start.look(1.5, now=311.9) == ""
    assert start.look(1.6, now=311.9) == ""
    assert start.look(1.6, now=611.8) == ""


def test_one_that_stands_still_is_ended() -> None:
    start = GuestStart(SPEC, now=10.0)
    assert start.look(0.0, now=309.9) == ""
    assert start.look(0.0, now=310.0) == STILL
    assert start.look(0.0, now=311.0) == STILL


def test_one_that_computes_more_than_a_start_takes_is_ended() -> None:
    start = GuestStart(SPEC, now=10.0)
    assert start.look(59.9, now=71.0) == ""
    assert start.look(60.0, now=72.0) == TIMEOUT
