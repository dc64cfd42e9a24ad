"""Triton's generate and generate_stream over HTTP."""

from __future__ import annotations

import orjson
import pytest
from tests.api.door_site import DoorSite, at_door
from tests.api.stream_fakes import Told, end, first, more, operations, streaming, whole
from tests.gateway.gateway_fakes import fail_with, post, until

from penstock.errors import CallerError, ModelError

BODY = b'{"text_input":"hello","parameters":{"max_tokens":4}}'


@at_door()
async def test_the_body_goes_to_the_model_as_it_came_with_the_word_for_what_is_asked(
    served: DoorSite,
) -> None:
    served.instance.on_invoke = whole(b'{"text_output":"hi"}')
    client = await served.client()
    for path in ("generate", "versions/3/generate", "generate_stream"):
        client.write(post(f"/v2/models/echo/{path}", BODY))
        status, headers, body = await client.answer()
        assert (status, headers["content-type"]) == (200, "application/json")
        assert body == b'{"text_output":"hi"}'
    assert [invoke.body for invoke in served.instance.invokes] == [BODY] * 3
    assert operations(served.instance.invokes) == [
        ("oip", {"operation": "generate"}),
        ("oip", {"operation": "generate", "version": "3"}),
        ("oip", {"operation": "generate_stream"}),
    ]


@at_door()
async def test_a_stream_is_server_sent_events_as_the_instance_wrote_them(served: DoorSite) -> None:
    told = served.instance.on_invoke = Told()
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


@at_door()
async def test_a_stream_that_breaks_ends_with_an_error_event(served: DoorSite) -> None:
    broken = ModelError("stream-broken", "x", original_message="the engine ended")
    served.instance.on_invoke = streaming(b"data: {}\n\n", error=broken)
    client = await served.client()
    client.write(post("/v2/models/echo/generate_stream", BODY))
    _, _, body = await client.answer()
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
@at_door()
async def test_what_reaches_no_model_is_an_ordinary_error(
    served: DoorSite, path: str, status: int, words: str
) -> None:
    client = await served.client()
    client.write(post(f"/v2/models/{path}", BODY))
    got, _, body = await client.answer()
    assert got == status
    assert words in orjson.loads(body)["error"]
    client.write(b"GET /v2/models/echo/generate HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await client.answer())[0] == 405
    served.instance.on_invoke = fail_with(CallerError("invalid-parameter", "top_p is 7"))
    client.write(post("/v2/models/echo/generate_stream", BODY))
    got, headers, body = await client.answer()
    assert (got, headers["content-type"]) == (400, "application/json")
    assert orjson.loads(body) == {"error": "top_p is 7"}
