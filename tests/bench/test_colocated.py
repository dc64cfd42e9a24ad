"""The figures of a job that runs beside an endpoint by turns, and how it is held still."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.colocated import Pair, Ticks, increase
from bench.colocated_job import Guests
from tests.kit.polling import wait_until

GUEST = (
    "import os, time; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); time.sleep(60)"
)


@pytest.fixture
def guest() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", GUEST])
    try:
        wait_until(lambda: os.sched_getscheduler(process.pid) == os.SCHED_IDLE)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_guests_are_held_still_and_the_time_of_that_does_not_count(guest: int) -> None:
    guests = Guests(os.getpid())
    guests.hold()
    wait_until(lambda: stopped(guest))
    assert guests.ran_s() == guests.ran_s()
    guests.go_on()
    wait_until(lambda: not stopped(guest))
    before = guests.ran_s()
    wait_until(lambda: guests.ran_s() > before)


def test_who_is_no_guest_is_not_held() -> None:
    with pytest.raises(RuntimeError, match="no process under SCHED_IDLE"):
        Guests(os.getpid())


def test_an_increase_is_of_all_requests_of_all_turns() -> None:
    """Not a mean of the turns' own: of a few requests a P99 says nothing."""
    pairs = [Pair([0.001] * 99 + [0.010], [0.002] * 100), Pair([0.001] * 100, [0.002] * 100)]
    assert increase(pairs, 0.5) == 2.0
    assert increase(pairs, 0.99) == 2.0
    assert increase(pairs[:1], 1.0) == pytest.approx(0.2)


def test_idle_time_is_a_share_of_the_time_that_was_there() -> None:
    assert Ticks(30, 100).since(Ticks(10, 60)).plus(Ticks(10, 10)) == Ticks(30, 50)
    assert Ticks(30, 50).idle_share == 0.6
