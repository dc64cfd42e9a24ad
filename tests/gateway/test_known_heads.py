"""Heads that came before are not parsed again, and nothing but their cost is different."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateway_fakes import PREFIX, post, run
from tests.gateway.http_site import ScriptedDoor, site

from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.core.body_budget import BodyBudget
from penstock.core.host_gate import HostGate
from penstock.gateway.asgi import AsgiDoor
from penstock.gateway.call import Call
from penstock.gateway.http import HttpConnection
from penstock.gateway.known_heads import HEAD_BYTES_MAX, HEADS_MAX, KnownHeads
from penstock.gateway.listener import HttpListener
from penstock.gateway.request_id import RequestIds

POST = b"POST /hot/x HTTP/1.1\r\nHost: x\r\n"


class MemoryTransport:
    """Keeps what is written; a client that takes everything at once."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Seen(ScriptedDoor):
    """What the requests were, as doors see them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []

    def handle(self, call: Call) -> bool:
        self.seen.append(
            (
                call.method, call.url, list(call.headers), call.body, call.content_type,
                call.accept, call.rare, call.connection_line, call.number,
            )
        )  # fmt: skip
        return super().handle(call)


class Connected:
    """One connection to a listener whose doors echo at once."""

    def __init__(self, *, bodies: BodyBudget | None = None, authenticator: Any = None) -> None:
        self.door = Seen()
        self.listener = HttpListener(
            limits=LimitConfig(body_bytes_max=1000),
            clock=SystemClock(),
            ids=RequestIds(PREFIX),
            doors=[(b"/", self.door)],
            fallback=AsgiDoor(cast(Any, None)),
            gate=HostGate(hosts=("x",)),
            bodies=bodies,
            authenticator=authenticator,
        )
        self.transport, self.connection = self.another()

    def another(self) -> tuple[MemoryTransport, HttpConnection]:
        transport, connection = MemoryTransport(), HttpConnection(self.listener)
        connection.connection_made(cast(Any, transport))
        return transport, connection

    def read(self, *reads: bytes) -> None:
        for data in reads:
            self.connection.data_received(data)

    @property
    def bodies(self) -> list[bytes]:
        return [request[3] for request in self.door.seen]


def test_the_third_request_with_a_head_is_taken_without_the_parser() -> None:
    """The first teaches the host, the second the head; other connections know it, too."""
    server = Connected()
    server.read(post("/hot/x", b"one"), post("/hot/x", b"two"))
    assert len(server.listener.known_heads or ()) == 1
    for transport, connection in (server.another(), (server.transport, server.connection)):
        connection.data_received(post("/hot/x", b"abc"))
        connection._parser = None  # would raise
        connection.data_received(post("/hot/x", b"def"))
        assert transport.written[-1].endswith(b"content-length: 3\r\n\r\ndef")
    assert server.bodies == [b"one", b"two", b"abc", b"def", b"abc", b"def"]
    assert server.listener.bodies.bytes_taken == server.connection.held_bytes == 0


PIECES = (
    post("/hot/x", b"same"),
    post("/hot/x", b"diff"),
    post("/hot/x", b"\r\n\r\n"),
    post("/hot/x", b"longer"),
    b"GET /hot/x?q HTTP/1.1\r\nHost: x\r\n\r\n",
    POST + b"Content-Type: a/b\r\nAccept: c\r\nContent-Length: 4\r\n\r\nbody",
    POST + b"Connection: keep-alive\r\nContent-Length: 2\r\n\r\nka",
    POST + b"Connection: close\r\nContent-Length: 2\r\n\r\ncl",
    POST + b"Origin: http://x\r\nContent-Length: 1\r\n\r\no",
    POST + b"Origin: http://y\r\nContent-Length: 1\r\n\r\no",
    POST + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\ne",
    POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    POST + b"Content-Length: 0000000004\r\n\r\nzero",
    POST + b"Content-Length: 5000\r\n\r\n",
    POST + b"Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nup",
    b"POST /hot/x HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n10",
    b"GET http://x/hot/x HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /hot/x HTTP/1.1\r\nHost: z\r\n\r\n",
    b"GET /hot/x HTTP/1.1\r\n\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"PO",
)


@given(
    st.lists(
        st.lists(st.sampled_from(PIECES) | st.sampled_from(PIECES[:4]), min_size=1, max_size=3),
        min_size=1,
        max_size=20,
    ),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_with_heads_known_the_requests_and_the_answers_are_the_same(
    reads: list[list[bytes]], cuts: list[int]
) -> None:
    """However requests are cut into reads, also within a head or the first word of it."""
    data = [b"".join(pieces) for pieces in reads]
    for cut in cuts:
        at = cut % len(data)
        data[at : at + 1] = [piece for piece in (data[at][:cut], data[at][cut:]) if piece]
    knowing, parsing = Connected(), Connected()
    parsing.connection._known_heads = None
    for _ in range(3):
        knowing.read(*data)
        parsing.read(*data)
    assert knowing.door.seen == parsing.door.seen
    assert knowing.door.refused == parsing.door.refused
    assert knowing.transport.closed == parsing.transport.closed
    assert [undated(answer) for answer in knowing.transport.written] == [
        undated(answer) for answer in parsing.transport.written
    ]
    for server in (knowing, parsing):
        server.connection.connection_lost(None)
        assert server.listener.bodies.bytes_taken == 0


def undated(answer: bytes) -> bytes:
    return b"\r\n".join(line for line in answer.split(b"\r\n") if not line.startswith(b"date:"))


def test_the_first_bytes_of_a_request_are_not_forgotten_for_a_known_head() -> None:
    """A proxy that forwards `PO` and then a whole request has forwarded something malformed."""
    server = Connected()
    server.read(*[post("/hot/x", b"abc")] * 3, b"PO", post("/hot/x", b"abc"))
    assert b'"http-malformed"' in server.transport.written[-1]
    assert server.bodies == [b"abc"] * 3


def test_only_the_head_of_a_request_that_was_all_of_a_read_is_kept() -> None:
    """Empty lines before a request are no head, and the second of a read has another than it."""
    server = Connected()
    first, second = post("/hot/x", b"abc"), post("/hot/y", b"defg")
    server.read(first, b"\r\n\r\n" + first, first + second, second[:60], second[60:])
    assert not server.listener.known_heads
    server.read(b"\r\n\r\nabc")
    assert server.bodies == [b"abc", b"abc", b"abc", b"defg", b"defg"]


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: a", b"Origin: http://x", b"X-Penstock-Deadline-Ms: 5",
        b"X: " + b"x" * HEAD_BYTES_MAX, b"Expect: 100-continue", b"Connection: close",
        b"Transfer-Encoding: chunked",
    ],
)  # fmt: skip
def test_heads_that_say_more_than_usual_are_read_each_time(line: bytes) -> None:
    server = Connected()
    server.listener._interest[b"authorization"] = b"authorization"
    server.listener._interest[b"x-penstock-deadline-ms"] = b"x-penstock-deadline-ms"
    for _ in range(4):
        _, connection = server.another()
        connection.data_received(b"GET /hot/x HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.data_received(b"GET /hot/x HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n")
    assert not server.listener.known_heads, "the plain one is each connection's first"


def test_where_credentials_are_asked_for_each_head_is_judged() -> None:
    class Open:
        def __init__(self) -> None:
            self.judged = 0

        def check_head(self, *_: object) -> None:
            self.judged += 1

        def check(self, *_: object) -> None: ...

    server = Connected(authenticator=Open())
    server.read(*[post("/hot/x", b"abc")] * 4)
    assert server.listener.authenticator.judged == 4  # type: ignore[union-attr]
    assert server.listener.known_heads is None


def test_a_known_head_takes_its_body_from_the_budget_and_waits_its_turn() -> None:
    bodies = BodyBudget(7)
    server = Connected(bodies=bodies)
    later = post("/hot/later", b"abc")
    server.read(*[post("/hot/x", b"x")] * 2, *[later] * 2)
    for call in server.door.waiting:
        call.answer(b"", b"")
    server.read(later, later)
    assert (bodies.bytes_taken, len(server.door.waiting)) == (6, 4)
    server.read(later)
    assert server.door.refused == ["bodies-too-many"]
    assert bodies.bytes_taken == 6


def test_known_heads_are_bounded() -> None:
    server = Connected()
    for number in range(HEADS_MAX + 10):
        server.read(b"GET /hot/%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
    known = cast(KnownHeads, server.listener.known_heads)
    assert 0 < len(known) <= HEADS_MAX
    assert all(len(head) <= HEAD_BYTES_MAX for head in known)


def test_a_server_that_drains_says_so_under_a_known_head_as_well() -> None:
    server = Connected()
    server.read(*[post("/hot/x", b"abc")] * 3)
    server.listener.draining = True
    server.read(post("/hot/x", b"abc"))
    assert b"connection: close" in server.transport.written[-1]
    assert server.transport.closed


def test_over_a_socket_a_known_head_is_answered_as_any_other() -> None:
    async def main() -> None:
        async with site() as served:
            client = await served.client()
            for number in range(5):
                client.write(post("/hot/x", b"body %d" % number))
                assert (await client.answer())[2] == b"body %d" % number
            assert len(served.listener.known_heads or ()) == 1

    run(main)
