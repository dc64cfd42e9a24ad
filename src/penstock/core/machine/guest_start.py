"""When the start of a guest is given up: by the processor time it used, not by the clock.

A guest runs on cores that others leave, which on a busy machine may be none for minutes. So its
start has a bound on processor time, where an ordinary instance has one on elapsed time. A guest
that gets no processor time for long is dead or stuck, however busy the machine is: even the lowest
weight gets a share within five minutes.
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
