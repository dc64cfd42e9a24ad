"""Which processes are taken for stopped: those that a signal holds, and no busy one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.polling import wait_until

from penstock.core.machine.stopped import LOOK_EVERY_S, LOOKS_MAX
from penstock.runtimes.workers.stopped import StoppedWatch, is_stopped

#: One call in C code that keeps Python's interpreter lock for a minute, in a process whose name
#: looks like the rest of what the kernel says of one that is stopped.
BUSY = """
from pathlib import Path
Path("/proc/self/comm").write_text("x) T 1")
print("ready", flush=True)
sum(range(10**10))
"""


@pytest.fixture
def busy() -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    yield child.pid
    child.kill()
    child.wait()
    child.stdout.close()


def wait_for(pid: int, *, stopped: bool) -> None:
    wait_until(lambda: is_stopped(pid) == stopped)


def test_one_that_a_signal_stopped_is_told_apart_until_it_goes_on(busy: int) -> None:
    assert not is_stopped(busy)
    os.kill(busy, signal.SIGSTOP)
    wait_for(busy, stopped=True)
    os.kill(busy, signal.SIGCONT)
    wait_for(busy, stopped=False)


def test_one_that_is_gone_is_not_stopped(busy: int) -> None:
    os.kill(busy, signal.SIGKILL)
    os.waitid(os.P_PID, busy, os.WEXITED | os.WNOWAIT)
    assert not is_stopped(busy)  # a zombie
    assert not Path("/proc/0").exists()
    assert not is_stopped(0)


def test_one_that_holds_the_interpreter_lock_is_not_ended(busy: int) -> None:
    """And one that is stopped is, by the same watch, so the looks did happen."""

    other = subprocess.Popen(["sleep", "60"])
    os.kill(other.pid, signal.SIGSTOP)

    async def scenario() -> None:
        ended: list[str] = []
        watch = StoppedWatch([busy], lambda: ended.append("busy"))
        StoppedWatch(lambda: [busy, other.pid], lambda: ended.append("stopped"))
        async with asyncio.timeout(20 * LOOKS_MAX * LOOK_EVERY_S):
            while not ended:  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.01)
        watch.close()
        assert ended == ["stopped"]

    try:
        asyncio.run(scenario())
    finally:
        other.kill()
        other.wait()
