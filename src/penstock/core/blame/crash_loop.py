"""When a process that dies again and again is restarted, and when it is given up.

The first restart waits 0.1 s, each further one twice as long, up to 10 s; after an answer the wait
is 0.1 s again. Five deaths without an answer in between are a *crash loop*: restarting does not
help. The caller does the restart and handles giving up.
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
    """The deaths in a row of one worker, or of one model wherever it is loaded.

    Args:
        deaths_max: number of deaths that make a loop.
        window_s: seconds within which they must happen to make one.
    """

    __slots__ = ("_deaths", "_failures", "_window_s")

    def __init__(self, *, deaths_max: int = LOOP_DEATHS_MAX, window_s: float = inf) -> None:
        #: when the last deaths in a row happened
        self._deaths: deque[float] = deque(maxlen=deaths_max)
        self._window_s = window_s
        self._failures = 0  #: deaths since it last answered

    @property
    def deaths(self) -> int:
        """Deaths in a row; counts at most `deaths_max`."""
        return len(self._deaths)

    def served(self) -> None:
        """A request was answered: earlier deaths no longer count."""
        if self._deaths:
            self._deaths.clear()
            self._failures = 0

    def died(self, *, now: float = 0.0) -> float | None:
        """Seconds to wait before the restart; None: give up.

        `now`: monotonic seconds; it has no effect where there is no window.
        """
        self._deaths.append(now)
        is_loop = len(self._deaths) == self._deaths.maxlen
        if is_loop and now - self._deaths[0] < self._window_s:
            return None
        self._failures += 1
        return _RESTART.pause_s(self._failures)
