"""The Open Inference Protocol over gRPC: opaque inference, metadata, status codes, cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.kit.doors import DoorSite, door_site
from tests.kit.gateway import fail_with, run, silent
from tests.kit.polling import until

from penstock.api.oip.grpc_stream import InferNames, infer_names, stream_answer, stream_error
from penstock.api.oip.models import OipModels
from penstock.core.request.grants import Grant
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError
from penstock.wire import frames
from penstock.wire.oip_messages import (
    SERVICE,
    ModelInferRequest,
    ModelStreamInferResponse,
    method_classes,
)

pytestmark = pytest.mark.loop(by=run)


async def call(served: DoorSite, method: str, *, metadata: Any = (), **fields: Any) -> Any:
    request_class, response_class = method_classes(method)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        unary = channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=request_class.SerializeToString,
            response_deserializer=response_class.FromString,
        )
        return await unary(request_class(**fields), metadata=metadata, timeout=60)


async def raw(served: DoorSite, method: str, data: bytes, **options: Any) -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        return bytes(await channel.unary_unary(f"/{SERVICE}/{method}")(data, **options))


async def status_of(awaitable: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value.code(), caught.value.details() or ""


def test_the_names_are_scanned_out_of_a_message_and_nothing_else() -> None:
    message = ModelInferRequest(model_name="m", model_version="2", id="ü")
    message.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    message.raw_input_contents.append(b"\x00" * 1000)
    assert infer_names(message.SerializeToString()) == InferNames("m", "2", "ü")
    assert infer_names(b"") == InferNames("", "", "")


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0b",
     b"\x00\x00", b"\x0a\x01\xff", b"\x09\x00", b"\x80"],
)  # fmt: skip
def test_what_is_no_message_is_the_callers_error(data: bytes) -> None:
    with pytest.raises(CallerError):
        infer_names(data)


def test_stream_answers_wrap_the_bytes_of_an_answer() -> None:
    parsed = ModelStreamInferResponse.FromString(stream_answer(b"\x0a\x01m" + b"\x12\x00" * 100))
    assert (parsed.infer_response.model_name, parsed.error_message) == ("m", "")
    assert ModelStreamInferResponse.FromString(stream_error("no")).error_message == "no"


async def test_inference_passes_the_message_unread_both_ways() -> None:
    async with door_site() as served:
        message = ModelInferRequest(model_name="echo", id="7").SerializeToString()
        assert await raw(served, "ModelInfer", message, timeout=60) == message
        [invoke] = served.instance.invokes
        meta = frames.decode_request_meta(invoke.meta)
        assert (meta.content_type, meta.door) == ("application/x-oip-grpc", "oip-grpc")
        assert 30_000 < invoke.deadline_ms <= 61_000  # gRPC rounds up
        await until(lambda: served.dispatcher.in_flight == 0)


async def test_server_and_model_answer_what_clients_ask() -> None:
    async with door_site() as served:
        assert (await call(served, "ServerLive")).live
        assert (await call(served, "ServerReady")).ready
        assert (await call(served, "ModelReady", name="echo")).ready
        assert (await call(served, "ServerMetadata")).name == "penstock"
        metadata = await call(served, "ModelMetadata", name="echo", version="1")
        assert list(metadata.versions) == ["1", "3"]
        assert list(metadata.inputs[0].shape) == [-1, 4]
        config = (await call(served, "ModelConfig", name="echo")).config
        assert (config.max_batch_size, config.input[0].name) == (8, "x")
        assert config.dynamic_batching.max_queue_delay_microseconds == 2000
        index = await call(served, "RepositoryIndex")
        assert [(m.name, m.version, m.state) for m in index.models] == [
            ("echo", "1", "READY"), ("echo", "3", "READY"),
        ]  # fmt: skip
        stats = await call(served, "ModelStatistics", name="echo")
        assert stats.model_stats[0].name == "echo"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelError("x", "m", original_status=400), grpc.StatusCode.INVALID_ARGUMENT),
        (ModelError("x", "m", original_status=500), grpc.StatusCode.INTERNAL),
        (CallerError("x", "m"), grpc.StatusCode.INVALID_ARGUMENT),
        (NotNowError("queue-full", "m"), grpc.StatusCode.UNAVAILABLE),
        (NotNowError("rate", "m", status=429), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (NotNowError("deadline-passed", "m"), grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)
async def test_each_error_has_its_status_code(error: PenstockError, code: Any) -> None:
    async with door_site() as served:
        served.instance.on_invoke = fail_with(error)
        message = ModelInferRequest(model_name="echo").SerializeToString()
        assert (await status_of(raw(served, "ModelInfer", message)))[0] == code
        await until(lambda: served.dispatcher.in_flight == 0)


async def test_wrong_requests_are_told_why() -> None:
    codes = grpc.StatusCode
    async with door_site(oip_body_bytes_max=1000) as served:
        nobody = ModelInferRequest(model_name="nobody").SerializeToString()
        code, details = await status_of(raw(served, "ModelInfer", nobody))
        assert (code, "unknown model" in details) == (codes.NOT_FOUND, True)
        version = ModelInferRequest(model_name="echo", model_version="9").SerializeToString()
        assert (await status_of(raw(served, "ModelInfer", version)))[0] == codes.NOT_FOUND
        for method in ("ModelInfer", "ModelMetadata"):
            code, _ = await status_of(raw(served, method, b"\x0a\x7f\x01"))
            assert code == codes.INVALID_ARGUMENT
        code, _ = await status_of(raw(served, "ModelInfer", b"\x0a" + b"x" * 100_000))
        assert code == codes.RESOURCE_EXHAUSTED
        code, _ = await status_of(call(served, "RepositoryModelLoad", model_name="echo"))
        assert code == codes.UNIMPLEMENTED
        code, _ = await status_of(raw(served, "Nonsense", b""))
        assert code == codes.UNIMPLEMENTED


async def test_a_client_that_cancels_or_runs_out_of_time_cancels_its_request() -> None:
    async with door_site() as served:
        served.instance.on_invoke = silent
        message = ModelInferRequest(model_name="echo").SerializeToString()
        task = asyncio.ensure_future(raw(served, "ModelInfer", message))
        await until(lambda: served.instance.invokes)
        task.cancel()
        await until(lambda: len(served.instance.cancelled) == 1)
        late = raw(served, "ModelInfer", message, timeout=0.1)
        assert (await status_of(late))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: len(served.instance.cancelled) == 2)
        assert served.dispatcher.in_flight == 0


async def test_a_stream_answers_each_request_in_order_and_survives_a_failed_one() -> None:
    async with door_site() as served:
        requests = [
            ModelInferRequest(model_name=name, id=str(number)).SerializeToString()
            for number, name in enumerate(("echo", "nobody", "echo"))
        ]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
            answers = [
                ModelStreamInferResponse.FromString(data)
                async for data in stream(iter(requests), timeout=60)
            ]
        assert [answer.infer_response.id for answer in answers] == ["0", "1", "2"]
        assert "unknown model" in answers[1].error_message


async def test_where_keys_are_asked_for_only_liveness_is_public() -> None:
    def grant_of(token: str) -> Grant:
        if token != "right":
            raise CallerError("UnrecognizedClientException", "wrong key", status=403)
        return Grant("invoke")

    async with door_site(grant_of=grant_of) as served:
        assert (await call(served, "ServerLive")).live
        code, _ = await status_of(call(served, "ModelMetadata", name="echo"))
        assert code == grpc.StatusCode.UNAUTHENTICATED
        code, _ = await status_of(raw(served, "ModelInfer", b""))
        assert code == grpc.StatusCode.UNAUTHENTICATED
        metadata = (("authorization", "Bearer right"),)
        assert (await call(served, "ModelMetadata", name="echo", metadata=metadata)).name


@pytest.mark.parametrize("way", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_compressed_message_is_inflated_within_its_bound(way: Any) -> None:
    async with door_site(oip_body_bytes_max=1000) as served:
        message = ModelInferRequest(model_name="echo", id="7" * 900).SerializeToString()
        assert await raw(served, "ModelInfer", message, compression=way) == message
        zeros = ModelInferRequest(model_name="echo", id="7" * 500_000).SerializeToString()
        code, _ = await status_of(raw(served, "ModelInfer", zeros, compression=way))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_compressed_messages_of_a_stream_keep_their_order() -> None:
    """A large one takes many turns of the event loop to inflate; those behind it wait."""
    async with door_site() as served:
        path = f"/{SERVICE}/ModelStreamInfer"
        target = f"127.0.0.1:{served.grpc_port}"
        async with grpc.aio.insecure_channel(target, compression=grpc.Compression.Gzip) as channel:
            stream = channel.stream_stream(path)()
            sent = [
                ModelInferRequest(model_name="echo", id=ident).SerializeToString()
                for ident in ("a", "b" * 3_000_000, "c")
            ]
            for message in sent:
                await stream.write(message)
            answers = [ModelStreamInferResponse.FromString(await stream.read()) for _ in sent]
            assert [answer.infer_response.id[:1] for answer in answers] == ["a", "b", "c"]
            assert len(answers[1].infer_response.id) == 3_000_000
            assert served.bodies.bytes_taken == 0
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF


async def test_a_client_that_cancels_ends_the_work_on_its_compressed_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = []

    async def index(*_: Any, **__: Any) -> None:
        told.append("asked")
        try:
            await asyncio.sleep(3600)
        finally:
            told.append("over")

    monkeypatch.setattr(OipModels, "index", index)
    async with door_site() as served:
        message = method_classes("RepositoryIndex")[0](repository_name="x" * 1_000)
        target = f"127.0.0.1:{served.grpc_port}"
        async with grpc.aio.insecure_channel(target, compression=grpc.Compression.Gzip) as channel:
            unary = channel.unary_unary(f"/{SERVICE}/RepositoryIndex")
            asked = unary(message.SerializeToString())
            await until(lambda: told == ["asked"])
            asked.cancel()
            await until(lambda: told == ["asked", "over"])


async def test_a_text_of_an_error_arrives_whatever_its_letters() -> None:
    async with door_site() as served:
        words = "Größe 5 % zu groß\nund mehr"
        served.instance.on_invoke = fail_with(ModelError("x", "m", original_message=words))
        message = ModelInferRequest(model_name="echo").SerializeToString()
        assert (await status_of(raw(served, "ModelInfer", message)))[1] == words
