"""Sticky sessions: which copy holds the state of a session, while both live.

A session is opened by a request (or alone) and stays on the copy that was picked then. It ends when
it is closed, when it was unused for `idle_s_max`, or when its copy dies or leaves the routes: the
state is lost with the copy, and another copy would answer as if the session had never been. A lost
session is remembered as lost until it would have expired, so that its caller learns why; after that
it is unknown, like one that never was.

Where the table is full no session is opened, so that open ones are kept. Expired ones are removed
with the next call of any session, so no timer is needed.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.core.routing.copies import CopyState, NoRoute

#: s; the value of the session manager in AWS's containers for large models
SESSION_IDLE_S_MAX = 1200.0
#: per endpoint; some 300 bytes each
SESSIONS_MAX = 65_536

_RETRY_AFTER_S_FULL = 10.0  #: s; sessions end by the minute, not by the millisecond

UNKNOWN = NoRoute("session-unknown", None)
LOST = NoRoute("session-lost", None)
FULL = NoRoute("sessions-full", _RETRY_AFTER_S_FULL)


class _Session:
    __slots__ = ("life", "state", "used")

    def __init__(self, state: CopyState, used: float) -> None:
        self.state = state
        self.life = state.life  #: life of its copy: a later life knows nothing of the session
        self.used = used  #: time of its last use, s


class Sessions:
    """The sessions of one endpoint."""

    __slots__ = ("_idle_s_max", "_sessions", "_sessions_max")

    def __init__(
        self, *, idle_s_max: float = SESSION_IDLE_S_MAX, sessions_max: int = SESSIONS_MAX
    ) -> None:
        self._idle_s_max = idle_s_max
        self._sessions_max = sessions_max
        #: the one unused for longest comes first
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session: str, *, now: float) -> CopyState | NoRoute:
        """The copy of a session, which counts as used now; or an unknown or lost session."""
        self._expire(now)
        found = self._sessions.get(session)
        if found is None:
            return UNKNOWN
        if found.life != found.state.life:
            return LOST
        found.used = now
        self._sessions.move_to_end(session)
        return found.state

    def is_full(self, session: str) -> bool:
        """Whether there is no room for this session; one that exists already has room."""
        return len(self._sessions) >= self._sessions_max and session not in self._sessions

    def bind(self, session: str, state: CopyState, *, now: float) -> None:
        """Begins the session on this copy. Check `is_full` before."""
        self.adopt(session, state, now=now)

    def adopt(self, session: str, state: CopyState, *, now: float) -> None:
        """The session lives on this copy; it began here or at another gateway."""
        self._sessions[session] = _Session(state, now)
        self._sessions.move_to_end(session)

    def close(self, session: str, *, now: float) -> bool:
        """Ends a session, even a lost one; False: it is unknown."""
        return self.forget(session, now=now)

    def forget(self, session: str, *, now: float) -> bool:
        """A session has ended, here or at another gateway; False: it is unknown."""
        self._expire(now)
        return self._sessions.pop(session, None) is not None

    def _expire(self, now: float) -> None:
        sessions = self._sessions
        while sessions:
            first = next(iter(sessions.values()))
            if now < first.used + self._idle_s_max:
                return
            sessions.popitem(last=False)

    def check_invariants(self) -> None:
        assert len(self._sessions) <= self._sessions_max, "more sessions than allowed"
        used = [session.used for session in self._sessions.values()]
        assert used == sorted(used), "sessions are not in the order of their use"
