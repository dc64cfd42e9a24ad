"""Sticky sessions: which copy holds the state of a session, while both live.

A session is opened by a request (or alone) and stays on the copy that was picked then. It ends when
it is closed, when it was unused for `idle_s_max`, or when its copy dies or leaves the routes: the
state is lost with the copy, and another copy would answer as if the session had never been. A lost
session is remembered as lost until it would have expired, so that its caller learns why; after that
it is unknown, like one that never was.

Where the table is full no session is opened, so that open ones are kept. Expired ones are removed
with the next call of any session, so no timer is needed. Sequences of stateful models are in the
same table, with rules of their own (`sequences.py`).
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.core.routing.copies import CopyState, NoRoute

#: s; the value of the session manager in AWS's containers for large models
SESSION_IDLE_S_MAX = 1200.0
#: per endpoint; some 300 bytes each
SESSIONS_MAX = 65_536

_RETRY_AFTER_S_FULL = 10.0  #: s; sessions end by the minute, not by the millisecond

#: s that a sequence is known for after its copy has ended it, so that no clock decides who is right
_MARGIN_S = 60.0

UNKNOWN = NoRoute("session-unknown", None)
LOST = NoRoute("session-lost", None)
FULL = NoRoute("sessions-full", _RETRY_AFTER_S_FULL)


class _Session:
    __slots__ = ("ends", "life", "state", "used")

    def __init__(self, state: CopyState, used: float) -> None:
        self.state = state
        self.life = state.life  #: life of its copy: a later life knows nothing of the session
        self.used = used  #: time of its last use, s
        self.ends = False  #: its newest request is its last


class Sessions:
    """The sessions of one endpoint."""

    __slots__ = ("_forgets", "_idle_s_least", "_idle_s_max", "_sessions", "_sessions_max")

    def __init__(
        self, *, idle_s_max: float = SESSION_IDLE_S_MAX, sessions_max: int = SESSIONS_MAX
    ) -> None:
        self._idle_s_max = self._idle_s_least = idle_s_max
        self._sessions_max = sessions_max
        self._forgets = False  #: a full table forgets the session that was unused for longest
        #: the one unused for longest comes first
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def hold_sequences(self, idle_s: float) -> None:
        """From now on sequences are in it, which their copies end after `idle_s`; 0: no more."""
        self._forgets = idle_s > 0
        self._idle_s_max = max(self._idle_s_least, idle_s + _MARGIN_S if idle_s else 0.0)

    def find(self, session: str, *, now: float) -> CopyState | NoRoute:
        """The copy of a session, which counts as used now; or an unknown or lost session."""
        self._expire(now)
        found = self._sessions.get(session)
        if found is None:
            return UNKNOWN
        if found.life != found.state.life:
            return LOST
        found.ends = False
        found.used = now
        self._sessions.move_to_end(session)
        return found.state

    def is_full(self, session: str) -> bool:
        """Whether there is no room for this session; one that exists already has room."""
        full = len(self._sessions) >= self._sessions_max and not self._forgets
        return full and session not in self._sessions

    def bind(self, session: str, state: CopyState, *, now: float) -> None:
        """Begins the session on this copy. Check `is_full` before."""
        self.adopt(session, state, now=now)

    def adopt(self, session: str, state: CopyState, *, now: float) -> None:
        """The session lives on this copy; it began here or at another gateway."""
        self._drop(session)
        if self._forgets and len(self._sessions) >= self._sessions_max:
            self._drop(next(iter(self._sessions)))
        self._sessions[session] = _Session(state, now)
        state.sessions += 1

    def note_end(self, session: str) -> None:
        """The request that `find` or `bind` was for is the session's last."""
        found = self._sessions.get(session)
        if found is not None:
            found.ends = True

    def ended(self, session: str, *, now: float) -> None:
        """A last request was answered. Ignored if another one came since."""
        found = self._sessions.get(session)
        if found is not None and found.ends:
            self.close(session, now=now)

    def lose(self, session: str) -> None:
        """Its copy did not compute a request of it: the state there is not what it should be."""
        found = self._sessions.get(session)
        if found is not None:
            found.life = -1

    def open_on(self, state: CopyState, *, idle_s: float, now: float) -> bool:
        """Whether a session of this copy was used within `idle_s`."""
        return any(
            one.state is state and one.life == state.life and now < one.used + idle_s
            for one in self._sessions.values()
        )

    def close(self, session: str, *, now: float) -> bool:
        """Ends a session, even a lost one; False: it is unknown."""
        return self.forget(session, now=now)

    def forget(self, session: str, *, now: float) -> bool:
        """A session has ended, here or at another gateway; False: it is unknown."""
        self._expire(now)
        return self._drop(session)

    def _drop(self, session: str) -> bool:
        found = self._sessions.pop(session, None)
        if found is None:
            return False
        found.state.sessions -= 1
        return True

    def _expire(self, now: float) -> None:
        sessions = self._sessions
        while sessions:
            first, found = next(iter(sessions.items()))
            if now < found.used + self._idle_s_max:
                return
            self._drop(first)

    def check_invariants(self) -> None:
        assert len(self._sessions) <= self._sessions_max, "more sessions than allowed"
        used = [session.used for session in self._sessions.values()]
        assert used == sorted(used), "sessions are not in the order of their use"
