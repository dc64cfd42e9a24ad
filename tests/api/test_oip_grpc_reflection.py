"""gRPC's server reflection: a client without `.proto` files learns how to call every method."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.api.test_oip_grpc import status_of
from tests.kit.doors import DoorSite, door_site
from tests.kit.gateway import run

from penstock.core.request.grants import Grant
from penstock.wire import grpc_health, grpc_reflection, oip_messages
from penstock.wire.aws.errors import AwsError

pytestmark = pytest.mark.loop(by=run)

VERSIONS = ["grpc.reflection.v1", "grpc.reflection.v1alpha"]
SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
]
NOT_FOUND, INVALID_ARGUMENT = 5, 3


def text(number: int, value: bytes) -> bytes:
    """A field of protobuf, by hand: of a string, bytes or a message."""
    assert len(value) < 128
    return bytes((number << 3 | 2, len(value))) + value


LIST = text(7, b"")
BY_FILE, BY_SYMBOL, NUMBERS_OF_TYPE = 3, 4, 6
EXTENSION = text(5, text(1, b"inference.ModelInferRequest") + b"\x10\x07")


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Number and value of each field of a message, by hand."""
    found: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        size = varint()
        if tag & 7 == 0:
            found.append((tag >> 3, size))
        else:
            assert tag & 7 == 2
            found.append((tag >> 3, data[at : at + size]))
            at += size
    return found


class Reflection:
    """One call of the method."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Number and value of the field that answers."""
        await self._stream.write(text(1, b"here") + request)
        answer = fields(await self._stream.read())
        host, original, answered = answer
        assert host == (1, b"here")
        assert original == (2, text(1, b"here") + request)
        return answered

    async def files(self, request: bytes) -> list[bytes]:
        number, answered = await self.ask(request)
        assert number == 4
        return [value for _, value in fields(answered)]

    async def error(self, request: bytes) -> int:
        """The code of the error that answers."""
        number, answered = await self.ask(request)
        assert number == 7
        (_, code), (_, words) = fields(answered)
        assert words
        return int(code)


@asynccontextmanager
async def reflection(
    served: DoorSite, version: str, metadata: Any = ()
) -> AsyncIterator[Reflection]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        path = f"/{version}.ServerReflection/ServerReflectionInfo"
        stream = channel.stream_stream(path)(metadata=metadata, timeout=60)
        yield Reflection(stream)
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_learns_all_services_and_their_messages(version: str) -> None:
    """It asks for services, then for the file of each, and calls a method with what it has."""
    async with door_site() as served, reflection(served, version) as asks:
        number, answered = await asks.ask(LIST)
        assert number == 6
        services = [fields(value)[0][1].decode() for _, value in fields(answered)]
        assert services == SERVICES
        pool = descriptor_pool.DescriptorPool()
        for service in services:
            for file in await asks.files(text(BY_SYMBOL, service.encode())):
                pool.AddSerializedFile(file)
        for file in (
            *(oip_messages.FILE, grpc_health.FILE),
            *(each.file for each in grpc_reflection.VERSIONS),
        ):
            learnt = descriptor_pb2.FileDescriptorProto()
            pool.FindFileByName(file.name).CopyToProto(learnt)
            assert learnt == file
        method = pool.FindServiceByName("inference.GRPCInferenceService").FindMethodByName(
            "ModelReady"
        )
        request = message_factory.GetMessageClass(method.input_type)(name="echo")
        answer_class = message_factory.GetMessageClass(method.output_type)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            unary = channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
            assert answer_class.FromString(await unary(request.SerializeToString())).ready


@pytest.mark.parametrize(
    "symbol",
    [
        "inference.GRPCInferenceService",
        "inference.GRPCInferenceService.ModelInfer",
        "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor",
        "inference.ModelInferRequest.InferInputTensor.shape",
        "inference.ModelInferRequest.ParametersEntry",
        "inference.InferParameter.parameter_choice",
        "inference.DataType",
        "inference.TYPE_FP32",
        "inference.ModelInput.Format",
        "inference.ModelInput.FORMAT_NHWC",
    ],
)
async def test_whatever_a_file_declares_leads_to_it(symbol: str) -> None:
    async with door_site() as served, reflection(served, VERSIONS[0]) as asks:
        assert await asks.files(text(BY_SYMBOL, symbol.encode())) == await asks.files(
            text(BY_FILE, b"penstock/oip.proto")
        )


async def test_what_can_not_be_found_is_an_answer_and_the_call_goes_on() -> None:
    async with door_site() as served, reflection(served, VERSIONS[0]) as asks:
        assert await asks.error(text(BY_FILE, b"inference.ModelInferRequest")) == NOT_FOUND
        assert await asks.error(text(BY_SYMBOL, b"penstock/oip.proto")) == NOT_FOUND
        assert await asks.error(EXTENSION) == NOT_FOUND
        assert await asks.error(text(NUMBERS_OF_TYPE, b"inference.Nothing")) == NOT_FOUND
        assert await asks.error(b"") == INVALID_ARGUMENT
        name = b"inference.ModelInferRequest"
        assert await asks.ask(text(NUMBERS_OF_TYPE, name)) == (5, text(1, name))


async def test_what_is_no_request_ends_the_call() -> None:
    async with door_site() as served:
        for message, code in (
            (b"\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (bytes(1 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
                path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
                stream = channel.stream_stream(path)()
                await stream.write(message)
                assert (await status_of(stream.read()))[0] == code


@pytest.mark.parametrize("version", VERSIONS)
async def test_strangers_learn_nothing_and_any_key_will_do(version: str) -> None:
    def grant_of(token: str) -> Grant:
        if token != "right":
            raise AwsError("UnrecognizedClientException", "Who is this?", status=403)
        return Grant("invoke", frozenset({"other"}))

    async with door_site(grant_of=grant_of) as served:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            path = f"/{version}.ServerReflection/ServerReflectionInfo"
            for metadata in ((), (("authorization", "Bearer wrong"),)):
                stream = channel.stream_stream(path)(metadata=metadata)
                code, _ = await status_of(stream.read())
                assert code == grpc.StatusCode.UNAUTHENTICATED
        key = (("authorization", "Bearer right"),)
        async with reflection(served, version, key) as asks:
            assert (await asks.ask(LIST))[0] == 6
