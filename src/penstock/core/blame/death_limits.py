"""The table of limits: how many deaths it takes until one suspect is blamed, and why.

    suspect                  what dies with it           enough for blame
    a request                the worker that computes it 2 as the only suspect, 4 in company
    an asynchronous request  the same, seconds apart     3 verdicts of the row above
    a record of a job        the instance with its span  3 as the only suspect
    the span of a job        the same                    5 with the same records at work, 16 at all
    a target model, native   the instance with its host  2 as the only suspect, 4 in company
    a target model           its own process             3 in a row while it is loaded
    a model, a program       the worker that serves it   5 in a row; of a copy, within a minute

*In company*: other suspects were there each time. The last row decides when the process of a
target model that is loaded already is given up; the model is then loaded anew, and three times in a
row are enough. Slots count starts of instances and copies that fail, for whatever reason
(`core/deployment/slot_retries.py`): there are no other suspects.

When a process that dies again and again is restarted, and when it is given up.

The first restart waits 0.1 s, each further one twice as long, up to 10 s; after an answer the wait
is 0.1 s again. Five deaths without an answer in between are a *crash loop*: restarting does not
help. The caller does the restart and handles giving up.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

from penstock.core.backoff import Backoff

#: A suspect that never was the only one needs this factor of deaths: by then chance would hardly
#: have put it there each time, and waiting longer would end more processes.
COMPANY_FACTOR: Final = 2


def deaths_needed(deaths_max: int, *, only_suspect: bool) -> int:
    """How many deaths are enough, where `deaths_max` are for the only suspect."""
    return deaths_max if only_suspect else COMPANY_FACTOR * deaths_max


# Requests

#: One death may have any cause; two deaths under one request are caused by the request.
REQUEST_DEATHS_MAX: Final = 2
#: Instances lost in a row with one request until it fails: the machine itself may be failing.
REQUEST_LOSSES_MAX: Final = 4
#: Times that the two rules above gave an asynchronous request up; from the second on one death is
#: enough. Other causes may have ended the processes, and the request has time for another test.
ASYNC_LOSSES_MAX: Final = 3

# Records of transform jobs

#: The first of two deaths may pick a record by chance, and the second only has to happen while that
#: record runs: this was seen in a job with 100 kills. A refusal is final, so it takes one more.
RECORD_DEATHS_MAX: Final = 3
#: Whole runs of a span that died with the same records at work, though each record passed by
#: itself. After each of these deaths the suspects were run apart, so chance is ruled out by then.
SPAN_DEATHS_MAX: Final = 5
#: Deaths of a span for whatever reason, since a record was refused last. Three whole searches
#: (`SEARCH_TRIES`) may be in vain, so that whatever kills by chance has time to stop.
SPAN_TRIES_MAX: Final = 16
#: The first of these need no pause while suspects are run apart: a search takes five.
SEARCH_TRIES: Final = 6
#: Parts that suspects are run in. With this many, few deaths find one record among very many, and
#: batches of a common size are run record by record at once.
SUSPECT_PARTS_MAX: Final = 256

# Target models

#: Deaths in a row of the model's own process. One death says nothing about the model, as `kill -9`
#: looks like the kernel's kill when memory runs out, and it costs no other model anything.
MODEL_DEATHS_MAX: Final = 3
#: Crashes of whole instances, with all models loaded there: so one less is enough. Signals that
#: come from outside do not count here (`is_crash`).
MODEL_CRASHES_MAX: Final = 2
#: An older crash is forgotten; this is also the longest quarantine.
CRASHES_REMEMBERED_S: Final = 3600.0
#: Length of the first quarantine, s. A model that ran this long has a clean record again.
QUARANTINE_S: Final = 300.0

# Workers and programs that are started again

#: Five deaths take some seconds, with starts and waits: temporary causes have passed by then. Fewer
#: would give up a process that something else killed.
LOOP_DEATHS_MAX: Final = 5
#: Window for the deaths of a copy, s. A copy that dies once an hour without a request in between is
#: restarted for ever, because giving up costs the whole copy. A model of a shared worker has no
#: window: its next caller has it loaded again.
LOOP_WINDOW_S: Final = 60.0
#: s before the first restart; doubles each time.
RESTART_WAIT_S_MIN: Final = 0.1
RESTART_WAIT_S_MAX: Final = 10.0


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
