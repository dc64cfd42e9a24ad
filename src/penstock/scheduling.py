"""How the kernel tells event loops, which wait for messages, from lanes, which compute.

A loop that wakes takes the core of a computing thread, for some 30 us, thousands of times a
second. Beside two busy loops a lane then waited 0.3 s of each second, though a core was idle in
between (2 cores, 4,000 requests/s: P99 63 ms against 12). As a batch thread (Linux's SCHED_BATCH) a
waking loop takes an idle core, or waits for the end of the lane's time slice. This needs no
privilege. Threads and processes inherit it, so a thread that computes resets it, and a process that
computes is started by `children_compute`: what runs in it may be anybody's program.

A guest, which does offline work, runs under SCHED_IDLE: every other thread goes before it, and
takes its core at once. It is started like that (`guests.py`), and so is all that it
starts; none of its threads chooses another policy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def wait_for_messages() -> None:
    """This thread is an event loop: it does not take the core of a computing thread."""
    _choose("SCHED_BATCH")


def compute() -> None:
    """This thread computes, whatever policy it has inherited."""
    _choose("SCHED_OTHER")


@contextlib.contextmanager
def children_compute() -> Iterator[None]:
    """Processes that this thread starts meanwhile compute, even if it is an event loop itself."""
    before = _policy()
    compute()
    try:
        yield
    finally:
        if before == getattr(os, "SCHED_BATCH", None):
            wait_for_messages()


def give_a_tenth(leader: int) -> None:
    """A process of ours, which leads a session, gets a tenth of a core that others want, and so do
    the threads and processes that it starts later. Where the kernel makes a group of each session,
    its weight counts among them. A loop that wakes still waits for the end of its time slice, which
    it does not for a guest's."""
    for thread in Path(f"/proc/{leader}/task").glob("*"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 10)
    with contextlib.suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text("10")


def is_guest() -> bool:
    """Whether this thread uses only time that others leave."""
    policy = _policy()
    return policy is not None and policy == getattr(os, "SCHED_IDLE", None)


def _policy() -> int | None:
    """None: not Linux, or a stricter sandbox."""
    try:
        return os.sched_getscheduler(0)
    except (AttributeError, OSError):
        return None


def _choose(policy: str) -> None:
    if is_guest():
        return
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or a stricter sandbox
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
