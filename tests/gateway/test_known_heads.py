"""Heads that came before are not parsed again, and nothing but their cost is different."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.http_site import ScriptedDoor, site
from tests.kit.gateway import PREFIX, run
from tests.kit.http_clients import post

from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.host_gate import HostGate
from penstock.gateway.http.asgi import AsgiDoor
from penstock.gateway.http.call import Call
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.known_heads import (
    CELLS,
    HEAD_BYTES_MAX,
    HEADS_MAX,
    TRIES,
    TRY_EVERY,
    KnownHead,
    KnownHeads,
)
from penstock.gateway.http.listener import HttpListener
from penstock.gateway.request_id import RequestIds

pytestmark = pytest.mark.loop(by=run)

PLAIN_GET = b"GET /hot/x HTTP/1.1\r\nHost: x\r\n\r\n"
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


class SeenHead(ScriptedDoor):
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

    def __init__(
        self,
        *,
        bodies: BodyBudget | None = None,
        authenticator: Any = None,
        gate: HostGate | None = None,
    ) -> None:
        self.door = SeenHead()
        self.listener = HttpListener(
            limits=LimitConfig(body_bytes_max=1000),
            clock=SystemClock(),
            ids=RequestIds(PREFIX),
            doors=[(b"/", self.door)],
            fallback=AsgiDoor(cast(Any, None)),
            gate=gate or HostGate(hosts=("x",)),
            bodies=bodies,
            authenticator=authenticator,
        )
        self.transport, self.connection = self.another()

    def another(self) -> tuple[MemoryTransport, HttpConnection]:
        transport, connection = MemoryTransport(), HttpConnection(self.listener)
        connection.connection_made(cast(Any, transport))
        return transport, connection

    def read(self, *reads: bytes) -> None:
        """Each is looked up, whatever came before it."""
        for data in reads:
            self.connection._unknown = 0
            self.connection.data_received(data)

    @property
    def known(self) -> KnownHeads:
        assert self.listener.known_heads is not None
        return self.listener.known_heads

    @property
    def bodies(self) -> list[bytes]:
        return [request[3] for request in self.door.seen]


def test_the_fourth_request_with_a_head_is_taken_without_the_parser() -> None:
    """The first teaches the host; what comes twice is kept, for other connections as well."""
    server = Connected()
    server.read(*[post("/hot/x", b"one")] * 3)
    assert [head.count(b"/hot/x") for head in server.known.recent] == [1]
    for transport, connection in (server.another(), (server.transport, server.connection)):
        connection.data_received(post("/hot/x", b"abc"))
        connection._parser = None  # would raise
        connection.data_received(post("/hot/x", b"def"))
        assert transport.written[-1].endswith(b"content-length: 3\r\n\r\ndef")
    assert server.bodies == [b"one", b"one", b"one", b"abc", b"def", b"abc", b"def"]
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
    for _ in range(4):
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


@pytest.mark.parametrize("at", range(len(post("/hot/x", b"abc"))))
@pytest.mark.parametrize("other", [b" ", b"\r", b"0", b"A"])
def test_a_head_that_differs_in_one_byte_is_another_head(at: int, other: bytes) -> None:
    """Whatever the parser makes of it, or refuses in it, is what is made of it."""
    known = post("/hot/x", b"abc")
    changed = known[:at] + other + known[at + 1 :]
    knowing, parsing = Connected(), Connected()
    parsing.connection._known_heads = None
    for server in (knowing, parsing):
        server.read(*[known] * 4, changed)
    assert knowing.door.seen == parsing.door.seen
    assert knowing.door.refused == parsing.door.refused
    assert list(map(undated, knowing.transport.written)) == list(
        map(undated, parsing.transport.written)
    )


def test_the_first_bytes_of_a_request_are_not_forgotten_for_a_known_head() -> None:
    """A proxy that forwards `PO` and then a whole request has forwarded something malformed."""
    server = Connected()
    server.read(*[post("/hot/x", b"abc")] * 4, b"PO", post("/hot/x", b"abc"))
    assert b'"http-malformed"' in server.transport.written[-1]
    assert server.bodies == [b"abc"] * 4


def test_only_the_head_of_a_request_that_was_all_of_a_read_is_kept() -> None:
    """Empty lines before a request are no head, and the second of a read has another than it."""
    server = Connected()
    first, second = post("/hot/x", b"abc"), post("/hot/y", b"defg")
    server.read(first)
    for _ in range(3):
        server.read(b"\r\n\r\n" + first, first + second, second[:60], second[60:])
    assert not len(server.known)
    server.read(b"\r\n\r\nabc")
    assert server.bodies == [b"abc", *[b"abc", b"abc", b"defg", b"defg"] * 3]


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: Bearer SECRET", b"Proxy-Authorization: Basic SECRET", b"Cookie: a=SECRET",
        b"X-Api-Key: SECRET", b"X-Amz-Security-Token: SECRET", b"api-key: SECRET", b"X: SECRET",
        b"Origin: http://x", b"Sec-Fetch-Site: same-origin", b"X-Penstock-Deadline-Ms: 5",
        b"Expect: 100-continue", b"Connection: close", b"Transfer-Encoding: chunked",
        b"Host: x", b"User-Agent: " + b"x" * HEAD_BYTES_MAX,
    ],
)  # fmt: skip
def test_heads_that_say_more_than_usual_are_read_each_time(line: bytes) -> None:
    """Also where no credentials are asked for: a client's key stays for its request, no longer."""
    server = Connected()
    server.listener._interest[b"x-penstock-deadline-ms"] = b"x-penstock-deadline-ms"
    for _ in range(5):
        _, connection = server.another()
        for data in (PLAIN_GET, PLAIN_GET[:-2] + line + b"\r\n\r\n"):
            connection._unknown = 0
            connection.data_received(data)
    assert not len(server.known), "the plain one is each connection's first, which is not looked up"
    assert b"SECRET" not in repr(remembered(server.listener)).encode()


