"""Inputs and actions of the machine of asynchronous requests, retries of notifications,
concurrency.

A notification that could not be delivered is sent again after a pause that doubles from a second to
twenty minutes, for a day: its receiver may be down for a night. Delivery is at least once; a
message keeps its id, so that receivers recognise repeats.

`bodies_at_once` says how many request bodies of a job one instance gets at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Limits and pauses of one endpoint's queue."""

    concurrency_max: int  #: requests sent at once for each copy that is ready, at least 1
    #: Requests that are held in memory: enough for the copies of an endpoint, and few enough that
    #: the longest queue takes some hundred kilobytes.
    window_max: int = 512
    #: Pauses before retries. A small model is loaded within about the first; something that stays
    #: unreachable is tried about once a minute.
    retry: Backoff = Backoff(1.0, 60.0)
    #: s between checks for expired requests beyond the window; a time to live is at least 60 s.
    overdue_s: float = 5.0
    #: s after its time to live that an outcome is still tried to be written: after a week the place
    #: is not expected to come back.
    outcome_s_max: float = 7 * 86_400.0


class Accepted(NamedTuple):
    """A request, as far as decisions need it."""

    number: int  #: in the order of acceptance, from 1; never used twice
    expires: float  #: wall s; not sent by then, it has expired
    timeout_s: float  #: s that its copies have for it, once it is sent


@dataclass(frozen=True, slots=True)
class Send:
    """Send it to a copy, to be computed within `timeout_s`."""

    number: int
    timeout_s: float
    reason: str  #: copy-free | tried-again
    #: workers that had it died: it is computed alone, so that a further death has one suspect
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Write the kept output, and call `ended`, `unwritten` or `failed`."""

    number: int
    reason: str  #: tried-again


@dataclass(frozen=True, slots=True)
class FailRequest:
    """Write down that it failed, and call `ended` once it has left the record."""

    number: int
    #: expired | invocation-timeout | copies-lost | endpoint-deleted | refused | model-failed |
    #: internal | output-unwritten
    reason: str
    last: bool = False  #: if this can't be written either, it is given up


@dataclass(frozen=True, slots=True)
class Fetch:
    """Load the oldest requests of the record with numbers above `after`, and call `loaded`."""

    after: int
    count: int
    reason: str = "window-has-room"


@dataclass(frozen=True, slots=True)
class Wake:
    """Requests wait and no copy is there; `waiting` 0: that is over."""

    waiting: int
    reason: str  #: no-capacity | capacity-there | nothing-waits


@dataclass(frozen=True, slots=True)
class FetchOverdue:
    """Load the first requests of the record whose time is over, and call `overdue`."""

    count: int
    reason: str = "beyond-the-window"


Action = Send | Write | FailRequest | Fetch | FetchOverdue | Wake


RESENT: Final = Backoff(1.0, 1200.0)
GIVE_UP_AFTER_S: Final = 86_400.0


class Retry(NamedTuple):
    """What happens to a notification that was not delivered."""

    at: float | None  #: wall s of the next try; None: it is given up
    reason: str  #: not-delivered | given-up


def decide(*, made: float, tries: int, now: float) -> Retry:
    """
    Args:
        made: wall s of the outcome that it reports.
        tries: failed tries, with this one.
    """
    wait_s = RESENT.pause_s(tries)
    if now + wait_s > made + GIVE_UP_AFTER_S:
        return Retry(None, "given-up")
    return Retry(now + wait_s, "not-delivered")


#: Bodies beyond this number would only wait, and take memory meanwhile.
AT_ONCE_MAX = 1024


def bodies_at_once(
    asked: int, *, foreign: bool, lanes: int, rows_max: int, queue_rows_max: int
) -> int:
    """
    Args:
        asked: MaxConcurrentTransforms of the job, or what its container says; 0 = unset.
        foreign: a container of which nothing else is known: AWS's rule then is 1.
        lanes: requests, or batches of them, that the copy computes at once.
        rows_max: requests that it joins in one batch.
        queue_rows_max: requests that may wait in it, at least 1.
    """
    # Our own copies compute at most what their lanes hold; as many again wait for the next turn.
    own = 1 if foreign else 2 * lanes * max(1, rows_max)
    return min(asked or own, queue_rows_max, AT_ONCE_MAX)
