"""HTTP/1.1 on real sockets, byte by byte: order, limits, timeouts, malformed input, disconnects."""

from __future__ import annotations

import asyncio
import random
import re
import socket

import pytest
from tests.gateway.http_site import POST, Gatekeeper, HttpSite, ScriptedApplication, site
from tests.kit.gateway import PREFIX, run
from tests.kit.http_clients import post
from tests.kit.polling import until

from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.errors import CallerError
from penstock.gateway.http.asgi import AsgiDoor
from penstock.gateway.http.call import status_line
from penstock.gateway.http.listener import HttpListener
from penstock.gateway.request_id import RequestIds

pytestmark = pytest.mark.loop(by=run)


async def test_an_answer_has_status_date_request_id_and_length_in_these_bytes() -> None:
    async with site() as served:
        client = await served.client()
        client.write(post("/hot/a?b=c", b"hello"))
        await until(lambda: served.door.written_urls)
        got = await client.reader.read(4096)
        expected = (
            rb"HTTP/1\.1 200 OK\r\nx-query: b=c\r\n"
            rb"date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\nserver: penstock\r\n"
            rb"x-amzn-requestid: 00000000-0000-4000-8000-000000000001\r\n"
            rb"content-length: 5\r\n\r\nhello"
        )
        assert re.fullmatch(expected, got)


async def test_pipelined_requests_are_answered_in_order_whichever_is_ready_first() -> None:
    async with site() as served:
        client = await served.client()
        client.write(
            post("/hot/later?1") + post("/hot/x", b"second") + post("/hot/later?3")
            + post("/other", b"fourth") + post("/hot/x", b"fifth")
        )  # fmt: skip
        await until(lambda: len(served.door.waiting) == 2)
        first, third = served.door.waiting
        third.answer(status_line(200), b"third")
        await asyncio.sleep(0.01)
        assert served.door.written_urls == []
        first.answer(status_line(200), b"first")
        bodies = [(await client.answer())[2] for _ in range(5)]
        assert bodies == [b"first", b"second", b"third", b"POST /other  fourth", b"fifth"]


async def test_thousands_of_pipelined_requests_in_one_write_are_all_answered() -> None:
    async with site() as served:
        client = await served.client()
        client.write(post("/hot/later") + post("/hot/x", b"n") * 5000)
        await until(lambda: served.door.waiting)
        served.door.waiting[0].answer(status_line(200), b"first")
        for _ in range(5001):
            assert (await client.answer())[0] == 200


async def test_bodies_come_with_a_length_or_in_chunks_and_in_any_number_of_reads() -> None:
    async with site() as served:
        client = await served.client()
        head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
        data = head + b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nX-Trailer: 1\r\n\r\n"
        for byte in data + post("/hot/x", b"0123456789"):
            client.write(bytes([byte]))
            if byte % 7 == 0:
                await asyncio.sleep(0)
        assert (await client.answer())[2] == b"abcdefg"
        assert (await client.answer())[2] == b"0123456789"


async def test_expect_100_continue_is_answered_before_the_body_is_sent() -> None:
    async with site() as served:
        client = await served.client()
        client.write(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await client.ask(b"ok"))[2] == b"ok"
        assert (await client.ask(post("/hot/x", b"", "Expect: miracles")))[0] == 417


async def test_head_is_answered_without_a_body_and_with_its_length() -> None:
    async with site() as served:
        client = await served.client()
        client.write(b"HEAD /other HTTP/1.1\r\nHost: x\r\n\r\n" + post("/hot/x", b"next"))
        _, headers, _ = await client.answer(head=True)
        assert headers["content-length"] == "13"
        assert (await client.answer())[2] == b"next"


async def test_http_1_0_and_connection_close_end_the_connection() -> None:
    async with site() as served:
        client = await served.client()
        assert (await client.ask(b"GET /hot/x HTTP/1.0\r\n\r\n"))[1]["connection"] == "close"
        assert await client.closed() == b""
        client = await served.client()
        client.write(b"GET /stream HTTP/1.0\r\n\r\n")
        head, _, body = (await client.closed()).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert body == b"one two "
        client = await served.client()
        assert (await client.ask(b"GET /hot/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"))[1][
            "connection"
        ] == "keep-alive"
        assert (await client.ask(post("/hot/x", b"1", "Connection: close")))[1][
            "connection"
        ] == "close"
        assert await client.closed() == b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (
            POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            400,
        ),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length : 1\r\n\r\na", 400),
        (b"GET /hot/x HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET /hot/x HTTP/1.1\nHost: x\n\n", 400),
        (b"GET /hot/\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /hot/x HTTP/9.9\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET /hot/x HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /hot/x HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 400_000, 431),
    ],
)
async def test_what_is_not_http_or_could_be_read_in_two_ways_is_refused_and_closed(
    request_bytes: bytes, status: int
) -> None:
    async with site() as served:
        client = await served.client()
        got, headers, _ = await client.ask(request_bytes)
        assert (got, headers["connection"]) == (status, "close")
        assert headers["x-amzn-requestid"].startswith(PREFIX)
        assert await client.closed() == b""