def test_a_key_in_a_query_is_not_kept_either() -> None:
    server = Connected()
    server.read(*[b"GET /hot/x?X-Amz-Signature=SECRET HTTP/1.1\r\nHost: x\r\n\r\n"] * 6)
    assert len(server.bodies) == 6
    assert b"SECRET" not in repr(remembered(server.listener)).encode()


def remembered(listener: HttpListener) -> tuple[Any, ...]:
    """All that a listener keeps of what clients sent."""
    known = listener.known_heads
    assert known is not None
    check = listener.head_check
    return (
        known.recent, known._before, known._came, listener.fields, check.known_hosts,
        check._known_pages,
    )  # fmt: skip


def test_what_one_server_let_pass_another_judges_itself() -> None:
    """Names and pages that may come are a server's settings, and no part of a head."""
    lenient, strict = Connected(), Connected(gate=HostGate(hosts=("y",)))
    lenient.read(*[PLAIN_GET] * 4)
    strict.read(PLAIN_GET)
    assert (len(lenient.known), lenient.bodies) == (1, [b""] * 4)
    assert (len(strict.known), strict.door.refused) == (0, ["host-unknown"])


def test_requests_that_share_a_head_cannot_change_it_for_each_other() -> None:
    server = Connected()
    server.read(*[PLAIN_GET] * 5)
    (known,) = server.known.recent.values()
    assert known.headers == ((b"Host", b"x"),)
    assert server.door.seen[-1] == (*server.door.seen[-2][:-1], server.door.seen[-1][-1])


def test_where_credentials_are_asked_for_each_head_is_judged() -> None:
    class Open:
        def __init__(self) -> None:
            self.judged = 0

        def check_head(self, *_: object) -> None:
            self.judged += 1

        def check(self, *_: object) -> None: ...

    server = Connected(authenticator=Open())
    server.read(*[post("/hot/x", b"abc")] * 6)
    assert server.listener.authenticator.judged == 6  # type: ignore[union-attr]
    assert server.listener.known_heads is None


def test_a_known_head_takes_its_body_from_the_budget_and_waits_its_turn() -> None:
    bodies = BodyBudget(7)
    server = Connected(bodies=bodies)
    later = post("/hot/later", b"abc")
    server.read(post("/hot/x", b"x"))
    for _ in range(2):
        server.read(later)
        server.door.waiting.pop().answer(b"", b"")
    assert len(server.known) == 1
    server.read(later, later)
    assert (bodies.bytes_taken, len(server.door.waiting)) == (6, 2)
    server.read(later)
    assert server.door.refused == ["bodies-too-many"]
    assert bodies.bytes_taken == 6


def test_a_server_that_drains_says_so_under_a_known_head_as_well() -> None:
    server = Connected()
    server.read(*[post("/hot/x", b"abc")] * 4)
    server.listener.draining = True
    server.read(post("/hot/x", b"abc"))
    assert b"connection: close" in server.transport.written[-1]
    assert server.transport.closed


