"""What the machine of asynchronous requests is given, and what it says: plain values.

When a notification that could not be delivered is sent again, and when it is given up.

Twice as long each time from a second to twenty minutes, for a day: who receives them may be down
for a night. Delivery is at least once; a message keeps its id, by which it is known again.

How many request bodies of a job one instance is asked at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Of one endpoint."""

    concurrency_max: int  #: requests sent at once for each copy that is ready, at least 1
    #: Requests that are looked at: enough for the copies of an endpoint, and few enough that the
    #: longest queue takes some hundred kilobytes.
    window_max: int = 512
    #: A small model is loaded in about the first; what was unreachable for long is looked at about
    #: once a minute.
    retry: Backoff = Backoff(1.0, 60.0)
    #: Requests beyond the window are told that often that their time is over; it is at least 60 s.
    overdue_s: float = 5.0
    #: After the time to live of a request whose outcome can't be written: a place that was not
    #: mended for a week is not waited for.
    outcome_s_max: float = 7 * 86_400.0


class Accepted(NamedTuple):
    """A request, as far as deciding goes."""

    number: int  #: in the order of acceptance, from 1; never used twice
    expires: float  #: wall s: not sent by then, it has expired
    timeout_s: float  #: what its copies have for it, once it is sent


@dataclass(frozen=True, slots=True)
class Send:
    """Have it computed, within `timeout_s`."""

    number: int
    timeout_s: float
    reason: str  #: copy-free | tried-again
    suspect: bool = False  #: workers died that had it: it is computed alone, and the next one tells


@dataclass(frozen=True, slots=True)
class Write:
    """Write the output that was kept, and call `ended` or `unwritten`, or `failed`."""

    number: int
    reason: str  #: tried-again


@dataclass(frozen=True, slots=True)
class FailRequest:
    """Write down that it failed, and call `ended` once it has left the record."""

    number: int
    #: expired | invocation-timeout | copies-lost | endpoint-deleted | refused | model-failed |
    #: internal | output-unwritten
    reason: str
    last: bool = False  #: where it can't be written down, it is given up


@dataclass(frozen=True, slots=True)
class Fetch:
    """Load the oldest that the record has with numbers above `after`, and call `loaded`."""

    after: int
    count: int
    reason: str = "window-has-room"


@dataclass(frozen=True, slots=True)
class Wake:
    """Requests wait and no copy is there; 0: that is over."""

    waiting: int
    reason: str  #: no-capacity | capacity-there | nothing-waits


@dataclass(frozen=True, slots=True)
class FetchOverdue:
    """Load the first that the record has whose time is over, and call `overdue`."""

    count: int
    reason: str = "beyond-the-window"


Action = Send | Write | FailRequest | Fetch | FetchOverdue | Wake


RESENT: Final = Backoff(1.0, 1200.0)
GIVE_UP_AFTER_S: Final = 86_400.0


class Retry(NamedTuple):
    """What becomes of one that was not delivered."""

    at: float | None  #: wall s; None: it is given up
    reason: str  #: not-delivered | given-up


def decide(*, made: float, tries: int, now: float) -> Retry:
    """
    Args:
        made: wall s of the outcome that it tells of.
        tries: those that came to nothing, with this one.
    """
    wait_s = RESENT.pause_s(tries)
    if now + wait_s > made + GIVE_UP_AFTER_S:
        return Retry(None, "given-up")
    return Retry(now + wait_s, "not-delivered")


#: Beyond that a body more only waits, and holds its memory meanwhile.
AT_ONCE_MAX = 1024


def bodies_at_once(
    asked: int, *, foreign: bool, lanes: int, rows_max: int, queue_rows_max: int
) -> int:
    """
    Args:
        asked: MaxConcurrentTransforms of the job, or what its container says; 0 = unset.
        foreign: a container of which no more is known: AWS's rule then is 1.
        lanes: requests, or batches of them, that the copy computes at once.
        rows_max: requests that it joins in one batch.
        queue_rows_max: requests that it lets wait, 1 at least.
    """
    # Ours never computes more at once than its lanes hold; as many again wait for the next turn.
    own = 1 if foreign else 2 * lanes * max(1, rows_max)
    return min(asked or own, queue_rows_max, AT_ONCE_MAX)
