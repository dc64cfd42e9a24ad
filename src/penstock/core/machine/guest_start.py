"""When the start of a guest is given up: by what it has done, not by the clock on the wall.

A guest runs on what others leave, which on a busy machine may be nothing for minutes. So it has a
bound on processor time, as an ordinary instance has one on time; and one that gets none at all for
long is dead or stuck, whoever else is busy: even the least weight has a share in five minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: It computed more than a start takes: the next one will, too.
TIMEOUT: Final = "instance-start-timeout"
#: It computed nothing: stopped, stuck, or starved.
STILL: Final = "instance-start-still"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestStartSpec:
    """The bounds of one start."""

    cpu_s_max: float = 60.0  #: what an ordinary instance has on the wall
    still_s_max: float = 300.0  #: without any processor time
    look_every_s: float = 2.0


class GuestStart:
    """One start. `look` every `spec.look_every_s` until it is ready or given up."""

    def __init__(self, spec: GuestStartSpec, *, now: float) -> None:
        self.spec = spec
        self._cpu_s = 0.0
        self._moved_at = now

    def look(self, cpu_s: float, *, now: float) -> str:
        """The reason to end it; empty: it goes on.

        Args:
            cpu_s: that its process has computed so far.
        """
        if cpu_s > self._cpu_s:
            self._cpu_s, self._moved_at = cpu_s, now
        if cpu_s >= self.spec.cpu_s_max:
            return TIMEOUT
        return STILL if now >= self._moved_at + self.spec.still_s_max else ""
