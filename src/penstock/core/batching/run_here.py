"""Whether a batch runs on the thread that received its request, instead of on its lane's.

The way to a lane's thread and back costs a lone request several switches. The receiving thread
does nothing else while it computes, so this is only for a run that is short by the learned times
(`run_times.py`), while nothing else runs or waits, and after eight requests in a row that came at
some distance. Without that last rule P50 rose by a fifth at 500 random requests/s, and P99 by more
(docs/performance.md): a thread that computes gets the processor later when the next request wakes
it.

Runs that stall in spite of that hold up all other work of the thread. Two of them within eight runs
send all batches to their lanes for a second; when that happens again soon after, for twice as long,
up to a minute. A single one proves nothing: the machine stalls, too.
"""

from __future__ import annotations

from typing import Any, Final

#: s; the longest run by its learned mean. Whatever comes meanwhile waits for it.
RUN_HERE_S_MAX: Final = 0.0015
#: Requests in a row that came at least two of the longest runs after the one before.
QUIET_ARRIVALS: Final = 8
QUIET_FACTOR: Final = 2.0
#: A run stalls that takes so many times the longest that is allowed.
STALL_FACTOR: Final = 4.0
#: Runs without a stall that make one forgotten.
FORGOTTEN_RUNS: Final = 8
PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 64.0


class RunHere:
    """Of one copy. Tell it of every arrival and of the end of each run that it allowed."""

    __slots__ = (
        "_arrived",
        "_pause_s",
        "_paused_until",
        "_quiet",
        "_run_s_max",
        "_stalls",
        "runs",
    )

    def __init__(self, run_s_max: float) -> None:
        """`run_s_max`: s, > 0; longer runs belong on a lane's thread."""
        self._run_s_max = run_s_max
        self._arrived = float("-inf")  #: the last arrival, s
        self._quiet = 0  #: arrivals at a distance, in a row
        self._stalls = 0  #: FORGOTTEN_RUNS for each stall, less one for each good run since
        self._pause_s = PAUSE_S_MIN
        self._paused_until = 0.0
        self.runs = 0

    def arrived(self, now: float) -> None:
        far = now - self._arrived >= QUIET_FACTOR * self._run_s_max
        self._quiet = self._quiet + 1 if far else 0
        self._arrived = now

    def allows(self, run_s: float, *, now: float) -> bool:
        """`run_s`: the learned mean of such a run; 0 = not known, and then it is not allowed.

        True counts as a run.
        """
        if not 0.0 < run_s <= self._run_s_max or now < self._paused_until:
            return False
        if self._quiet < QUIET_ARRIVALS:
            return False
        self.runs += 1
        return True

    def ended(self, took_s: float, *, now: float) -> None:
        """A run that was allowed has ended."""
        if took_s <= self._run_s_max * STALL_FACTOR:
            self._stalls = max(0, self._stalls - 1)
            return
        self._stalls += FORGOTTEN_RUNS
        if self._stalls <= FORGOTTEN_RUNS:
            return
        self._stalls = 0
        if now > self._paused_until + self._pause_s:
            self._pause_s = PAUSE_S_MIN
        self._paused_until = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def snapshot(self) -> dict[str, Any]:
        return {"runs": self.runs, "paused_until": self._paused_until or None}
