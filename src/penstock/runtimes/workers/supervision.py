"""When a worker that died is started again, and when its copy is given up.

The rule: wait 0.1 s, doubling to 10 s, and begin anew with 0.1 s once a worker has served. A worker
that dies five times within 60 s without having served a batch will not come back by itself: the
copy has failed. Decides only; starting is the runtimes' business.
"""

from __future__ import annotations

from collections import deque
from typing import Final

BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 10.0
DEATHS_MAX: Final = 5
DEATHS_WINDOW_S: Final = 60.0


class RestartPolicy:
    """One worker's deaths. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=DEATHS_MAX)  #: without serving in between
        self._backoff_s = BACKOFF_S_MIN

    def served(self) -> None:
        """A batch was answered: what lies before no longer counts."""
        if self._deaths:
            self._deaths.clear()
        self._backoff_s = BACKOFF_S_MIN

    def died(self, *, now: float) -> float | None:
        """Seconds to wait before the next start; None: give up."""
        self._deaths.append(now)
        if len(self._deaths) == DEATHS_MAX and now - self._deaths[0] < DEATHS_WINDOW_S:
            return None
        wait_s = self._backoff_s
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_S_MAX)
        return wait_s