async def test_a_body_over_the_limit_is_refused_before_it_is_sent_and_the_answer_arrives() -> None:
    async with site(body_bytes_max=1000) as served:
        client = await served.client()
        assert (await client.ask(POST + b"Content-Length: 1001\r\n\r\n"))[::2] == (
            413,
            b"body-too-large",
        )
        chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
        for sent in (post("/hot/x", b"x" * 3_000_000), chunked + b"3e9\r\n" + b"y" * 1001):
            client = await served.client()
            assert (await client.ask(sent))[::2] == (413, b"body-too-large")
        client = await served.client()
        assert (await client.ask(post("/hot/x", b"x" * 1000)))[0] == 200


async def test_chunks_that_are_all_framing_are_refused_as_well() -> None:
    async with site(body_bytes_max=1000) as served:
        client = await served.client()
        client.write(POST + b"Transfer-Encoding: chunked\r\n\r\n1;")
        assert (await client.ask(b"a" * 2_000_000))[0] == 413


async def test_slow_heads_slow_bodies_and_idle_connections_are_ended() -> None:
    limits = {"head_timeout_s": 0.2, "body_timeout_s": 0.2, "keep_alive_s": 0.2}
    async with site(**limits) as served:
        silent = await served.client()
        assert await silent.closed() == b""
        slow_head = await served.client()
        assert (await slow_head.ask(b"GET /hot/x HTTP/1.1\r\nHost: x\r\nHos"))[0] == 408
        slow_body = await served.client()
        assert (await slow_body.ask(POST + b"Content-Length: 9\r\n\r\nabc"))[::2] == (
            408,
            b"request-too-slow",
        )
        idle = await served.client()
        assert (await idle.ask(post("/hot/x", b"1")))[0] == 200
        assert await idle.closed() == b""
        second_head = await served.client()
        second_head.write(post("/hot/x", b"1") + b"GET /hot/x HTT")
        assert [(await second_head.answer())[0] for _ in range(2)] == [200, 408]


async def test_a_request_that_waits_for_its_model_is_not_ended_by_idle_timeouts() -> None:
    async with site(keep_alive_s=0.05, head_timeout_s=0.05, body_timeout_s=0.05) as served:
        client = await served.client()
        client.write(post("/hot/later"))
        await until(lambda: served.door.waiting)
        await asyncio.sleep(0.3)  # six times each timeout
        served.door.waiting[0].answer(status_line(200), b"late")
        assert (await client.answer())[2] == b"late"


async def test_a_client_that_goes_away_cancels_all_its_requests() -> None:
    async with site() as served:
        client = await served.client()
        client.write(post("/hot/later?1") + post("/hot/later?2"))
        await until(lambda: len(served.door.waiting) == 2)
        client.close()
        await until(lambda: len(served.door.abandoned_urls) == 2)
        served.door.waiting[0].answer(status_line(200), b"nobody is there")
        assert served.door.written_urls == []
        assert served.door.waiting[0].connection is None


async def test_an_answer_counts_as_written_only_when_the_client_has_taken_it() -> None:
    async with site() as served:
        client = await served.client(limit=2**16)
        client.write(post("/hot/big"))
        await until(lambda: any(c._paused for c in served.listener.connections))
        assert served.door.written_urls == []
        _, _, body = await client.answer()
        assert len(body) == 20_000_000
        await until(lambda: served.door.written_urls == [b"/hot/big"])


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async with site() as served:
        client = await served.client(limit=2**16)
        client.write(post("/hot/big"))
        await until(lambda: any(c._paused for c in served.listener.connections))
        client.write(post("/hot/x", b"z" * 4_000_000))
        [connection] = served.listener.connections
        await until(lambda: not connection._reading)
        assert (await client.answer())[0] == 200
        assert len((await client.answer())[2]) == 4_000_000


async def test_more_connections_than_allowed_are_told_to_come_again() -> None:
    async with site(connections_max=2) as served:
        first, second = await served.client(), await served.client()
        await until(lambda: len(served.listener.connections) == 2)
        third = await served.client()
        status, headers, _ = await third.ask(post("/hot/x"))
        assert (status, headers["retry-after"]) == (503, "1")
        second.close()
        third.close()
        await until(lambda: len(served.listener.connections) == 1)
        fourth = await served.client()
        assert (await fourth.ask(post("/hot/x", b"in")))[2] == b"in"
        assert (await first.ask(post("/hot/x", b"still")))[2] == b"still"


