"""What a host of target models is told to do, each with the reason that `explain` shows.

Prepare   fetch and unpack the artifact, say what it will take     -> prepared | load_failed
Load      there is room: load it                                   -> loaded | load_failed | crashed
Unload    nobody is being answered by it: give its memory back     -> unloaded
Admit     its parked requests may go
Refuse    its parked requests are to be refused
"""

from __future__ import annotations

from dataclasses import dataclass

# why a model is prepared and loaded
FIRST_CALL = "first-call"  #: callers wait for a model that was never loaded, or was forgotten
CALLED_AGAIN = "called-again"  #: callers wait for a model that was unloaded
WISHED = "wished"
RETRY_EXPECTED = "retry-expected"  #: its callers could not be answered in time; it loads for later
ROOM_MADE = "room-made"  #: (Load) others were unloaded for it

# why a model is unloaded
LEAST_RECENTLY_USED = "least-recently-used"
OVER_BUDGET = "over-budget"  #: models grew, or took more than was expected
OUTGROWN = "outgrown"  #: it alone takes more than the budget has
DISMISSED = "dismissed"
REPLACED = "replaced"  #: its artifact was; also why the new one is fetched, with nobody waiting
CACHE_DISABLED = "cache-disabled"

# why parked requests may go
LOADED = "loaded"
STILL_LOADED = "still-loaded"  #: it was to be unloaded and was called again before

# why requests are refused
LARGER_THAN_BUDGET = "larger-than-budget"
LOAD_FAILED = "load-failed"
QUARANTINED = "quarantined"
NOT_IN_TIME = "not-in-time"
TOO_MANY_WAITING = "too-many-waiting"
NO_ROOM = "no-room"  #: all others answer, are pinned, or stay their minimum, until the deadline


@dataclass(frozen=True, slots=True)
class Prepare:
    """Fetch its artifact and estimate its need; then call `prepared` or `load_failed`."""

    model: str
    reason: str  #: first-call | called-again | wished | retry-expected | replaced


@dataclass(frozen=True, slots=True)
class Load:
    """Load it; then call `loaded`, `load_failed` or `crashed`."""

    model: str
    reason: str  #: as of Prepare, or room-made
    #: nothing may be loaded or ended beside it: what it takes is not known, and is to be measured
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Unload:
    """Give its memory back; then call `unloaded`. No request is in flight on it."""

    model: str
    reason: str
    made_room_for: str = ""  #: the model that takes its place


@dataclass(frozen=True, slots=True)
class Admit:
    """All parked requests of the model may go.

    The model counts as busy from here: call `began` for each request that is sent, and `idle` after
    the last answer (at once, if none was left to send).
    """

    model: str
    reason: str  #: loaded | still-loaded


@dataclass(frozen=True, slots=True)
class RefuseParked:
    """Parked requests of the model are to be refused: all of them, or those with early deadlines.

    Also said of a model that was only wished for and has no parked requests.
    """

    model: str
    reason: str
    message: str
    retry_after_s: float | None = None  #: None: not known, or trying again does not help
    #: only the requests whose deadline is at or before this moment; None = all parked requests
    deadline_max: float | None = None
    #: only the request that `request` was just called for; those parked before it stay
    newest_only: bool = False


Action = Prepare | Load | Unload | Admit | RefuseParked
