"""A foreign server that is starting: when it is asked again, and when it is given up.

It is asked for its health until it says that it is ready, with growing pauses. Two mistakes would
otherwise last until the whole time for a start is over: the server has no such path, or it listens
elsewhere. Each is certain after some seconds, because a server that is still loading does not
answer at all, or says that it is not ready yet (5xx).

The log gets a line now and then, so that nobody waits in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.backoff import Backoff

#: Some quick looks first: most servers start within a second or two.
_LOOKS_PER_PAUSE: Final = 10
_PAUSES: Final = Backoff(0.05, 1.0)
#: s for which an answer must have said no: a framework may add its routes after it listens.
CERTAIN_S: Final = 6.0
_NOTE_S_FIRST, _NOTE_S_MAX = 5.0, 60.0
#: Of the 4xx, those that a client is to try again.
_LATER: Final = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class HealthObserved:
    """What one look at the server saw."""

    status: int | None = None  #: its answer; None: nobody listens, or no answer came
    elsewhere: tuple[str, ...] = ()  #: "address:port" of its other listening sockets
    serves_elsewhere: bool = False  #: one of those answered as the wanted server would
    words: str = ""  #: how its answer begins, or why there is none although somebody listens

    def answer_of(self, path: str) -> str:
        """For people; "" = nobody listens."""
        if self.status is None:
            return f"{path} {self.words}" if self.words else ""
        said = f": {self.words}" if self.words else ""
        return f"{path} answered {self.status}{said}"


@dataclass(frozen=True, slots=True)
class StartStep:
    """What to do next. `reason`: ready | path-refused | listens-elsewhere | not-ready."""

    reason: str
    pause_s: float = 0.0  #: not-ready: until the next look
    note: bool = False  #: not-ready: the log is due a line

    @property
    def failed(self) -> bool:
        return self.reason in ("path-refused", "listens-elsewhere")


class ServerStart:
    """One start. Call `looked` after each look, and do what it says."""

    def __init__(self, *, now: float) -> None:
        self._looks = 0
        self._refused_since: float | None = None
        self._elsewhere_since: float | None = None
        self._noted = now
        self._note_s = _NOTE_S_FIRST

    def looked(self, seen: HealthObserved, *, now: float) -> StartStep:
        if seen.status == 200:
            return StartStep("ready")
        self._looks += 1
        refused = seen.status is not None and 400 <= seen.status < 500
        refused = refused and seen.status not in _LATER
        self._refused_since = _since(self._refused_since, refused, now)
        elsewhere = seen.status is None and seen.serves_elsewhere
        self._elsewhere_since = _since(self._elsewhere_since, elsewhere, now)
        if _certain(self._refused_since, now):
            return StartStep("path-refused")
        if _certain(self._elsewhere_since, now):
            return StartStep("listens-elsewhere")
        note = now >= self._noted + self._note_s
        if note:
            self._noted, self._note_s = now, min(self._note_s * 2, _NOTE_S_MAX)
        pause_s = _PAUSES.pause_s(1 + self._looks // _LOOKS_PER_PAUSE)
        return StartStep("not-ready", pause_s=pause_s, note=note)


def _since(before: float | None, so: bool, now: float) -> float | None:
    if not so:
        return None
    return now if before is None else before


def _certain(since: float | None, now: float) -> bool:
    return since is not None and now >= since + CERTAIN_S
