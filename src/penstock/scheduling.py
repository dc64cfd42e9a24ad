"""How the kernel is told apart: event loops, which wait for messages, and lanes, which compute.

A loop that wakes takes the core of whoever computes there, for some 30 us, thousands of times a
second; beside two busy loops a lane then waited 0.3 s of each second, though a core was idle in
between (2 cores, 4,000 requests/s: P99 63 ms against 12). As a batch thread (Linux's SCHED_BATCH) a
loop that wakes takes an idle core, or waits for the end of the lane's time slice. No privilege is
needed. Threads and processes inherit it, so whatever computes says so.

A guest, which does offline work, runs under SCHED_IDLE: every other thread goes before it, and
takes its core at once. It is started like that (`fleet/guest_start.py`), and so is all that it
starts: no thread of it chooses anything else.
"""

from __future__ import annotations

import contextlib
import os
import threading


def wait_for_messages() -> None:
    """This thread is an event loop: it takes no core from one that computes."""
    _choose("SCHED_BATCH")


def compute() -> None:
    """This thread computes, whatever it was started by."""
    _choose("SCHED_OTHER")


def prepare_in_background() -> None:
    """This thread computes what can wait. It gets a tenth where the cores are taken, not nothing:
    it holds the interpreter now and then."""
    if is_guest():
        return
    _choose("SCHED_BATCH")
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def is_guest() -> bool:
    """Whether this thread takes only what others leave."""
    try:
        return os.sched_getscheduler(0) == os.SCHED_IDLE
    except (AttributeError, OSError):
        return False


def _choose(policy: str) -> None:
    if is_guest():
        return
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or a stricter sandbox
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
