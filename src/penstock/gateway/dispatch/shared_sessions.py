"""Sessions of an endpoint that several gateways share.

A request of a session may come over any connection, and so to any gateway. The gateway that opens a
session reports its copy, the one that closes it reports that, and from time to time each reports
the sessions that were used. A gateway that meets an unknown session asks
(`api/runtime/request.py`). So each gateway keeps only the sessions that it has met.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.routing.copies import CopyState, NoRoute
from penstock.core.routing.sessions import Sessions

#: (endpoint, session, copy; None: it has ended): sends a report to the other gateways
TellSession = Callable[[str, str, int | None], None]


class SessionBook:
    """The sessions of all endpoints of one gateway process."""

    def __init__(self, tell: TellSession) -> None:
        self.tell = tell
        #: endpoint -> sessions used since the last `take_used`
        self._used: dict[str, set[str]] = {}

    def of(self, endpoint: str) -> Sessions:
        """The sessions of an endpoint that is new here: none yet."""
        return _SharedSessions(endpoint, self)

    def note(self, endpoint: str, session: str) -> None:
        self._used.setdefault(endpoint, set()).add(session)

    def take_used(self) -> dict[str, list[str]]:
        """Endpoint -> sessions used since the last call; reported so that they expire nowhere
        else."""
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
