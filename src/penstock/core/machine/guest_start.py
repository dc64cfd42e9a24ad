"""When the start of a guest is given up: by the processor time it used, not by the clock.

A guest runs on cores that others leave, which on a busy machine may be none for minutes. So its
start has a bound on processor time, where an ordinary instance has one on elapsed time. A guest
that gets no processor time for long is dead or stuck, however busy the machine is: even the lowest
weight gets a share within five minutes.

When a process that was stopped (SIGSTOP) is ended.

Only the kernel's state tells a stopped process from a busy one. A process that computes for long,
waits for a disk or another service, holds Python's interpreter lock in C code, or gets no core on a
crowded machine is running, sleeping or waiting: it is never "stopped". So no process is ended for
being slow, and no time limit is guessed. A process that a debugger holds has a state of its own
("tracing stop") and is left alone.

Checks are counted, not seconds: if the checking process could not run itself (the machine slept, or
both were stopped together), elapsed time says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: It used more processor time than a start takes: a retry would, too.
TIMEOUT: Final = "instance-start-timeout"
#: It used no processor time: stopped, stuck, or starved.
STILL: Final = "instance-start-still"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestStartSpec:
    """The bounds of one start."""

    cpu_s_max: float = 60.0  #: processor seconds; the bound on elapsed time of an ordinary instance
    still_s_max: float = 300.0  #: seconds without any processor time
    look_every_s: float = 2.0


class GuestStart:
    """One start. Call `look` every `spec.look_every_s` until it is ready or given up."""

    def __init__(self, spec: GuestStartSpec, *, now: float) -> None:
        self.spec = spec
        self._cpu_s = 0.0
        self._moved_at = now

    def look(self, cpu_s: float, *, now: float) -> str:
        """The reason to end it; empty: it continues.

        Args:
            cpu_s: processor seconds that its process has used so far.
        """
        if cpu_s > self._cpu_s:
            self._cpu_s, self._moved_at = cpu_s, now
        if cpu_s >= self.spec.cpu_s_max:
            return TIMEOUT
        return STILL if now >= self._moved_at + self.spec.still_s_max else ""


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
