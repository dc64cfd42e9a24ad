"""Sessions of an endpoint that other gateways are told of.

A request of a session may come by any connection, and so to any gateway. Whoever begins a session
says where it lives, whoever ends it says so, and now and then which were used; a gateway that meets
an unknown one asks (`api/runtime/request.py`). So each keeps only those that it has met.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.routing.copies import CopyState, NoRoute
from penstock.core.routing.sessions import Sessions

#: (endpoint, session, copy; None: it has ended)
TellSession = Callable[[str, str, int | None], None]


class SessionBook:
    """The sessions of all endpoints of one gateway process."""

    def __init__(self, tell: TellSession) -> None:
        self.tell = tell
        self._used: dict[str, set[str]] = {}  #: endpoint -> sessions, since they were taken

    def of(self, endpoint: str) -> Sessions:
        """Empty ones of an endpoint that is new here."""
        return _SharedSessions(endpoint, self)

    def note(self, endpoint: str, session: str) -> None:
        self._used.setdefault(endpoint, set()).add(session)

    def take_used(self) -> dict[str, list[str]]:
        """By endpoint; so that a session that is used here does not expire elsewhere."""
        used, self._used = self._used, {}
        return {endpoint: sorted(sessions) for endpoint, sessions in used.items()}


class _SharedSessions(Sessions):
    __slots__ = ("_book", "_endpoint")

    def __init__(self, endpoint: str, book: SessionBook) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._book = book

    def find(self, session: str, *, now: float) -> CopyState | NoRoute:
        found = super().find(session, now=now)
        if isinstance(found, CopyState):
            self._book.note(self._endpoint, session)
        return found

    def bind(self, session: str, state: CopyState, *, now: float) -> None:
        super().bind(session, state, now=now)
        self._book.tell(self._endpoint, session, state.copy)

    def close(self, session: str, *, now: float) -> bool:
        closed = super().close(session, now=now)
        if closed:
            self._book.tell(self._endpoint, session, None)
        return closed
