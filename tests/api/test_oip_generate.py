"""Triton's generate and generate_stream over HTTP."""

from __future__ import annotations

import orjson
import pytest
from tests.kit.doors import door_site
from tests.kit.gateway import fail_with, run
from tests.kit.http_clients import post
from tests.kit.polling import until
from tests.kit.streams import HeldStream, end, first, more, operations, streaming, whole

from penstock.errors import CallerError, ModelError

pytestmark = pytest.mark.loop(by=run)

BODY = b'{"text_input":"hello","parameters":{"max_tokens":4}}'


async def test_the_body_goes_to_the_model_as_it_came_with_the_word_for_what_is_asked() -> None:
    async with door_site() as served:
        served.instance.on_invoke = whole(b'{"text_output":"hi"}')
        client = await served.client()
        for path in ("generate", "versions/3/generate", "generate_stream"):
            status, headers, body = await client.ask(post(f"/v2/models/echo/{path}", BODY))
            assert (status, headers["content-type"]) == (200, "application/json")
            assert body == b'{"text_output":"hi"}'
        assert [invoke.body for invoke in served.instance.invokes] == [BODY] * 3
        assert operations(served.instance.invokes) == [
            ("oip", {"operation": "generate"}),
            ("oip", {"operation": "generate", "version": "3"}),
            ("oip", {"operation": "generate_stream"}),
        ]


async def test_a_stream_is_server_sent_events_as_the_instance_wrote_them() -> None:
    async with door_site() as served:
        told = served.instance.on_invoke = HeldStream()
        client = await served.client()
        client.write(post("/v2/models/echo/generate_stream", BODY))
        await until(lambda: told.idents)
        [ident] = told.idents
        told.send(first(ident, b'data: {"text_output":"a"}\n\n'))
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"\r\ncontent-type: text/event-stream\r\n" in head
        await client.reader.readuntil(b'"a"}\n\n\r\n')
        told.send(more(ident, b'data: {"text_output":"b"}\n\n') + end(ident))
        await client.reader.readuntil(b'"b"}\n\n\r\n0\r\n\r\n')


async def test_a_stream_that_breaks_ends_with_an_error_event() -> None:
    async with door_site() as served:
        broken = ModelError("stream-broken", "x", original_message="the engine ended")
        served.instance.on_invoke = streaming(b"data: {}\n\n", error=broken)
        client = await served.client()
        _, _, body = await client.ask(post("/v2/models/echo/generate_stream", BODY))
        assert body == b'data: {}\n\ndata: {"error":"the engine ended"}\n\n'


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("nobody/generate", 404, "unknown model"),
        ("nobody/generate_stream", 404, "unknown model"),
        ("echo/versions/7/generate_stream", 404, "has no version 7"),
        ("echo/generate/more", 404, "not part of the protocol"),
    ],
)
async def test_what_reaches_no_model_is_an_ordinary_error(
    path: str, status: int, words: str
) -> None:
    async with door_site() as served:
        client = await served.client()
        got, _, body = await client.ask(post(f"/v2/models/{path}", BODY))
        assert got == status
        assert words in orjson.loads(body)["error"]
        assert (
            await client.ask(b"GET /v2/models/echo/generate HTTP/1.1\r\nHost: localhost\r\n\r\n")
        )[0] == 405
        served.instance.on_invoke = fail_with(CallerError("invalid-parameter", "top_p is 7"))
        got, headers, body = await client.ask(post("/v2/models/echo/generate_stream", BODY))
        assert (got, headers["content-type"]) == (400, "application/json")
        assert orjson.loads(body) == {"error": "top_p is 7"}
