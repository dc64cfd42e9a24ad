"""Sessions that any gateway may meet: what others are told, and what they make of it."""

from __future__ import annotations

from typing import Any

from tests.kit.gateway import Bench, routes

from penstock.core.routing.sessions import SESSION_IDLE_S_MAX
from penstock.errors import CallerError
from penstock.gateway.dispatch.shared_sessions import SessionBook


class SessionsSite:
    """Two gateways and the control side's dispatcher, each told what the book of another says."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int | None]] = []
        self.a, self.b, self.control = Bench(1, 2), Bench(1, 2), Bench(1, 2)
        self.book = SessionBook(self._tell)
        self._share(self.a)

    def _share(self, bench: Bench) -> None:
        bench.dispatcher.withdraw("echo")
        bench.dispatcher.table._sessions_of = self.book.of
        bench.dispatcher.publish(routes(1, 2))

    def _tell(self, endpoint: str, session: str, copy: int | None) -> None:
        self.told.append((endpoint, session, copy))
        for one in (self.control.dispatcher,):
            if copy is not None:
                one.sessions.adopt(endpoint, session, copy)
            else:
                one.sessions.forget(endpoint, session)

    def advance(self, seconds: float) -> None:
        for bench in (self.a, self.b, self.control):
            bench.timers.advance(seconds)


def code_of(call: Any) -> str:
    try:
        call()
    except CallerError as error:
        return error.code
    return ""


def test_a_session_is_known_to_whom_it_is_told_and_to_nobody_else() -> None:
    site = SessionsSite()
    site.a.dispatcher.sessions.open("echo", "s")
    [(endpoint, session, copy)] = site.told
    assert (endpoint, session) == ("echo", "s")
    assert site.control.dispatcher.sessions.find("echo", "s") == copy
    assert site.b.dispatcher.sessions.find("echo", "s") == "session-unknown"
    site.b.dispatcher.sessions.adopt("echo", "s", copy or 0)
    assert site.b.dispatcher.sessions.find("echo", "s") == copy
    site.a.dispatcher.sessions.close("echo", "s")
    assert site.told[1:] == [("echo", "s", None)]
    assert site.control.dispatcher.sessions.find("echo", "s") == "session-unknown"
    assert code_of(lambda: site.a.dispatcher.sessions.close("echo", "s")) == "session-unknown"
    assert len(site.told) == 2  # what is not known is not told


def test_whose_copy_is_lost_is_lost_and_not_unknown() -> None:
    site = SessionsSite()
    site.a.dispatcher.sessions.open("echo", "s")
    copy = site.told[0][2]
    control = site.control.dispatcher
    control.on_event(f"i{copy}", {"event": "copy-lost", "copy": copy})
    control.on_event(f"i{copy}", {"event": "copy-ready", "copy": copy})
    assert control.sessions.find("echo", "s") == "session-lost"


def test_a_session_that_is_used_anywhere_expires_nowhere_else() -> None:
    site = SessionsSite()
    site.a.dispatcher.sessions.open("echo", "s")
    for _ in range(3):
        site.advance(SESSION_IDLE_S_MAX - 1.0)
        site.a.dispatcher.sessions.find("echo", "s")
        assert site.book.take_used() == {"echo": ["s"]}
        site.control.dispatcher.sessions.find("echo", "s")  # as the control side does for each
    assert isinstance(site.control.dispatcher.sessions.find("echo", "s"), int)
    assert site.book.take_used() == {}
    site.advance(SESSION_IDLE_S_MAX)
    assert site.control.dispatcher.sessions.find("echo", "s") == "session-unknown"


def test_news_of_an_endpoint_or_a_copy_that_is_not_known_is_ignored() -> None:
    site = SessionsSite()
    control = site.control.dispatcher
    control.sessions.adopt("nowhere", "s", 1)
    control.sessions.forget("nowhere", "s")
    control.sessions.adopt("echo", "s", 9)
    assert control.sessions.find("nowhere", "s") == "session-unknown"
    assert control.sessions.find("echo", "s") == "session-unknown"
