"""Answers over HTTP/2: streams, clients that do not read, clients that go, and the server's end."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.http2_by_hand import Http2ByHand
from tests.gateway.http_site import site
from tests.kit.gateway import run
from tests.kit.http2_clients import Http2Client
from tests.kit.http_clients import post
from tests.kit.polling import until

from penstock.gateway.dispatch.invocation import STREAMING
from penstock.gateway.http.answer_pipeline import (
    PACED_STALL_S_MAX,
    UNREAD_BYTES_MAX,
    UNREAD_BYTES_PACED,
    UNREAD_BYTES_STALLED,
    UNREAD_STALL_S_MAX,
)
from penstock.gateway.http.call import Call, status_line
from penstock.gateway.http.listener import HttpListener

pytestmark = pytest.mark.loop(by=run)

OK = status_line(200)
INTERNAL_ERROR = 2


class NotedLink:
    """What a link is asked while a client does not keep up."""

    def __init__(self, call: Call) -> None:
        self.asked: list[bool] = []
        call.state = STREAMING
        call.link = self

    def pace(self, invocation: object, *, waits: bool) -> None:
        self.asked.append(waits)


# Heads


async def test_the_lines_of_an_answer_become_fields() -> None:
    by_hand = Http2ByHand()
    call = by_hand.later()
    lines = (
        b"Content-Type: a/b\r\nX-Odd:  a\x01b \r\nno name: x\r\nKeep-Alive: 5\r\nConnection: x\r\n"
    )
    call.answer(status_line(418) + lines, b"tea")
    got = await by_hand.answered(1)
    assert (got.status, got.body) == (418, b"tea")
    named = {name: got.headers[name] for name in got.headers if name not in ("date", "server")}
    assert named == {
        "content-type": "a/b",
        "x-odd": "a b",
        "x-amzn-requestid": call.request_id,
        "content-length": "3",
    }
    assert got.headers["server"] == "penstock"


async def test_the_date_of_answers_goes_on() -> None:
    by_hand = Http2ByHand()
    before = (await by_hand.ask("GET", "/hot/x")).headers["date"]
    by_hand.site.clock.advance(5.0)
    by_hand.site.listener.date_head()
    after = (await by_hand.ask("GET", "/hot/x")).headers["date"]
    assert before != after


async def test_head_has_the_length_and_no_body() -> None:
    by_hand = Http2ByHand()
    got = await by_hand.ask("HEAD", "/hot/big")
    assert (got.headers["content-length"], got.body, got.ended) == ("20000000", b"", True)


# Whole answers and streams


async def test_an_answer_larger_than_the_windows_arrives() -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        got = await client.ask("GET", "/hot/big")
        assert (got.reset, got.ended, client.closed, client.last_accepted) == (
            None,
            True,
            False,
            None,
        )
        assert (len(got.body), got.headers["content-length"]) == (20_000_000, "20000000")
        await until(lambda: served.door.written_urls == [b"/hot/big"])
        client.close()


async def test_a_stream_leaves_piece_by_piece() -> None:
    by_hand = Http2ByHand()
    call = by_hand.later()
    call.start(OK + b"content-type: text/event-stream\r\n")
    call.send(b"one ")
    got = await by_hand.answered(1)
    assert (got.status, got.body, got.ended) == (200, b"one ", False)
    assert "content-length" not in got.headers
    assert "transfer-encoding" not in got.headers
    call.send(b"two")
    assert (await by_hand.answered(1)).body == b"one two"
    assert by_hand.door.written_urls == []
    call.finish()
    assert (await by_hand.answered(1)).ended
    assert by_hand.door.written_urls == [b"/hot/later"]
    call.send(b"after")
    call.finish()
    assert by_hand.door.abandoned_urls == []


async def test_nothing_follows_the_end_of_an_answer_that_waits_for_its_client() -> None:
    by_hand = Http2ByHand(window_bytes=2)
    call = by_hand.later()
    call.start(OK)
    call.send(b"whole")
    call.finish()
    call.send(b"after")
    call.answer(OK, b"after")
    for _ in range(4):
        await by_hand.turn()
    assert (by_hand.answers[1].body, by_hand.answers[1].ended) == (b"whole", True)


async def test_an_application_streams_and_is_paced_by_its_client() -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        assert (await client.ask("POST", "/stream", b"three")).body == b"one two three"
        body = b"x" * 1_000_000
        client.opens_windows = False
        stream = client.begin("POST", "/stream", end=False)
        await client.upload(stream, body)
        while len(client.answers[stream].body) < 60_000:
            await client.read()
        client.reset(stream)
        assert (await client.ask("GET", "/hot/x")).status == 200
        client.close()
        await until(lambda: served.listener.bodies.bytes_taken == 0)


async def test_a_producer_waits_while_its_client_does_not_read() -> None:
    by_hand = Http2ByHand(window_bytes=1_000)
    call = by_hand.later()
    link = NotedLink(call)
    call.start(OK)
    call.send(b"x" * 1_000)
    call.send(b"y" * UNREAD_BYTES_PACED)
    assert link.asked == []
    call.send(b"z")
    call.send(b"z")
    assert link.asked == [True]
    while len(by_hand.answers[1].body) < UNREAD_BYTES_PACED + 1_002:
        await by_hand.turn()
    assert link.asked == [True, False]
    call.send(b"end")
    call.finish()
    assert (await by_hand.answered(1)).body.endswith(b"zzend")


async def test_a_producer_that_does_not_wait_is_cut_off() -> None:
    by_hand = Http2ByHand(window_bytes=0)
    call = by_hand.later()
    call.start(OK)
    for _ in range(UNREAD_BYTES_MAX // 500_000):
        call.send(b"x" * 500_000)
    assert by_hand.answers[1].reset is None
    call.send(b"x" * 500_000)
    await by_hand.turn()
    assert by_hand.answers[1].reset == INTERNAL_ERROR
    assert by_hand.door.abandoned_urls == [b"/hot/later"]
    assert (await by_hand.ask("HEAD", "/hot/x")).status == 200


@pytest.mark.parametrize(
    ("unread", "limit_s"),
    [(UNREAD_BYTES_STALLED + 1, UNREAD_STALL_S_MAX), (UNREAD_BYTES_STALLED, PACED_STALL_S_MAX)],
)
async def test_a_client_that_takes_nothing_of_an_answer_loses_it(
    unread: int, limit_s: float
) -> None:
    by_hand = Http2ByHand(window_bytes=0)
    call = by_hand.later()
    call.start(OK)
    call.send(b"x" * unread)
    await by_hand.pass_s(limit_s - 0.1)
    assert by_hand.answers[1].reset is None
    await by_hand.pass_s(0.1)
    assert by_hand.answers[1].reset is not None
    assert by_hand.door.abandoned_urls == [b"/hot/later"]


async def test_what_clients_leave_unread_counts_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = Http2ByHand(window_bytes=0)
    call = by_hand.later()
    call.start(OK)
    call.send(b"x" * 5_000)
    assert by_hand.connection.unread_bytes == 5_000
    monkeypatch.setattr("penstock.gateway.http.listener.UNREAD_BYTES_MAX", 4_999)
    by_hand.site.listener._bound_unread()
    assert "abort" in by_hand.wire.told


# The client's end


async def test_a_client_that_resets_its_stream_abandons_that_request_alone() -> None:
    by_hand = Http2ByHand()
    call, other = by_hand.later("/hot/later?1"), by_hand.later("/hot/later?2")
    by_hand.reset(1)
    assert by_hand.door.abandoned_urls == [b"/hot/later?1"]
    assert call.connection is None
    call.answer(OK, b"nobody reads it")
    other.answer(OK, b"here")
    assert (await by_hand.answered(3)).body == b"here"


async def test_a_client_that_goes_abandons_all_its_requests() -> None:
    by_hand = Http2ByHand()
    by_hand.later("/hot/later?1")
    by_hand.later("/hot/later?2")
    by_hand.lose()
    assert by_hand.door.abandoned_urls == [b"/hot/later?1", b"/hot/later?2"]
    assert not by_hand.site.listener.connections


async def test_an_application_hears_that_its_client_has_reset_the_stream() -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        stream = client.begin("GET", "/wait")
        await until(lambda: served.application.waiting == 1)
        client.reset(stream)
        await until(lambda: served.application.disconnects == ["http.disconnect"])
        assert (await client.ask("GET", "/hot/x")).status == 200
        client.close()


async def test_a_door_that_aborts_resets_its_stream_and_no_other() -> None:
    by_hand = Http2ByHand()
    call, other = by_hand.later("/hot/later?1"), by_hand.later("/hot/later?2")
    call.start(OK)
    call.send(b"part")
    call.abort()
    assert by_hand.door.abandoned_urls == []  # the door may be in the middle of something
    got = await by_hand.answered(1)
    assert (got.body, got.ended, got.reset) == (b"part", False, INTERNAL_ERROR)
    assert by_hand.door.abandoned_urls == [b"/hot/later?1"]
    other.answer(OK, b"here")
    assert (await by_hand.answered(3)).body == b"here"


async def test_a_waiting_producer_hears_that_its_client_has_gone() -> None:
    by_hand = Http2ByHand(window_bytes=0)
    call = by_hand.later()
    call.start(OK)
    call.send(b"x")
    connection = call.connection
    assert connection is not None
    waits = asyncio.ensure_future(connection.wait_writable(call))
    await by_hand.turn()
    assert not waits.done()
    by_hand.reset(1)
    await asyncio.wait_for(waits, 5)


# The server's end


async def stopped(listener: HttpListener, timeout_s: float) -> None:
    await asyncio.wait_for(listener.stop(timeout_s), 10)


async def test_a_stop_lets_requests_in_flight_end_and_takes_no_other_connection() -> None:
    async with site() as served:
        idle = await Http2Client.to(served.port)
        assert (await idle.ask("GET", "/hot/x")).status == 200
        busy = await Http2Client.to(served.port)
        stream = busy.begin("GET", "/hot/later")
        await until(lambda: served.door.waiting)
        stop = asyncio.ensure_future(stopped(served.listener, 8.0))
        await idle.wait_closed()
        assert idle.last_accepted == 1
        crossing = busy.post("/hot/x", b"crossing")  # it has not read the GOAWAY yet
        assert (await busy.answer(crossing)).body == b"crossing"
        late = busy.post("/hot/x", b"late")
        served.door.waiting[0].answer(OK, b"answered")
        assert (await busy.answer(stream)).body == b"answered"
        await busy.wait_closed()
        assert busy.last_accepted == crossing
        assert not busy.answers[late].ended  # it may be sent again elsewhere
        await stop
        with pytest.raises(ConnectionRefusedError):
            await Http2Client.to(served.port)


async def test_a_stop_cuts_what_does_not_end() -> None:
    async with site() as served:
        client = await Http2Client.to(served.port)
        client.begin("GET", "/hot/later")
        old = await served.client()
        old.write(post("/hot/later"))
        await until(lambda: len(served.door.waiting) == 2)
        await stopped(served.listener, 0.1)
        await client.wait_closed()
        assert len(served.door.abandoned_urls) == 2
        assert not served.listener.connections
