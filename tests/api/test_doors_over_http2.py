"""The doors over HTTP/2: they see what they see over HTTP/1.1, and their answers arrive."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from tests.kit.doors import door_site
from tests.kit.gateway import fail_with, run, silent
from tests.kit.http2_clients import Http2Client
from tests.kit.http_clients import post
from tests.kit.polling import until
from tests.kit.streams import MODEL, HeldStream, end, first, more

from penstock.errors import CallerError
from penstock.wire import frames

pytestmark = pytest.mark.loop(by=run)

ECHO = "/endpoints/echo/invocations"
STREAM = "/endpoints/echo/invocations-response-stream"
CHAT = "/v1/chat/completions"
ASKS = b'{"model":"echo","messages":[],"stream":true}'
INTERNAL_ERROR = 2


async def test_an_invocation_reaches_the_model_with_its_headers_and_the_answer_its_caller() -> None:
    async with door_site() as served:
        client = await Http2Client.to(served.server.port)
        health = await client.ask("GET", "/v2/health/live")
        assert (health.status, health.body) == (200, b"")
        got = await client.ask(
            "POST", ECHO, b"rows",
            ("content-type", "text/csv"),
            ("accept", "application/json"),
            ("x-amzn-sagemaker-custom-attributes", "trace=1"),
            ("x-amzn-sagemaker-inference-id", "id-7"),
        )  # fmt: skip
        [invoke] = served.instance.invokes
        assert frames.decode_request_meta(invoke.meta) == frames.RequestMeta(
            "text/csv", "application/json", "trace=1", "id-7"
        )
        assert (got.status, got.body) == (200, b"rows")
        assert got.headers["content-type"] == "text/csv"
        assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
        assert got.headers["x-amzn-sagemaker-custom-attributes"] == "trace=1"
        client.close()


@pytest.mark.parametrize("path", [ECHO, STREAM, CHAT, "/v2/models/echo/infer"])
async def test_an_error_has_the_form_that_it_has_over_http_1_1(path: str) -> None:
    async with door_site(model=MODEL) as served:
        served.instance.on_invoke = fail_with(CallerError("bad-json", "no JSON"))
        old = await served.client()
        status, headers, body = await old.ask(post(path, ASKS))
        client = await Http2Client.to(served.server.port)
        got = await client.ask("POST", path, ASKS)
        assert (got.status, got.body) == (status, body)
        differ = {"x-amzn-requestid", "x-request-id", "date"}
        assert set(got.headers) == set(headers)
        assert {name: headers[name] for name in set(headers) - differ} == {
            name: got.headers[name] for name in set(headers) - differ
        }
        client.close()
        old.close()


async def test_events_leave_each_when_it_came_and_end_with_their_stream() -> None:
    async with door_site(model=MODEL) as served:
        told = served.instance.on_invoke = HeldStream()
        client = await Http2Client.to(served.server.port)
        stream = client.post(CHAT, ASKS)
        await until(lambda: told.idents)
        told.send(first(told.idents[0], b'data: {"a":1}\n\n'))
        answer = client.answers[stream]
        while not answer.pieces:
            await client.read()
        assert (answer.status, answer.body) == (200, b'data: {"a":1}\n\n')
        assert answer.headers["content-type"] == "text/event-stream"
        told.send(more(told.idents[0], b"data: [DONE]\n\n"), end(told.idents[0]))
        assert (await client.answer(stream)).body.endswith(b"[DONE]\n\n")
        await until(lambda: served.dispatcher.in_flight == 0)
        client.close()


async def test_many_calls_of_one_connection_are_answered_in_any_order() -> None:
    async with door_site() as served:
        held = served.instance.on_invoke = HeldStream()
        client = await Http2Client.to(served.server.port)
        streams = [client.post(ECHO, b"%d" % n) for n in range(100)]
        await until(lambda: len(held.idents) == 100)
        bodies = {
            ident: invoke.body
            for ident, invoke in zip(held.idents, served.instance.invokes, strict=True)
        }
        for ident in reversed(held.idents):
            held.send(frames.encode_reply(ident, body=bodies[ident] * 3))
        for n, stream in enumerate(streams):
            assert (await client.answer(stream)).body == b"%d" % n * 3
        assert served.bodies.bytes_taken == 0
        client.close()


async def test_a_client_that_does_not_read_makes_its_model_wait() -> None:
    async with door_site(model=MODEL) as served:
        told = served.instance.on_invoke = HeldStream()
        client = await Http2Client.to(served.server.port, opens_windows=False)
        stream = client.post(CHAT, ASKS)
        await until(lambda: told.idents)
        [ident] = told.idents
        told.send(first(ident, b"x" * 100_000), *[more(ident, b"y" * 100_000)] * 4)
        await until(lambda: served.instance.paced == [(ident, True)])
        while len(client.answers[stream].body) < 65_535:
            await client.read()
        client.h2.increment_flow_control_window(1 << 20)
        client.h2.increment_flow_control_window(1 << 20, stream)
        client.flush()
        await until(lambda: served.instance.paced == [(ident, True), (ident, False)])
        told.send(end(ident))
        assert len((await client.answer(stream)).body) == 500_000
        client.close()


@pytest.mark.parametrize("way", ["reset", "gone"])
async def test_a_client_that_gives_up_cancels_its_call(way: str) -> None:
    async with door_site() as served:
        served.instance.on_invoke = silent
        client = await Http2Client.to(served.server.port)
        stream = client.post(ECHO, b"x" * 1_000)
        await until(lambda: served.instance.invokes)
        if way == "reset":
            client.reset(stream)
        else:
            client.close()
        await until(lambda: len(served.instance.cancelled) == 1)
        assert served.dispatcher.in_flight == 0
        assert served.bodies.bytes_taken == 0
        client.close()


async def test_a_stream_that_breaks_without_words_for_it_is_reset() -> None:
    async with door_site() as served:
        told = served.instance.on_invoke = HeldStream()
        client = await Http2Client.to(served.server.port)
        stream = client.post(ECHO, b"{}")
        await until(lambda: told.idents)
        told.send(first(told.idents[0], b"part", "text/plain"))
        while not client.answers[stream].pieces:
            await client.read()
        served.instance.drop()
        assert (await client.answer(stream)).reset == INTERNAL_ERROR
        await until(lambda: served.dispatcher.in_flight == 0)
        client.close()


async def test_a_stop_answers_calls_in_flight_and_refuses_new_ones() -> None:
    async with door_site(drain_s_max=5.0) as served:
        held = served.instance.on_invoke = HeldStream()
        client = await Http2Client.to(served.server.port)
        stream = client.post(ECHO, b"{}")
        await until(lambda: held.idents)
        idle = await Http2Client.to(served.server.port)
        assert (await idle.ask("GET", "/v2/health/live")).status == 200
        stop = asyncio.ensure_future(served.server.stop())
        await idle.wait_closed()  # at once, while the call goes on
        refused = await client.ask("POST", ECHO, b"late")
        assert refused.status == 503
        assert b"stop" in refused.body
        held.send(frames.encode_reply(held.idents[0], body=b"answered"))
        assert (await client.answer(stream)).body == b"answered"
        await client.wait_closed()
        assert client.last_accepted is not None
        assert await stop


async def test_a_call_that_outlasts_the_time_to_stop_is_told_so() -> None:
    async with door_site(drain_s_max=0.1) as served:
        told = served.instance.on_invoke = HeldStream()
        client = await Http2Client.to(served.server.port)
        plain, streamed = client.post(ECHO, b"{}"), client.post(STREAM, b"{}")
        await until(lambda: len(told.idents) == 2)
        told.send(first(told.idents[1], b"one", "text/plain"))
        while not client.answers[streamed].pieces:
            await client.read()
        assert not await served.server.stop()
        await client.wait_closed()
        assert client.answers[plain].status == 503
        assert orjson.loads(client.answers[plain].body)
        answer = client.answers[streamed]
        assert (b"ModelStreamError" in answer.body, answer.ended) == (True, True)
