"""Starts a program that is not ours and ends it, with all that it started, when the instance ends.

`python guard.py FD ARGV...`: the program runs in a session of its own, behind the walls read from
FD (`walls.Walls` as JSON; -1: none). The end of standard input means that the instance ended (even
by SIGKILL). SIGTERM is passed on to the program. Exits with the program's status. If this process
itself is killed, the kernel ends the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1


def _confining(told: int) -> Callable[[], None] | None:
    """Code that the program's process runs before it becomes the program."""
    if told < 0:
        return None
    # Loaded by its path: our package is not installed where this runs.
    path = Path(__file__).with_name("confined.py")
    spec = importlib.util.spec_from_file_location("confined", path)
    assert spec is not None
    assert spec.loader is not None
    confined = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(confined)
    with open(told, "rb") as file:
        walls = json.load(file)

    def confine() -> None:
        if not walls["network"]:
            confined.leave_network()  # must come first: it needs capabilities
        if walls["container_model"]:
            confined.show_or_say_why(walls["container_model"])
        confined.drop_capabilities(walls["drop"])
        if walls["files"]:
            confined.restrict(walls["read"], walls["write"])

    return confine


def _ended_with_this_process() -> Callable[[], None]:
    """The last thing that the program's process asks of the kernel: dropping capabilities undoes
    it."""
    prctl, guard = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # this process was killed before the child asked for the signal
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def main() -> int:
    told, *argv = sys.argv[1:]
    try:
        confine, end_with_us = _confining(int(told)), _ended_with_this_process()

        def begin() -> None:
            if confine is not None:
                confine()
            end_with_us()

        program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=begin,  # noqa: PLW1509 - this process has one thread
        )
    except subprocess.SubprocessError as error:
        print(f"{argv[0]}: it can't be confined: {error}", file=sys.stderr)
        return 126
    except OSError as error:
        print(f"{argv[0]}: {error.strerror or error}", file=sys.stderr)
        return 127

    # Of a guest or a shadow: the new session's weight is as low as this process's
    guest = os.sched_getscheduler(0) == os.SCHED_IDLE
    nice = 19 if guest else os.getpriority(os.PRIO_PROCESS, 0)
    if nice > 0:
        with contextlib.suppress(OSError):
            Path(f"/proc/{program.pid}/autogroup").write_text(str(nice))

    def pass_on(signum: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signum)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pidfd = os.pidfd_open(program.pid)
    readable, _, _ = select.select([0, pidfd], [], [])
    if pidfd not in readable:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    status = program.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)  # kills what the program left in its session
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
