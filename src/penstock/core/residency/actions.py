"""The actions for a host of target models, each with the reason that `explain` shows.

Prepare       fetch and unpack the artifact, say what it will take -> prepared | load_failed
Load          there is room: load it                               -> loaded | load_failed | crashed
Unload        no request is in flight on it: give its memory back  -> unloaded
Admit         its parked requests may go
RefuseParked  its parked requests are to be refused

`ResidencyStory` keeps the last events of one model: what, why, for which other model, at what cost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

# why a model is prepared and loaded
FIRST_CALL = "first-call"  #: callers wait for a model that was never loaded, or was forgotten
CALLED_AGAIN = "called-again"  #: callers wait for a model that was unloaded
WISHED = "wished"
#: its callers could not be answered in time; it is loaded for their retries
RETRY_EXPECTED = "retry-expected"
ROOM_MADE = "room-made"  #: for Load: others were unloaded for it

# why a model is unloaded
LEAST_RECENTLY_USED = "least-recently-used"
OVER_BUDGET = "over-budget"  #: models grew, or took more than was expected
OUTGROWN = "outgrown"  #: the model alone takes more than the budget has
DISMISSED = "dismissed"
#: its artifact was replaced; also the reason to fetch the new one while nobody waits
REPLACED = "replaced"
CACHE_DISABLED = "cache-disabled"

# why parked requests may go
LOADED = "loaded"
STILL_LOADED = "still-loaded"  #: it was to be unloaded, and was called before that happened

# why requests are refused
LARGER_THAN_BUDGET = "larger-than-budget"
LOAD_FAILED = "load-failed"
QUARANTINED = "quarantined"
NOT_IN_TIME = "not-in-time"
TOO_MANY_WAITING = "too-many-waiting"
#: until the deadline all other models are busy, pinned, or within their minimum residency
NO_ROOM = "no-room"


@dataclass(frozen=True, slots=True)
class Prepare:
    """Fetch the artifact and estimate its need; then call `prepared` or `load_failed`."""

    model: str
    reason: str  #: first-call | called-again | wished | retry-expected | replaced


@dataclass(frozen=True, slots=True)
class Load:
    """Load the model; then call `loaded`, `load_failed` or `crashed`."""

    model: str
    reason: str  #: Prepare's reason, or room-made
    #: load or end no other model meanwhile: its memory is not known, and is to be measured
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload the model; then call `unloaded`. No request is in flight on it."""

    model: str
    reason: str
    made_room_for: str = ""  #: the model that takes its place; empty: none


@dataclass(frozen=True, slots=True)
class Admit:
    """All parked requests of the model may be sent.

    From now on the model counts as busy: call `began` for each request that is sent, and `idle`
    after the last answer (at once, if none was left to send).
    """

    model: str
    reason: str  #: loaded | still-loaded


@dataclass(frozen=True, slots=True)
class RefuseParked:
    """Refuse parked requests of the model: all of them, or those with early deadlines.

    Also returned for a model that was only loaded on demand and has no parked requests.
    """

    model: str
    reason: str
    message: str
    retry_after_s: float | None = None  #: None: not known, or a retry does not help
    #: only requests whose deadline is at or before this moment; None = all parked requests
    deadline_max: float | None = None
    #: only the request that `request` was just called for; earlier ones stay parked
    newest_only: bool = False
    #: only calls by other models of the host, whose places it would need
    calls_only: bool = False


Action = Prepare | Load | Unload | Admit | RefuseParked


_EVENTS_KEPT = 16


class ResidencyEvent(NamedTuple):
    at: float
    what: str  #: prepare | load | loaded | unload | unloaded | refused | failed | crashed | ...
    why: str
    made_room_for: str = ""
    cost_s: float = 0.0  #: s that it took
    text: str = ""


class ResidencyStory:
    """The last events; when it is full, the oldest one is dropped."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: deque[ResidencyEvent] = deque(maxlen=_EVENTS_KEPT)

    def tell(
        self,
        what: str,
        why: str,
        *,
        now: float,
        made_room_for: str = "",
        cost_s: float = 0.0,
        text: str = "",
    ) -> None:
        """Records an event. Of refusals in a row for the same reason only the last is kept."""
        newest = self._events[-1] if self._events else None
        if newest is not None and what == "refused" == newest.what and newest.why == why:
            self._events.pop()
        self._events.append(ResidencyEvent(now, what, why, made_room_for, cost_s, text))

    def told(self, *, now: float) -> list[dict[str, Any]]:
        """The events, oldest first, JSON-ready; empty fields are left out."""
        return [
            {"ago_s": now - event.at, "what": event.what, "why": event.why}
            | ({"made_room_for": event.made_room_for} if event.made_room_for else {})
            | ({"cost_s": event.cost_s} if event.cost_s else {})
            | ({"message": event.text} if event.text else {})
            for event in self._events
        ]