def get(name: int) -> bytes:
    return b"GET /hot/%d HTTP/1.1\r\nHost: x\r\n\r\n" % name


def test_heads_that_come_once_leave_nothing_behind() -> None:
    server = Connected()
    server.read(*map(get, range(5000)))
    assert (len(server.bodies), len(server.known)) == (5000, 0)
    assert len(server.known._came) == CELLS


def test_heads_are_few_and_short_and_bodies_are_not_among_them() -> None:
    server = Connected()
    server.read(PLAIN_GET)
    for number in range(3 * HEADS_MAX):
        server.read(*[post(f"/hot/{number}", b"B" * 900)] * 3)
    heads = {**server.known._before, **server.known.recent}
    assert len(heads) == len(server.known)
    assert HEADS_MAX < len(heads) <= 2 * HEADS_MAX
    assert all(len(head) <= HEAD_BYTES_MAX for head in heads)
    assert b"BBBB" not in repr(remembered(server.listener)).encode()


def test_a_head_that_is_used_stays_whatever_strangers_bring() -> None:
    """Each of theirs comes three times, which is what it takes; nothing is forgotten for it."""
    server = Connected()
    server.read(*[PLAIN_GET] * 4)
    for number in range(10 * HEADS_MAX):
        server.read(*[get(number)] * 3)
        if number % (HEADS_MAX - 1) == 0:
            server.read(PLAIN_GET)
            assert PLAIN_GET in server.known.recent
    server.read(*[get(number) for number in range(2 * HEADS_MAX, 4 * HEADS_MAX) for _ in (1, 2, 3)])
    assert PLAIN_GET not in server.known.recent
    assert PLAIN_GET not in server.known._before


def test_what_is_looked_up_is_no_longer_than_a_kept_head_and_comes_seldom() -> None:
    """However large a read is, and also from a client whose every head is new."""
    server = Connected()
    asked: list[int] = []

    class Noted(KnownHeads):
        def used_before(self, head: bytes) -> KnownHead | None:
            asked.append(len(head))
            return super().used_before(head)

    server.connection._known_heads = Noted()
    server.read(get(0))
    for size in (HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1):
        start = b"GET /hot/x HTTP/1.1\r\nHost: x\r\nUser-Agent: "
        server.read(start + b"u" * (size - len(start) - 4) + b"\r\n\r\n")
    assert asked == [HEAD_BYTES_MAX]
    server.read(get(1) * 50)
    assert asked == [HEAD_BYTES_MAX, len(get(1))]
    server.connection._unknown = 0
    for number in range(TRIES + 10 * TRY_EVERY):
        server.connection.data_received(get(number))
    assert len(asked) == 2 + TRIES + 10
    server.connection.data_received(PLAIN_GET)
    assert len(server.bodies) == 3 + 50 + TRIES + 10 * TRY_EVERY + 1


def test_a_client_that_begins_to_repeat_itself_is_noticed() -> None:
    server = Connected()
    for number in range(100):
        server.connection.data_received(get(number))
    assert server.connection._unknown > TRIES
    for _ in range(3 * TRY_EVERY):
        server.connection.data_received(PLAIN_GET)
    assert server.connection._unknown == 0


async def test_over_a_socket_a_known_head_is_answered_as_any_other() -> None:
    async with site() as served:
        client = await served.client()
        for number in range(5):
            assert (await client.ask(post("/hot/x", b"body %d" % number)))[2] == b"body %d" % number
        assert len(served.listener.known_heads or ()) == 1, "two were looked up, one kept"


def known(url: bytes = b"/hot/x", *names: bytes) -> KnownHead:
    headers = [(name, b"x") for name in names]
    return KnownHead(0, b"GET", url, headers, None, None, cast(Any, None))


def test_a_head_that_may_not_be_kept_is_not_wanted_again() -> None:
    heads = KnownHeads()
    assert [heads.wants(b"a") for _ in range(3)] == [False, True, True]
    heads.keep(b"a", known(b"/hot/x", b"Cookie"))
    assert [heads.wants(b"a") for _ in range(3)] == [False, False, False]
    assert len(heads) == 0


def test_a_generation_of_heads_is_over_when_it_is_full() -> None:
    heads = KnownHeads()
    for number in range(HEADS_MAX):
        heads.keep(b"%d" % number, known())
    assert (len(heads.recent), len(heads)) == (HEADS_MAX, HEADS_MAX)
    heads.keep(b"one more", known())
    assert (list(heads.recent), len(heads)) == ([b"one more"], HEADS_MAX + 1)
