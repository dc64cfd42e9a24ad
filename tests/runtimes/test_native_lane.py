"""A thread that runs C functions in order, and holds nothing that the interpreter needs."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.polling import wait_until

from penstock.runtimes.native import native_lane

#: C functions of one number that are in every process.
LIBC = ctypes.CDLL(None)
USLEEP, ABS = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (LIBC.usleep, LIBC.abs))
LANE = native_lane()

pytestmark = pytest.mark.skipif(LANE is None, reason="built without a C compiler")


@pytest.fixture
def wake() -> Iterator[int]:
    number = os.eventfd(0, os.EFD_NONBLOCK)
    yield number
    os.close(number)


def readable(wake: int) -> bool:
    return bool(select.select([wake], [], [], 10)[0])


def test_runs_end_in_their_order_and_wake_once_for_all_that_nobody_has_taken(wake: int) -> None:
    assert LANE is not None
    lane = LANE(wake)
    lane.submit(1, USLEEP, 1000)
    lane.submit(2, ABS, 7)
    lane.submit(3, ABS, 8)
    lane.close()
    assert readable(wake)
    assert os.eventfd_read(wake) == 1
    assert lane.results() == [(1, 0), (2, 7), (3, 8)]
    assert lane.results() == []


class PollFd(ctypes.Structure):
    """`struct pollfd`."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def test_a_run_needs_no_interpreter(wake: int) -> None:
    """This thread waits for its end and keeps the interpreter all the time."""
    assert LANE is not None
    lane = LANE(wake)
    keeps_it = ctypes.PyDLL(None)
    waits_for = PollFd(wake, select.POLLIN, 0)
    lane.submit(1, USLEEP, 10_000)
    assert keeps_it.poll(ctypes.byref(waits_for), 1, 10_000) == 1
    assert lane.results() == [(1, 0)]
    lane.close()


def test_sixteen_runs_are_open_at_most_and_none_after_the_end(wake: int) -> None:
    assert LANE is not None
    lane = LANE(wake)
    for number in range(16):
        lane.submit(number, ABS, number)
    with pytest.raises(RuntimeError, match="no room"):
        lane.submit(16, ABS, 16)
    wait_until(lambda: readable(wake), "the first end")
    lane.close()
    lane.close()
    assert [number for number, _ in lane.results()] == list(range(16))
    with pytest.raises(RuntimeError, match="closed"):
        lane.submit(17, ABS, 17)


def test_its_thread_computes_and_takes_no_signals(wake: int) -> None:
    assert LANE is not None
    before = os.sched_getscheduler(0)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # as an event loop
    try:
        lane = LANE(wake)
        assert os.sched_getscheduler(lane.native_id) == os.SCHED_OTHER
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))
    status = Path(f"/proc/self/task/{lane.native_id}/status").read_text()
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert all(blocked & 1 << (each - 1) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    native_id = lane.native_id
    del lane
    assert not Path(f"/proc/self/task/{native_id}").exists()
