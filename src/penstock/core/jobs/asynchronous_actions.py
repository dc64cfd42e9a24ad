"""What the machine of asynchronous requests is given, and what it says: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Of one endpoint."""

    concurrency_max: int  #: requests sent at once for each copy that is ready, at least 1
    #: Requests that are looked at: enough for the copies of an endpoint, and few enough that the
    #: longest queue takes some hundred kilobytes.
    window_max: int = 512
    #: Each loss is itself several tries of the gateway's; of a suspect, one.
    losses_max: int = 3
    #: A small model is loaded in about this time.
    retry_s_first: float = 1.0
    #: What was unreachable for long is looked at about once a minute.
    retry_s_max: float = 60.0
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
