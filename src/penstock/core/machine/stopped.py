"""When a process that was stopped (SIGSTOP) is ended.

Only the kernel's state tells a stopped process from a busy one. A process that computes for long,
waits for a disk or another service, holds Python's interpreter lock in C code, or gets no core on a
crowded machine is running, sleeping or waiting: it is never "stopped". So no process is ended for
being slow, and no time limit is guessed. A process that a debugger holds has a state of its own
("tracing stop") and is left alone.

Checks are counted, not seconds: if the checking process could not run itself (the machine slept, or
both were stopped together), elapsed time says nothing.
"""

from __future__ import annotations

from typing import Final

#: s between two checks.
LOOK_EVERY_S: Final = 0.5
#: Checks in a row: the process has then been stopped for 1.5 to 2 s. Tools that stop a process for
#: a moment (to copy its memory, say) are done by then, and a request of 5 s has most of its time
#: left.
LOOKS_MAX: Final = 4
#: The same for a guest: a minute. Nobody waits for it, and the owner of the machine may stop it.
GUEST_LOOKS_MAX: Final = 120


class StoppedLooks:
    """The checks of one process."""

    __slots__ = ("_count", "_looks_max")

    def __init__(self, looks_max: int = LOOKS_MAX) -> None:
        self._looks_max = looks_max
        self._count = 0  #: checks in a row that found it stopped

    def look(self, *, stopped: bool) -> bool:
        """Call once for each check. True: end the process."""
        self._count = self._count + 1 if stopped else 0
        return self._count >= self._looks_max
