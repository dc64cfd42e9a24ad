"""HTTP requests over HTTP/2 at an HTTP port: the same doors, checks, bounds and refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.gateway.http2_by_hand import Http2ByHand
from tests.gateway.http_site import POST, Gatekeeper, site
from tests.kit.gateway import PREFIX, run
from tests.kit.http2_clients import Http2Client
from tests.kit.http_clients import RawClient, post
from tests.kit.polling import until
from tests.wire.http2_bytes import START

from penstock.core.request import body_budget
from penstock.core.request.body_budget import BodyBudget
from penstock.gateway.http.call import status_line
from penstock.gateway.http.connection import LINGER_S_MAX
from penstock.gateway.http2.http_connection import HttpOverHttp2
from penstock.wire.http2 import frames

pytestmark = pytest.mark.loop(by=run)

NO_ERROR = 0
CALM = 11


# Which protocol


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 10, 23, 24, 25])
async def test_a_preface_makes_a_connection_http2_however_it_is_cut(cut: int) -> None:
    async with site() as served:
        client = await Http2Client.to(served.port, preface_cut=cut)
        got = await client.ask("GET", "/hot/x?q=1")
        assert (got.status, got.headers["x-query"], got.body) == (200, "q=1", b"")
        assert got.headers["x-amzn-requestid"].startswith(PREFIX)
        got = await client.ask("POST", "/hot/x", b"hello")
        assert (got.status, got.body, got.headers["content-length"]) == (200, b"hello", "5")
        assert served.door.written_urls == [b"/hot/x?q=1", b"/hot/x"]
        client.close()


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_what_only_begins_like_the_preface_is_http_1_1(cut: int) -> None:
    async with site() as served:
        client = await served.client()
        request = post("/hot/x", b"hello")
        client.write(request[:cut])
        await asyncio.sleep(0.02)
        assert (await client.ask(request[cut:]))[::2] == (200, b"hello")
        assert len(served.listener.connections) == 1


async def test_too_few_first_bytes_have_the_time_of_a_head() -> None:
    by_hand = Http2ByHand()
    wire, connection = by_hand.site.another()
    wire.connection.data_received(b"P")
    assert wire.connection is not connection
    by_hand.site.clock.advance(by_hand.site.listener.limits.head_timeout_s)
    connection.check(by_hand.site.clock.monotonic())
    assert wire.closing
    wire.connection.connection_lost(None)
    assert connection not in by_hand.site.listener.connections


async def test_what_begins_like_http2_and_is_not_ends() -> None:
    async with site() as served:
        client = await served.client()
        client.write(b"PRI /hot/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.closed())[3] == frames.SETTINGS
        assert served.door.handled == []


# What the head decides


@pytest.mark.parametrize(
    ("method", "path", "fields", "authority", "status", "said"),
    [
        ("GET", "/hot/x", [("a", "b")] * 129, "x", 431, b"head-too-large"),
        ("GET", "/hot/x", [("a", "b" * 66_000)], "x", 431, b"head-too-large"),
        ("POST", "/hot/x", [("content-length", "6291457")], "x", 413, b"body-too-large"),
        ("POST", "/hot/x", [("expect", "a miracle")], "x", 417, b"expectation-unknown"),
        ("POST", "/hot/x", [], "elsewhere", 421, b"host-unknown"),
        ("POST", "/hot/x", [("origin", "http://evil.example")], "x", 403, b"page-foreign"),
        ("OPTIONS", "*", [], "x", 400, b"target-unknown"),
        ("CONNECT", "", [], "x", 405, b"method-unknown"),
    ],
)
async def test_a_head_that_is_refused_is_answered_by_its_door_and_the_connection_goes_on(
    method: str,
    path: str,
    fields: list[tuple[str, str]],
    authority: str,
    status: int,
    said: bytes,
) -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        stream = client.begin(method, path, *fields, authority=authority, end=method != "POST")
        got = await client.answer(stream)
        assert (got.status, said in got.body) == (status, True), got
        assert got.headers["x-amzn-requestid"].startswith(PREFIX)
        assert (await client.ask("POST", "/hot/x", b"more")).body == b"more"
        client.close()


async def test_a_head_of_the_size_that_http_1_1_takes_passes() -> None:
    by_hand = Http2ByHand()
    fields = [("a", "b")] * 100
    size = by_hand.site.listener.limits.head_bytes_max - len("/hot/x") - 100 * 6 - 5
    assert (await by_hand.ask("GET", "/hot/x", b"", *fields, ("c", "c" * size))).status == 200
    got = await by_hand.ask("GET", "/hot/x", b"", *fields, ("c", "c" * (size + 1)))
    assert (got.status, got.body) == (431, b"head-too-large")


async def test_a_head_beyond_what_is_decoded_is_refused_without_its_door() -> None:
    by_hand = Http2ByHand()
    got = await by_hand.ask("GET", "/hot/x", b"", ("a", "b" * 80_000))
    assert (got.status, got.body, by_hand.door.refused) == (431, b"", [])
    assert (await by_hand.ask("GET", "/hot/x")).status == 200


async def test_an_expectation_is_answered_before_the_body_comes() -> None:
    by_hand = Http2ByHand()
    stream = by_hand.begin("POST", "/hot/x", ("expect", "100-continue"), end=False, authority="x")
    assert (await by_hand.answered(stream)).interim == [100]
    by_hand.send(stream, b"body", end=True)
    got = await by_hand.answered(stream)
    assert (got.status, got.body) == (200, b"body")


async def test_credentials_are_checked_by_the_head_and_again_with_the_body() -> None:
    keeper = Gatekeeper()
    by_hand = Http2ByHand(authenticator=LowerCase(keeper))
    stream = by_hand.begin("POST", "/hot/x?q", end=False, authority="x")
    got = await by_hand.answered(stream)
    assert (got.status, got.ended) == (403, True)
    assert by_hand.door.refused == ["MissingAuthenticationTokenException"]
    got = await by_hand.ask("POST", "/hot/x", b"other", ("authorization", "mine"))
    assert (got.status, got.body) == (403, b"wrong")
    got = await by_hand.ask("POST", "/hot/x", b"mine", ("authorization", "mine"))
    assert (got.status, got.body) == (200, b"mine")
    assert keeper.heads[0] == ("POST", b"/hot/x", b"q")
    assert by_hand.bodies_bytes == 0


class LowerCase:
    """A gatekeeper for clients that write names in lower case; it sees the host, too."""

    def __init__(self, keeper: Gatekeeper) -> None:
        self._keeper = keeper

    def check_head(self, method: str, path: bytes, query: bytes, given: Any) -> None:
        assert (b"host", b"x") in given
        self._keeper.check_head(method, path, query, _titled(given))

    def check(self, method: str, path: bytes, query: bytes, given: Any, body: bytes) -> None:
        assert (b"host", b"x") in given
        self._keeper.check(method, path, query, _titled(given), body)


def _titled(given: Any) -> list[tuple[bytes, bytes]]:
    return [(name.title(), value) for name, value in given]


# What a door sees


async def test_a_door_sees_the_request_as_over_http_1_1() -> None:
    by_hand = Http2ByHand(interest=(b"x-mine",))
    fields = [("content-type", "a/b"), ("accept", "c/d"), ("x-mine", "1"), ("x-mine", "2")]
    await by_hand.ask("PUT", "/hot/later?a=%20b", b"body", *fields)
    [call] = by_hand.door.waiting
    assert (call.method, call.url, call.body) == (b"PUT", b"/hot/later?a=%20b", b"body")
    assert (call.path, call.query) == (b"/hot/later", b"a=%20b")
    assert (call.content_type, call.accept, call.rare) == (b"a/b", b"c/d", {b"x-mine": b"1,2"})
    assert next(iter(call.headers)) == (b"host", b"x")
    assert call.received == by_hand.site.clock.monotonic()
    assert call.connection is not None
    assert call.connection.about("peername") == ("192.0.2.1", 1, 0, 0)


async def test_a_request_without_a_door_goes_to_the_application() -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        got = await client.ask("POST", "/app/%C3%A9?x=1", b"abc")
        assert got.body.decode() == "POST /app/é x=1 abc"
        assert (await client.ask("GET", "/hot/declined")).body.startswith(b"GET /hot/declined")
        assert (await client.ask("GET", "/raise")).status == 500
        assert (await client.ask("GET", "/nothing")).status == 204
        got = await client.ask("HEAD", "/app/x")
        assert (got.status, got.body, got.headers["content-length"]) == (200, b"", "13")
        client.close()


async def test_a_door_that_fails_answers_500_on_its_stream_alone() -> None:
    by_hand = Http2ByHand()
    call = by_hand.later()
    got = await by_hand.ask("GET", "/hot/broken")
    assert (got.status, got.body) == (500, b"internal")
    call.answer(status_line(200), b"late")
    assert (await by_hand.answered(1)).body == b"late"


async def test_trailers_are_ignored() -> None:
    by_hand = Http2ByHand()
    stream = by_hand.begin("POST", "/hot/x", end=False, authority="x")
    by_hand.send(stream, b"body")
    by_hand.h2.send_headers(stream, [("x-late", "1")], end_stream=True)
    by_hand.flush()
    got = await by_hand.answered(stream)
    assert (got.status, got.body) == (200, b"body")


# Bodies


async def test_a_body_larger_than_the_windows_arrives_and_is_given_back() -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        body = bytes(range(256)) * 24_000
        got = await client.ask("POST", "/hot/x", body)
        assert (got.status, got.body == body) == (200, True)
        assert served.listener.bodies.bytes_taken == 0
        client.close()


async def test_a_body_counts_as_it_comes_and_until_it_is_answered() -> None:
    by_hand = Http2ByHand()
    unfinished = by_hand.site.listener.unfinished
    stream = by_hand.begin("POST", "/hot/later", end=False, authority="x")
    head = len("/hot/later")
    assert (by_hand.bodies_bytes, len(unfinished)) == (head, 1)
    by_hand.send(stream, b"x" * 60_000)
    assert (by_hand.bodies_bytes, len(unfinished)) == (head + 60_000, 1)
    by_hand.site.clock.advance(1.0)
    by_hand.send(stream, b"y" * 5_000, end=True)
    assert (by_hand.bodies_bytes, len(unfinished)) == (65_000, 0)
    [call] = by_hand.door.waiting
    assert call.received == by_hand.site.clock.monotonic()  # deadlines begin now
    call.answer(status_line(200), b"")
    assert by_hand.bodies_bytes == 0


@pytest.mark.parametrize("end", ["gone", "reset", "late", "too-large", "malformed", "for-room"])
async def test_a_body_that_comes_to_nothing_is_given_back(end: str) -> None:
    by_hand = Http2ByHand(body_bytes_max=50_000)
    stream = by_hand.begin("POST", "/hot/x", end=False, authority="x")
    by_hand.send(stream, b"x" * 40_000)
    assert by_hand.bodies_bytes == 40_000 + len("/hot/x")
    if end == "gone":
        by_hand.lose()
    elif end == "reset":
        by_hand.reset(stream)
    elif end == "late":
        await by_hand.pass_s(by_hand.site.listener.limits.body_timeout_s - 0.1)
        assert by_hand.bodies_bytes > 40_000
        await by_hand.pass_s(0.2)
        assert by_hand.answers[stream].status == 408
    elif end == "too-large":
        by_hand.send(stream, b"x" * 10_001)
        got = await by_hand.answered(stream)
        assert (got.status, got.body) == (413, b"body-too-large")
    elif end == "malformed":
        by_hand.write(b"\0\0\1\0\0\0\0\0\0x")  # data of the connection
    else:
        by_hand.site.clock.advance(body_budget.SLOW_S)
        by_hand.site.listener.make_room(by_hand.site.listener.bodies.bytes_max, "192.0.2.1")
        got = await by_hand.answered(stream)
        assert (got.status, got.body) == (503, b"bodies-too-many")
    assert by_hand.bodies_bytes == 0
    assert len(by_hand.site.listener.unfinished) == 0
    assert by_hand.door.handled == []


async def test_a_body_without_room_is_refused_and_not_acknowledged() -> None:
    bodies = BodyBudget(100_000)
    by_hand = Http2ByHand(bodies=bodies)
    assert bodies.take(90_000)
    stream = by_hand.begin("POST", "/hot/x", end=False, authority="x")
    by_hand.send(stream, b"x" * 16_384)
    got = await by_hand.answered(stream)
    assert (got.status, got.body) == (503, b"bodies-too-many")
    assert bodies.bytes_taken == 90_000
    declared = by_hand.begin(
        "POST", "/hot/x", ("content-length", "20000"), end=False, authority="x"
    )
    assert (await by_hand.answered(declared)).status == 503


async def test_heads_whose_bodies_do_not_come_count_and_make_room() -> None:
    bodies = BodyBudget(150_000)
    by_hand = Http2ByHand(bodies=bodies)
    large = ("a", "b" * 9_000)
    streams = [by_hand.begin("POST", "/hot/x", large, end=False, authority="x") for _ in range(17)]
    await by_hand.turn()
    assert [by_hand.answers[stream].status for stream in streams] == [0] * 16 + [503]
    assert bodies.bytes_taken == 16 * (len("/hot/x") + 1 + 9_000 + 4)
    by_hand.site.clock.advance(body_budget.SLOW_S)
    by_hand.begin("POST", "/hot/x", large, end=False, authority="x")
    await by_hand.turn()
    assert by_hand.answers[streams[0]].status == 503
    assert bodies.bytes_taken == 16 * (len("/hot/x") + 1 + 9_000 + 4)
    by_hand.lose()
    assert bodies.bytes_taken == 0


async def test_a_head_that_comes_again_is_looked_up_unless_it_is_large() -> None:
    by_hand = Http2ByHand()
    known = by_hand.connection._known._heads
    for _ in range(5):
        assert (await by_hand.ask("GET", "/hot/x?1")).headers["x-query"] == "1"
        assert (await by_hand.ask("POST", "/hot/x?2", b"b")).headers["x-query"] == "2"
        await by_hand.ask("GET", "/hot/x", b"", ("a", "b" * 2_000))
    assert len(known) == 1  # by the identity of their fields, which are the same empty ones
    for n in range(100):
        await by_hand.ask("GET", "/hot/x", b"", ("a", str(n)))
    assert len(known) <= 32
    assert {head.request.path for head in known.values()} == {b"/hot/x"}


async def test_a_client_can_send_no_more_than_its_windows_to_a_request_that_is_refused() -> None:
    by_hand = Http2ByHand(window_bytes=0, body_bytes_max=10)  # it doesn't take the refusal
    stream = by_hand.begin("POST", "/hot/x", end=False, authority="x")
    window = by_hand.h2.local_flow_control_window(stream)
    assert window == 1 << 20
    by_hand.send(stream, b"x" * 11)
    for _ in range(40):
        by_hand.send(stream, b"x" * 16_384)
        await by_hand.turn()
    assert by_hand.h2.local_flow_control_window(stream) == window - 11 - 40 * 16_384
    assert by_hand.bodies_bytes == 0


async def test_a_refusal_arrives_before_the_rest_of_its_body_which_is_thrown_away() -> None:
    by_hand = Http2ByHand(body_bytes_max=10)
    stream = by_hand.begin("POST", "/hot/x", end=False, authority="x")
    by_hand.send(stream, b"x" * 11)
    got = await by_hand.answered(stream)
    assert (got.status, got.ended, got.reset) == (413, True, None)
    for _ in range(300):
        by_hand.send(stream, b"x" * 16_384)
        by_hand.read()
    assert by_hand.bodies_bytes == 0
    by_hand.send(stream, b"", end=True)
    assert (await by_hand.ask("GET", "/hot/x")).status == 200
    assert by_hand.connection.machine.streams == 0
    assert by_hand.door.handled == [b"/hot/x"]


async def test_a_client_that_goes_on_sending_behind_a_refusal_is_told_to_stop() -> None:
    by_hand = Http2ByHand()
    stream = by_hand.begin("POST", "/hot/x", ("expect", "x"), end=False, authority="x")
    assert (await by_hand.answered(stream)).status == 417
    await by_hand.pass_s(LINGER_S_MAX - 0.1)
    assert by_hand.connection.machine.streams == 1
    await by_hand.pass_s(0.1)
    assert by_hand.connection.machine.streams == 0
    assert by_hand.wire.writes[-1] == frames.rst_stream(stream, frames.NO_ERROR)


# Header blocks in pieces


def fragment(stream: int, block: bytes, kind: int = frames.CONTINUATION) -> bytes:
    return frames.frame(kind, 0, stream, block)


async def test_an_unfinished_header_block_counts_and_has_the_time_of_a_head() -> None:
    by_hand = Http2ByHand()
    limits = by_hand.site.listener.limits
    by_hand.write(fragment(1, b"\0" * 16_000, frames.HEADERS))
    assert by_hand.bodies_bytes == 16_000
    by_hand.write(fragment(1, b"\0" * 1_000)[:-500])
    assert by_hand.bodies_bytes == 16_000 + 9 + 500
    await by_hand.pass_s(limits.head_timeout_s - 0.1)
    assert not by_hand.wire.closing
    await by_hand.pass_s(0.1)
    assert (by_hand.wire.closing, by_hand.bodies_bytes) == (True, 0)
    assert by_hand.last_accepted == 0


async def test_an_unfinished_header_block_makes_room_for_others() -> None:
    by_hand = Http2ByHand()
    listener = by_hand.site.listener
    by_hand.write(fragment(1, b"\0" * 16_000, frames.HEADERS))
    by_hand.site.clock.advance(body_budget.SLOW_S)
    listener.make_room(listener.bodies.bytes_max, "192.0.2.1")
    assert (by_hand.wire.closing, by_hand.bodies_bytes) == (True, 0)
    assert len(listener.unfinished) == 0


async def test_a_frame_without_room_ends_its_connection() -> None:
    bodies = BodyBudget(1_000)
    by_hand = Http2ByHand(bodies=bodies)
    by_hand.write(fragment(1, b"\0" * 2_000, frames.HEADERS))
    assert (by_hand.wire.closing, by_hand.bodies_bytes) == (True, 0)


async def test_a_cut_frame_counts_until_the_rest_comes_or_the_client_goes() -> None:
    by_hand = Http2ByHand()
    whole = fragment(0, b"x" * 8, frames.PING)
    by_hand.write(whole[:10])
    assert by_hand.bodies_bytes == 10
    by_hand.write(whole[10:])
    assert (by_hand.bodies_bytes, len(by_hand.site.listener.unfinished)) == (0, 0)
    by_hand.write(whole[:10])
    by_hand.lose()
    assert (by_hand.bodies_bytes, len(by_hand.site.listener.unfinished)) == (0, 0)


# Connections


async def test_http2_connections_count_like_others() -> None:
    async with site(connections_max=2) as served:
        client = await Http2Client.to(served.port)
        assert (await client.ask("GET", "/hot/x")).status == 200
        other = await served.client()
        assert (await other.ask(post("/hot/x")))[0] == 200
        third = await served.client()
        # Without TLS, one that is too much is refused before it has said which protocol it speaks.
        assert (await third.ask(START))[0] == 503
        assert [type(each) is HttpOverHttp2 for each in served.listener.connections].count(
            True
        ) == 1
        client.close()
        third.close()
        await until(lambda: len(served.listener.connections) == 1)
        fourth = await Http2Client.to(served.port)
        assert (await fourth.ask("GET", "/hot/x")).status == 200
        fourth.close()


async def test_a_connection_without_requests_ends_after_the_time_of_keep_alive() -> None:
    by_hand = Http2ByHand()
    assert (await by_hand.ask("GET", "/hot/x")).status == 200
    keep_alive_s = by_hand.site.listener.limits.keep_alive_s
    await by_hand.pass_s(keep_alive_s - 0.1)
    assert not by_hand.wire.closing
    await by_hand.pass_s(0.1)
    assert (by_hand.wire.closing, by_hand.last_accepted) == (True, 1)


async def test_a_hundred_requests_at_once_are_each_answered_rightly() -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        streams = [client.post(f"/hot/x?n={n}", b"%d" % n * 50) for n in range(100)]
        for n, stream in enumerate(streams):
            got = await client.answer(stream)
            assert (got.status, got.headers["x-query"], got.body) == (200, f"n={n}", b"%d" % n * 50)
        client.close()


async def test_more_streams_than_allowed_are_refused_so_that_they_can_be_sent_again() -> None:
    by_hand = Http2ByHand()
    by_hand.h2.remote_settings[3] = 200
    by_hand.h2.remote_settings.acknowledge()
    streams = [by_hand.begin("GET", "/hot/later", authority="x") for _ in range(130)]
    await by_hand.turn()
    assert [by_hand.answers[stream].reset for stream in streams[-2:]] == [7, 7]
    assert len(by_hand.door.waiting) == 128


async def test_http_1_1_is_served_beside_it() -> None:
    async with site() as served:
        client = await RawClient.to(served.port)
        for _ in range(3):
            assert (await client.ask(POST + b"Content-Length: 2\r\n\r\nab"))[::2] == (200, b"ab")

        client.close()
