"""Policies of threads, and of the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from penstock import scheduling
from penstock.compile import child

pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_BATCH"), reason="the kernel has no such policy"
)

SAYS = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]


def in_a_thread(work: Callable[[], object]) -> object:
    """Each thread has a policy of its own."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def said() -> int:
    return int(subprocess.run(SAYS, capture_output=True, text=True, check=True).stdout)


def test_a_process_that_a_loop_starts_inherits_its_policy_unless_it_is_to_compute() -> None:
    def work() -> list[int]:
        scheduling.wait_for_messages()
        inherited = said()
        with scheduling.children_compute():
            computes = said()
        return [inherited, computes, os.sched_getscheduler(0)]

    assert in_a_thread(work) == [os.SCHED_BATCH, os.SCHED_OTHER, os.SCHED_BATCH]


def test_a_thread_that_computes_stays_as_it_is_even_if_a_process_cannot_be_started() -> None:
    def work() -> list[int]:
        policies = []
        for choose in (scheduling.compute, scheduling.wait_for_messages):
            choose()
            with pytest.raises(FileNotFoundError), scheduling.children_compute():
                subprocess.run(["/no/such/program"], check=True)
            policies.append(os.sched_getscheduler(0))
        return policies

    assert in_a_thread(work) == [os.SCHED_OTHER, os.SCHED_BATCH]


def test_what_a_guest_starts_is_a_guest() -> None:
    def work() -> list[int]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with scheduling.children_compute():
            return [said(), os.sched_getscheduler(0)]

    assert in_a_thread(work) == [os.SCHED_IDLE, os.SCHED_IDLE]


def test_a_compiler_that_a_loop_starts_computes() -> None:
    def work() -> str:
        scheduling.wait_for_messages()
        with child._started(SAYS, dict(os.environ)) as process:
            return process.communicate()[0]

    assert in_a_thread(work) == f"{os.SCHED_OTHER}\n"
