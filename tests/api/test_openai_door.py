"""OpenAI's API: paths both ways, server-sent events byte for byte, errors in its form, keys."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from tests.api.door_site import DoorSite, at_door, door_site
from tests.api.stream_fakes import MODEL, Told, end, first, operations, streaming, whole
from tests.gateway.gateway_fakes import fail_with, post, run, silent, until

from penstock.errors import CallerError, InternalError, ModelError, NotNowError, PenstockError
from penstock.wire.aws.errors import AwsError

CHAT = "/v1/chat/completions"
ASKS = b'{"model":"echo","messages":[]}'


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [
        (CHAT, ASKS, "chat"),
        ("/v1/completions", b'{"model":"echo","prompt":"x"}', "completions"),
        ("/v1/embeddings", b'{"model":"echo","input":"x"}', "embeddings"),
        ("/endpoints/echo/openai/v1/chat/completions", b'{"model":"","messages":[]}', "chat"),
        ("/endpoints/echo/openai/v1/completions", b"not looked at", "completions"),
        ("/endpoints/echo/openai/v1/embeddings?api-version=1", b"{}", "embeddings"),
    ],
)
@at_door(model=MODEL)
async def test_the_body_goes_to_the_endpoint_as_it_came_with_the_word_for_what_is_asked(
    served: DoorSite, path: str, body: bytes, operation: str
) -> None:
    served.instance.on_invoke = whole(b'{"object":"x"}')
    client = await served.client()
    client.write(post(path, body, "Content-Type: application/json"))
    status, headers, answer = await client.answer()
    assert (status, answer) == (200, b'{"object":"x"}')
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"] == headers["x-amzn-requestid"]
    [invoke] = served.instance.invokes
    assert invoke.body == body
    assert operations([invoke]) == [("openai", {"operation": operation})]


@at_door(model=MODEL)
async def test_events_are_passed_on_as_the_instance_wrote_them_each_when_it_came(
    served: DoorSite,
) -> None:
    told = served.instance.on_invoke = Told()
    client = await served.client()
    client.write(post(CHAT, ASKS))
    await until(lambda: told.idents)
    [ident] = told.idents
    told.send(first(ident, b'data: {"a":1}\n\n'))
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b"\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n" in head
    assert await client.reader.readexactly(20) == b'f\r\ndata: {"a":1}\n\n\r\n'
    told.send(end(ident))
    assert await client.reader.readexactly(5) == b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("error", "status", "fields", "head"),
    [
        (CallerError("parameter-unsupported", "no tools", hint="Leave it out."), 400,
         {"message": "no tools. Leave it out.", "type": "invalid_request_error", "param": None,
          "code": "parameter_unsupported"}, {}),
        (CallerError("decimal-above-max-value", "too hot", param="temperature"), 400,
         {"message": "too hot", "type": "invalid_request_error", "param": "temperature",
          "code": "decimal_above_max_value"}, {}),
        (ModelError("bad-shape", "x", original_status=422, original_message="two rows"), 422,
         {"message": "two rows", "type": "invalid_request_error", "param": None,
          "code": "bad_shape"}, {}),
        (ModelError("model-crashed", "x", original_message="it ended"), 500,
         {"message": "it ended", "type": "server_error", "param": None, "code": "model_crashed"},
         {"x-should-retry": "false"}),
        (NotNowError("queue-full", "busy", retry_after_s=0.25), 503,
         {"message": "busy", "type": "server_error", "param": None, "code": "queue_full"},
         {"retry-after": "1", "retry-after-ms": "250"}),
        (NotNowError("queue-full", "busy", status=429, retry_after_s=2.0), 429,
         {"message": "busy", "type": "rate_limit_error", "param": None, "code": "queue_full"},
         {"retry-after": "2", "retry-after-ms": "2000"}),
        (NotNowError("deadline-passed", "late"), 503,
         {"message": "late", "type": "server_error", "param": None, "code": "deadline_passed"},
         {"x-should-retry": "false"}),
        (InternalError("instance-error", "a secret"), 500,
         {"message": "Internal error (instance-error).", "type": "server_error", "param": None,
          "code": "internal_error"}, {}),
    ],
)  # fmt: skip
@at_door(model=MODEL)
async def test_each_error_has_the_protocols_form_and_says_whether_to_try_again(
    served: DoorSite,
    error: PenstockError,
    status: int,
    fields: dict[str, Any],
    head: dict[str, str],
) -> None:
    served.instance.on_invoke = fail_with(error)
    client = await served.client()
    client.write(post(CHAT, ASKS))
    got, headers, body = await client.answer()
    assert (got, orjson.loads(body)) == (status, {"error": fields})
    told = ("retry-after", "retry-after-ms", "x-should-retry")
    assert {name: headers[name] for name in told if name in headers} == head


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (post(CHAT, b"{"), 400, "json_malformed"),
        (post(CHAT, b"\xff\xfe"), 400, "json_malformed"),
        (post(CHAT, b"[]"), 400, "model_missing"),
        (post(CHAT, b'{"model":7}'), 400, "model_missing"),
        (post(CHAT, b'{"model":""}'), 400, "model_missing"),
        (post(CHAT, b'{"model":"%b"}' % (b"x" * 257)), 400, "model_name_too_long"),
        (post(CHAT, b'{"model":"nobody"}'), 404, "model_not_found"),
        (post("/endpoints/nobody/openai/v1/completions", b"{}"), 404, "model_not_found"),
        (post("/endpoints/echo/inference-components/a/openai/v1/completions", b"{}"), 400,
         "component_not_allowed"),
        (post("/endpoints/echo/openai/v2/completions", b"{}"), 404, "unknown_url"),
        (post("/v1/audio/speech", b"{}"), 404, "unknown_url"),
        (b"GET /v1/chat/completions HTTP/1.1\r\nHost: [::1]\r\n\r\n", 405, "method_not_allowed"),
        (b"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: [::1]\r\n\r\n", 404, "response_not_found"),
        (b"GET /v1/responses HTTP/1.1\r\nHost: [::1]\r\n\r\n", 405, "method_not_allowed"),
        (post("/v1/models"), 405, "method_not_allowed"),
        (post(CHAT, b"x" * 1001), 413, "body_too_large"),
        (post(CHAT, ASKS, "x-penstock-deadline-ms: soon"), 400, "deadline_invalid"),
    ],
)  # fmt: skip
@at_door(model=MODEL, body_bytes_max=1000)
async def test_requests_that_reach_no_model_are_told_why(
    served: DoorSite, request_bytes: bytes, status: int, code: str
) -> None:
    client = await served.client()
    client.write(request_bytes)
    got, _, body = await client.answer()
    assert (got, orjson.loads(body)["error"]["code"]) == (status, code)
    assert served.instance.invokes == []


@at_door(model=MODEL)
async def test_a_stream_that_breaks_ends_with_an_error_event_and_not_with_done(
    served: DoorSite,
) -> None:
    broken = ModelError("stream-broken", "the engine ended", hint="Send it again.")
    served.instance.on_invoke = streaming(b'data: {"a":1}\n\n', error=broken)
    client = await served.client()
    client.write(post(CHAT, ASKS))
    status, _, body = await client.answer()
    assert (status, body) == (
        200,
        b'data: {"a":1}\n\n'
        b'data: {"error":{"message":"the engine ended. Send it again.",'
        b'"type":"server_error","param":null,"code":"stream_broken"}}\n\n',
    )
    client.write(post(CHAT, ASKS))
    assert (await client.answer())[0] == 200


@at_door(model=MODEL)
async def test_a_broken_stream_of_responses_ends_with_a_numbered_error(served: DoorSite) -> None:
    """Three events have left in two pieces, so the error is the event with the number 3."""
    pieces = (
        b'event: a\ndata: {"sequence_number":0}\n\nevent: b\ndata: {"sequence_number":1}\n\n',
        b'event: c\ndata: {"sequence_number":2}\n\n',
    )
    served.instance.on_invoke = streaming(
        *pieces, error=ModelError("stream-broken", "the engine ended")
    )
    client = await served.client()
    client.write(post("/v1/responses", ASKS))
    status, _, body = await client.answer()
    assert (status, body) == (
        200,
        b"".join(pieces) + b'event: error\ndata: {"type":"error","sequence_number":3,'
        b'"code":"stream_broken","message":"the engine ended","param":null,'
        b'"error":{"message":"the engine ended","type":"server_error","param":null,'
        b'"code":"stream_broken"}}\n\n',
    )


@at_door(model=MODEL)
async def test_a_client_that_goes_away_cancels_and_a_deadline_is_kept(served: DoorSite) -> None:
    served.instance.on_invoke = silent
    client = await served.client()
    client.write(post(CHAT, ASKS))
    await until(lambda: served.instance.invokes)
    assert served.instance.invokes[0].deadline_ms > 400_000
    client.close()
    await until(lambda: len(served.instance.cancelled) == 1)
    client = await served.client()
    client.write(post(CHAT, ASKS, "x-penstock-deadline-ms: 50"))
    assert (await client.answer())[0] == 503
    await until(lambda: len(served.instance.cancelled) == 2)
    assert served.dispatcher.in_flight == 0


def test_models_are_the_endpoints_that_speak_the_api() -> None:
    async def main() -> None:
        async with door_site(model=MODEL) as served:
            client = await served.client()

            async def get(path: str) -> tuple[int, Any]:
                client.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                status, _, body = await client.answer()
                return status, orjson.loads(body)

            status, listed = await get("/v1/models")
            [card] = listed["data"]
            created = card.pop("created")
            assert (status, listed["object"]) == (200, "list")
            assert card == {"id": "echo", "object": "model", "owned_by": "penstock"}
            assert isinstance(created, int)
            assert (await get("/v1/models/echo"))[1]["id"] == "echo"
            assert (await get("/v1/models/nobody"))[0] == 404
            assert (await get("/endpoints/echo/openai/v1/models"))[1]["data"][0]["id"] == "echo"
            assert (await get("/endpoints/nobody/openai/v1/models"))[1]["data"] == []
            assert (await get("/endpoints/echo/openai/v1/models/echo"))[1]["id"] == "echo"
            # A key may be for the endpoint in the path only, and must not learn of another there.
            assert (await get("/endpoints/nobody/openai/v1/models/echo"))[0] == 404

    run(main)


@at_door()
async def test_a_model_that_makes_no_text_is_not_listed(served: DoorSite) -> None:
    client = await served.client()
    client.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert orjson.loads((await client.answer())[2])["data"] == []


class _Keys:
    """Lets in who shows `Bearer right`."""

    def check(self, method: str, path: bytes, query: bytes, headers: Any, body: bytes) -> None:
        self.check_head(method, path, query, headers)

    def check_head(self, method: str, path: bytes, query: bytes, headers: Any) -> None:
        if (b"Authorization", b"Bearer right") not in headers:
            raise AwsError("UnrecognizedClientException", "The token is invalid.", status=403)


def test_where_keys_are_asked_for_a_wrong_one_is_told_so_in_the_protocols_form() -> None:
    async def main() -> None:
        async with door_site(model=MODEL, authenticator=_Keys()) as served:
            served.instance.on_invoke = whole(b"{}")
            for path in (CHAT, "/endpoints/echo/openai/v1/chat/completions"):
                client = await served.client()
                client.write(post(path, ASKS, "Authorization: Bearer wrong"))
                status, _, body = await client.answer()
                assert (status, orjson.loads(body)["error"]["code"]) == (401, "invalid_api_key")
                client = await served.client()
                client.write(post(path, ASKS, "Authorization: Bearer right"))
                assert (await client.answer())[0] == 200

    run(main)


@at_door(model=MODEL)
async def test_stopping_lets_a_stream_end(served: DoorSite) -> None:
    told = served.instance.on_invoke = Told()
    client = await served.client()
    client.write(post(CHAT, ASKS))
    await until(lambda: told.idents)
    told.send(first(told.idents[0], b"data: 1\n\n"))
    await client.reader.readuntil(b"data: 1")
    stopping = asyncio.ensure_future(served.server.stop())
    await until(lambda: not served.dispatcher.accepting)
    told.send(end(told.idents[0]))
    await client.reader.readuntil(b"0\r\n\r\n")
    assert await stopping
