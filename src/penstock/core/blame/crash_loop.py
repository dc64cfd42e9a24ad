"""When a process that dies again and again is started again, and when it is given up.

Wait 0.1 s before the first start anew, twice as long each time up to 10 s, and begin anew with
0.1 s once it has answered something. Five deaths without an answer in between are a *crash loop*:
what is started will not come back by itself. Starting and giving up are the caller's business.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

from penstock.core.backoff import Backoff
from penstock.core.blame.death_limits import (
    LOOP_DEATHS_MAX,
    RESTART_WAIT_S_MAX,
    RESTART_WAIT_S_MIN,
)

_RESTART: Final = Backoff(RESTART_WAIT_S_MIN, RESTART_WAIT_S_MAX)


class CrashLoop:
    """The deaths in a row of one worker, or of one model wherever it is.

    Args:
        deaths_max: that are a loop.
        window_s: within which they must come to be one.
    """

    __slots__ = ("_deaths", "_failures", "_window_s")

    def __init__(self, *, deaths_max: int = LOOP_DEATHS_MAX, window_s: float = inf) -> None:
        self._deaths: deque[float] = deque(maxlen=deaths_max)  #: when, of those in a row
        self._window_s = window_s
        self._failures = 0  #: deaths since it last served

    @property
    def deaths(self) -> int:
        """In a row, as far as they matter."""
        return len(self._deaths)

    def served(self) -> None:
        """Something was answered: what lies before no longer counts."""
        if self._deaths:
            self._deaths.clear()
            self._failures = 0

    def died(self, *, now: float = 0.0) -> float | None:
        """Seconds to wait before the next start; None: give up.

        `now`: monotonic seconds; without a window it makes no difference.
        """
        self._deaths.append(now)
        is_loop = len(self._deaths) == self._deaths.maxlen
        if is_loop and now - self._deaths[0] < self._window_s:
            return None
        self._failures += 1
        return _RESTART.pause_s(self._failures)
