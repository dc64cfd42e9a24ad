"""How long to wait before what failed is tried again: twice as long each time, up to a bound.

This is truncated binary exponential backoff (Metcalfe and Boggs, "Ethernet", CACM 1976; for
connections, gRPC's `connection-backoff.md`). Doubling comes to a pause that is long enough within
a few tries, whatever length is needed; the bound is how late a recovery may be noticed.

It has no memory: whoever uses it counts failures in a row, and counts anew from 0 after a success.
The pauses are not spread by chance. Each user is one caller of one thing, so there is no crowd that
would come back at the same moment, and a decision stays the same when it is made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: 2 to the power of a large count is no float. More doublings than lie between any two bounds.
_DOUBLINGS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses after failures in a row."""

    pause_s_first: float  #: after one failure, s
    pause_s_max: float  #: after many, s

    def pause_s(self, failures: int) -> float:
        """Seconds from the `failures`-th failure in a row to the next try; none, 0 s."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        return float(min(self.pause_s_first * 2.0**doublings, self.pause_s_max))
