"""InvokeEndpointWithResponseStream: frames byte for byte, breaks, and the unmodified client."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import botocore.exceptions
import orjson
import pytest
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer
from tests.api.door_site import DoorSite, at_door
from tests.api.stream_fakes import Told, end, first, more, operations, streaming, whole
from tests.gateway.gateway_fakes import RawClient, fail_with, post, until

from penstock.errors import CallerError, InternalError, ModelError, NotNowError, PenstockError
from penstock.wire import frames

STREAM = "/endpoints/echo/invocations-response-stream"
PLAIN = "/endpoints/echo/invocations"
#: PayloadPart with the bytes `hi`
GOLDEN_FRAME = bytes.fromhex(
    "0000006b"  # 107 bytes in all
    "00000059"  # 89 of them headers
    "99777065"  # checksum of the two
    "0b3a6576656e742d74797065" "07000b5061796c6f616450617274"
    "0d3a636f6e74656e742d74797065" "0700186170706c69636174696f6e2f6f637465742d73747265616d"
    "0d3a6d6573736167652d74797065" "0700056576656e74"
    "6869"
    "f0e10a16"  # checksum of all
)  # fmt: skip


async def begun(served: DoorSite) -> tuple[Told, RawClient]:
    """An answer whose first piece, `one`, has come."""
    told = served.instance.on_invoke = Told()
    client = await served.client()
    client.write(post(STREAM))
    await until(lambda: told.idents)
    told.send(first(told.idents[0], b"one", "text/plain"))
    await client.reader.readuntil(b"one")
    return told, client


def events(body: bytes) -> list[tuple[str, bytes]]:
    """(event or exception type, payload) as botocore takes the stream apart."""
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    return [
        (each.headers.get(":event-type") or each.headers[":exception-type"], each.payload)
        for each in buffer
    ]


@at_door()
async def test_each_piece_of_the_model_is_one_frame_and_one_chunk_in_these_bytes(
    served: DoorSite,
) -> None:
    served.instance.on_invoke = streaming(b"hi", content_type="text/plain")
    client = await served.client()
    client.write(post(STREAM, b"{}"))
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ntransfer-encoding: chunked\r\n" in head
    rest = await client.reader.readuntil(b"0\r\n\r\n")
    assert rest == b"6b\r\n" + GOLDEN_FRAME + b"\r\n0\r\n\r\n"


@at_door()
async def test_what_the_caller_says_reaches_the_model_and_the_head_says_what_comes(
    served: DoorSite,
) -> None:
    served.instance.on_invoke = streaming(b"data:1\n\n", b"data:2\n\n")
    client = await served.client()
    served.dispatcher.sessions.open("echo", "session-1")
    client.write(
        post(
            STREAM,
            b"{}",
            "Content-Type: application/json",
            "Accept: */*",
            "X-Amzn-SageMaker-Accept: text/event-stream",
            "X-Amzn-SageMaker-Custom-Attributes: trace=1",
            "X-Amzn-SageMaker-Session-Id: session-1",
        )
    )
    status, headers, body = await client.answer()
    [invoke] = served.instance.invokes
    assert frames.decode_request_meta(invoke.meta) == frames.RequestMeta(
        "application/json",
        "text/event-stream",
        "trace=1",
        session_id="session-1",
        parameters='{"stream":true}',
    )
    assert (status, headers["content-type"]) == (200, "application/vnd.amazon.eventstream")
    assert headers["x-amzn-sagemaker-content-type"] == "text/event-stream"
    assert headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    assert headers["x-amzn-requestid"]
    assert events(body) == [("PayloadPart", b"data:1\n\n"), ("PayloadPart", b"data:2\n\n")]


CHAT = (
    b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)


@pytest.mark.parametrize("cuts", ["together", "bytes", "across", "crlf", "whole"])
@at_door()
async def test_a_frame_holds_exactly_one_event_however_the_answer_was_cut(
    served: DoorSite, cuts: str
) -> None:
    """A turn of an engine may make several events, a socket may cut one; a PayloadPart is one."""
    wanted = list(CHAT)
    if cuts == "crlf":
        wanted = [event.replace(b"\n", b"\r\n") for event in CHAT]
    body = b"".join(wanted)
    pieces = {
        "together": [wanted[0] + wanted[1], wanted[2] + wanted[3]],
        "bytes": [body[at : at + 1] for at in range(len(body))],
        "across": [body[:60], body[60:120], body[120:]],
    }.get(cuts, [body])
    kind = "text/event-stream; charset=utf-8"
    on_invoke = whole(body, kind) if cuts == "whole" else streaming(*pieces, content_type=kind)
    served.instance.on_invoke = on_invoke
    client = await served.client()
    client.write(post(STREAM, b"{}"))
    _, _, answered = await client.answer()
    assert events(answered) == [("PayloadPart", event) for event in wanted]


@at_door()
async def test_an_event_that_breaks_off_is_sent_before_the_frame_that_says_so(
    served: DoorSite,
) -> None:
    error = ModelError("stream-broken", "the engine ended")
    served.instance.on_invoke = streaming(CHAT[0] + b"data: ha", error=error)
    client = await served.client()
    client.write(post(STREAM))
    _, _, body = await client.answer()
    parts = [("PayloadPart", CHAT[0]), ("PayloadPart", b"data: ha")]
    assert events(body)[:2] == parts
    assert [kind for kind, _ in events(body)[2:]] == ["ModelStreamError"]


@at_door()
async def test_a_frame_leaves_when_its_piece_is_made(served: DoorSite) -> None:
    told = served.instance.on_invoke = Told()
    client = await served.client()
    client.write(post(STREAM))
    await until(lambda: told.idents)
    [ident] = told.idents
    told.send(first(ident, b"data:one\n\n"))
    await client.reader.readuntil(b"one")
    told.send(more(ident, b"data:two\n\n"))
    await client.reader.readuntil(b"two")
    assert served.dispatcher.in_flight == 1
    told.send(end(ident))
    await client.reader.readuntil(b"0\r\n\r\n")
    await until(lambda: not served.dispatcher.in_flight)


@at_door()
async def test_a_whole_answer_is_a_stream_of_one_frame(served: DoorSite) -> None:
    client = await served.client()
    client.write(post(STREAM, b"rows", "Content-Type: text/csv"))
    _, headers, body = await client.answer()
    assert headers["x-amzn-sagemaker-content-type"] == "text/csv"
    assert events(body) == [("PayloadPart", b"rows")]
    client.write(post(PLAIN, b"rows", "Content-Type: text/csv"))
    assert (await client.answer())[2] == b"rows"


@pytest.mark.parametrize(
    ("error", "kind", "payload"),
    [
        (ModelError("stream-broken", "the engine ended", original_message="out of memory"),
         "ModelStreamError",
         {"Message": "the engine ended", "ErrorCode": "StreamBroken"}),
        (NotNowError("stream-broken", "gone.", hint="Again."), "ModelStreamError",
         {"Message": "gone. Again.", "ErrorCode": "StreamBroken"}),
        (NotNowError("deadline-passed", "too late."), "ModelStreamError",
         {"Message": "too late.", "ErrorCode": "ModelInvocationTimeExceeded"}),
        (InternalError("instance-error", "a secret"), "InternalStreamFailure",
         {"Message": "Internal failure (instance-error)."}),
    ],
)  # fmt: skip
@at_door()
async def test_a_break_is_the_last_frame_and_the_body_ends(
    served: DoorSite, error: PenstockError, kind: str, payload: dict[str, str]
) -> None:
    served.instance.on_invoke = streaming(b"one", error=error)
    client = await served.client()
    client.write(post(STREAM))
    _, _, body = await client.answer()
    part, (last, told) = events(body)
    assert (part, last, orjson.loads(told)) == (("PayloadPart", b"one"), kind, payload)
    served.instance.on_invoke = streaming(b"the connection goes on")
    client.write(post(PLAIN))
    assert (await client.answer())[2] == b"the connection goes on"


@at_door()
async def test_an_instance_that_dies_in_the_middle_is_a_model_stream_error(
    served: DoorSite,
) -> None:
    _, client = await begun(served)
    served.instance.drop()
    rest = await client.reader.readuntil(b"0\r\n\r\n")
    assert b"ModelStreamError" in rest
    assert b'"ErrorCode":"StreamBroken"' in rest
    await until(lambda: not served.dispatcher.in_flight)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["X-Amzn-SageMaker-Session-Id: NEW_SESSION"], "can't begin"),
        (["X-Amzn-SageMaker-Session-Id: -x"], "at 'sessionId'"),
        (["X-Amzn-SageMaker-Target-Model: m.tar.gz"], "TargetModel"),
    ],
)
@at_door()
async def test_an_error_before_the_first_byte_is_an_ordinary_one(
    served: DoorSite, lines: list[str], words: str
) -> None:
    client = await served.client()
    client.write(post(STREAM, b"", *lines))
    status, headers, body = await client.answer()
    assert (status, headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert words in orjson.loads(body)["Message"]
    served.instance.on_invoke = fail_with(CallerError("bad-json", "no JSON"))
    client.write(post(STREAM))
    status, headers, _ = await client.answer()
    assert (status, headers["content-type"]) == (400, "application/json")


@at_door()
async def test_a_client_that_goes_away_cancels_its_generation(served: DoorSite) -> None:
    told, client = await begun(served)
    client.close()
    await until(lambda: served.instance.cancelled == told.idents)
    assert served.dispatcher.in_flight == 0


@at_door(drain_s_max=0.1)
async def test_a_stream_that_outlasts_the_time_to_stop_is_told_that_it_breaks(
    served: DoorSite,
) -> None:
    _, client = await begun(served)
    assert not await served.server.stop()
    rest = await client.closed()
    assert b"ModelStreamError" in rest
    assert rest.endswith(b"0\r\n\r\n")


@at_door()
async def test_a_body_that_asks_invoke_endpoint_for_a_stream_gets_the_pieces_as_they_are(
    served: DoorSite,
) -> None:
    served.instance.on_invoke = streaming(b"data:1\n\n", b"data:2\n\n")
    client = await served.client()
    client.write(post(PLAIN, b'{"stream":true}'))
    _, headers, body = await client.answer()
    assert headers["content-type"] == "text/event-stream"
    assert body == b"data:1\n\ndata:2\n\n"


@at_door()
async def test_boto3_iterates_and_raises_what_broke(served: DoorSite) -> None:
    def calls(port: int) -> list[Any]:
        client = boto3.client(
            "sagemaker-runtime",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName="echo", Body=b"{}", ContentType="application/json", Accept="text/x"
        )
        seen: list[Any] = [answer["ContentType"], answer["InvokedProductionVariant"]]
        seen.append([event["PayloadPart"]["Bytes"] for event in answer["Body"]])
        answer = client.invoke_endpoint_with_response_stream(EndpointName="echo", Body=b"break")
        pieces = []
        try:
            for event in answer["Body"]:
                pieces.append(event["PayloadPart"]["Bytes"])
        except botocore.exceptions.EventStreamError as error:
            seen += [pieces, error.response["Error"]]
        try:
            client.invoke_endpoint_with_response_stream(EndpointName="nobody", Body=b"")
        except client.exceptions.ValidationError as error:
            seen.append(error.response["Error"]["Message"])
        return seen

    def answer(connection: Any, ident: int, invoke: frames.Invoke) -> None:
        error = ModelError("stream-broken", "the engine ended") if invoke.body == b"break" else None
        streaming(b"one ", b"two", content_type="text/plain", error=error)(
            connection, ident, invoke
        )

    served.instance.on_invoke = answer
    seen = await asyncio.to_thread(calls, served.server.port)
    assert seen == [
        "text/plain",
        "AllTraffic",
        [b"one ", b"two"],
        [b"one ", b"two"],
        {"Code": "ModelStreamError", "Message": "the engine ended"},
        "Endpoint nobody of account 123456789012 not found.",
    ]
    assert operations(served.instance.invokes) == [("runtime", {"stream": True})] * 2


@at_door(model={"task": "text-generation"})
async def test_generated_answers_are_counted_whether_they_stream_or_not(served: DoorSite) -> None:
    client = await served.client()
    for path, on_invoke in ((STREAM, streaming(b"a", b"b")), (PLAIN, whole(b"{}"))):
        served.instance.on_invoke = on_invoke
        client.write(post(path))
        assert (await client.answer())[0] == 200
    await until(lambda: not served.dispatcher.in_flight)
    served.registry.collect(1_700_000_000.0)
    totals = served.registry.totals["echo", "AllTraffic"]
    assert (totals.first_chunk_us.count, totals.first_token_us.count) == (1, 2)
    assert (totals.tokens_in.total, totals.tokens_out.total) == (10, 6)
