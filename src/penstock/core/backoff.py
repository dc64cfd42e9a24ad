"""How long to wait before a retry: twice as long each time, up to a bound.

This is truncated binary exponential backoff (Metcalfe and Boggs, "Ethernet", CACM 1976; for
connections, gRPC's `connection-backoff.md`). Doubling reaches a pause that is long enough within a
few tries, whatever length is needed. The bound says how late a recovery may be noticed.

`Backoff` keeps no state: its user counts failures in a row, and starts from 0 after a success.
The pauses have no random part. Each user is one caller of one thing, so no crowd comes back at the
same moment, and the same decision made again gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: A large power of 2 does not fit a float. No two bounds are this many doublings apart.
_DOUBLINGS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses after failures in a row."""

    pause_s_first: float  #: s after one failure
    pause_s_max: float  #: s at most, after many failures

    def pause_s(self, failures: int) -> float:
        """Seconds from the `failures`-th failure in a row to the next try; 0 if none failed."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        return float(min(self.pause_s_first * 2.0**doublings, self.pause_s_max))