async def test_an_upgrade_is_served_as_plain_http_with_its_body() -> None:
    async with site() as served:
        client = await served.client()
        client.write(
            post("/hot/x", b"body", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
            + post("/hot/smuggled")
        )
        assert (await client.answer())[2] == b"body"
        assert await client.closed() == b""
        assert served.door.written_urls == [b"/hot/x"]


async def test_absolute_targets_are_paths_and_a_bug_in_a_door_is_a_500_without_its_story() -> None:
    async with site() as served:
        client = await served.client()
        assert (await client.ask(b"GET http://x:1/hot/x?q HTTP/1.1\r\nHost: x:1\r\n\r\n"))[1][
            "x-query"
        ] == "q"
        assert (await client.ask(post("/hot/broken")))[::2] == (500, b"internal")
        assert (await client.ask(post("/hot/declined", b"asgi")))[2] == b"POST /hot/declined  asgi"


async def test_strangers_are_refused_before_their_body_and_others_are_checked_with_it() -> None:
    gate = Gatekeeper()
    async with site(authenticator=gate) as served:
        client = await served.client()
        status, _, body = await client.ask(
            b"POST /hot/x?q HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        )
        assert (status, body) == (403, b"MissingAuthenticationTokenException")
        client = await served.client()
        status, _, body = await client.ask(
            POST + b"Content-Length: 9\r\nAuthorization: unknown\r\n\r\n"
        )
        assert (status, body) == (403, b"UnrecognizedClientException")
        assert gate.heads == [("POST", b"/hot/x", b"q"), ("POST", b"/hot/x", b"")]
        assert gate.seen == []
        client = await served.client()
        assert (await client.ask(post("/hot/x", b"signed", "Authorization: signed")))[
            2
        ] == b"signed"
        assert (await client.ask(post("/hot/x", b"forged", "Authorization: signed")))[::2] == (
            403,
            b"wrong",
        )
        assert (await client.ask(post("/hot/open", b"all")))[2] == b"all"
        assert (await client.ask(post("/other", b"x")))[0] == 403


async def test_applications_stream_fail_and_hear_of_disconnects() -> None:
    async with site() as served:
        client = await served.client()
        _, headers, body = await client.ask(post("/stream", b"three"))
        assert (headers["transfer-encoding"], body) == ("chunked", b"one two three")
        _, headers, body = await client.ask(post("/p%20q?a=b", b"body"))
        assert body == b"POST /p q a=b body"
        assert headers["x-id"] == headers["x-amzn-requestid"]
        status, _, body = await client.ask(post("/raise"))
        assert (status, b"RuntimeError" in body) == (500, False)
        status, headers, _ = await client.ask(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, "content-length" in headers) == (204, False)
        client.write(post("/wait"))
        await until(lambda: served.application.waiting == 1)
        client.close()
        await until(lambda: served.application.disconnects == ["http.disconnect"])


async def test_stopping_answers_what_is_in_flight_and_closes_what_is_idle() -> None:
    async with site() as served:
        idle, busy = await served.client(), await served.client()
        await idle.ask(post("/hot/x", b"1"))
        busy.write(post("/hot/later"))
        await until(lambda: served.door.waiting)
        stopping = asyncio.ensure_future(served.listener.stop(5.0))
        assert await idle.closed() == b""
        served.door.waiting[0].answer(status_line(200), b"done")
        _, headers, body = await busy.answer()
        assert (body, headers["connection"]) == (b"done", "close")
        await stopping
        assert not served.listener.connections


async def test_a_port_in_use_is_an_error_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = HttpListener(
            limits=LimitConfig(),
            clock=SystemClock(),
            ids=RequestIds(),
            doors=[],
            fallback=AsgiDoor(ScriptedApplication()),
        )
        with pytest.raises(CallerError, match="Another program listens") as caught:
            await listener.start("127.0.0.1", taken.getsockname()[1])
        assert caught.value.code == "port-in-use"
        assert caught.value.hint


def mutated(rng: random.Random) -> bytes:
    """A request that was right before something happened to it."""
    body = rng.randbytes(rng.choice((0, 5, 300)))
    data = bytearray(
        rng.choice(
            (
                post("/hot/x", body, "Content-Type: application/json"),
                post("/other", body),
                POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
                b"GET /hot/x?y=z HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
            )
        )
    )
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data)) if data else 0
        change = rng.choice(("flip", "cut", "insert", "double", "drop"))
        if change == "flip" and data:
            data[at] = rng.randrange(256)
        elif change == "cut":
            del data[at:]
        elif change == "insert":
            data[at:at] = rng.choice(
                (b"\r\n", b"\x00", b"\n", rng.randbytes(8), b": ", b"\r\n\r\n")
            )
        elif change == "double":
            data[at:at] = data[: rng.randrange(60)]
        elif data:
            del data[at : at + rng.randrange(20)]
    return bytes(data)


async def test_a_thousand_malformed_requests_get_no_5xx_and_leave_the_server_serving() -> None:
    """Each connection ends by itself, or by the client having said all; none hangs the server."""

    async def attack(served: HttpSite, data: bytes) -> None:
        client = await served.client()
        client.write(data)
        client.writer.write_eof()
        got = await client.closed()
        for status in re.findall(rb"HTTP/1\.1 (\d)\d\d ", got):
            assert status in b"1234", (data, got)
        client.close()

    rng = random.Random(2026)
    async with site() as served:
        for _ in range(20):
            await asyncio.gather(*(attack(served, mutated(rng)) for _ in range(50)))
            served.clients.clear()
        await until(lambda: not served.listener.connections)
        client = await served.client()
        assert (await client.ask(post("/hot/x", b"alive")))[2] == b"alive"
