"""When a process that stands still is ended: somebody or something has stopped it (SIGSTOP).

A stopped process is told apart from a busy one by its state, which the kernel says, and by nothing
else. One that computes, however long, that waits for a disk or another service, that holds Python's
interpreter lock in C code, or that gets no core on a crowded machine, runs, sleeps or waits: it is
never "stopped". So nobody is ended for being slow, and no time limit is guessed. A process that a
debugger holds has a state of its own ("tracing stop") and is left alone.

Looks are counted, not seconds: where the one who looks could not run itself (a machine that slept,
both stopped together), the time that passed says nothing.
"""

from __future__ import annotations

from typing import Final

#: Between two looks.
LOOK_EVERY_S: Final = 0.5
#: In a row: it has then stood still for 1.5 to 2 s. Tools that stop a process for a moment (a copy
#: of its memory, say) are done by then, and a request of 5 s has most of its time left.
LOOKS_MAX: Final = 4
#: Of a guest: a minute. Nobody waits for it, and who needs the machine may hold it still.
GUEST_LOOKS_MAX: Final = 120


class StoppedLooks:
    """Of one process."""

    __slots__ = ("_count", "_looks_max")

    def __init__(self, looks_max: int = LOOKS_MAX) -> None:
        self._looks_max = looks_max
        self._count = 0  #: looks in a row that found it stopped

    def look(self, *, stopped: bool) -> bool:
        """True: it is to be ended. To be called once for each look."""
        self._count = self._count + 1 if stopped else 0
        return self._count >= self._looks_max
