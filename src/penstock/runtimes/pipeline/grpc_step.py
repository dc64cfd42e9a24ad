"""Steps that call a gRPC service, unary or with a stream of answers.

The artifact has the service's FileDescriptorSet (`protoc --descriptor_set_out --include_imports`).
Messages are JSON on our side, by protobuf's own rules, so no code of the service is needed. If a
service is down, a call fails at once, and the connection is retried within a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError, NotNowError, PenstockError
from penstock.runtimes.pipeline.calls import ANSWER_BYTES_MAX, Hear, Whole, failed_answer

_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
)


class GrpcWay:
    """Create it on the running loop's thread. Raises ModelError for files that don't fit."""

    def __init__(
        self, name: str, target: str, method: str, descriptors: Path, *, keeps: bool = True
    ) -> None:
        """`keeps`: keep a stream's messages as its result; False: nobody uses it."""
        import grpc
        from google.protobuf import json_format, message_factory

        self._name = name
        self._keeps = keeps
        found = _method(name, method, descriptors)
        request: Any = message_factory.GetMessageClass(found.input_type)
        answer: Any = message_factory.GetMessageClass(found.output_type)

        def to_json(data: bytes) -> Any:
            return json_format.MessageToDict(
                answer.FromString(data),
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )

        parse: Any = json_format.ParseDict
        self._parse: Callable[[Any], Any] = lambda value: parse(value, request())
        self._grpc = grpc
        self._stream: bool = found.server_streaming
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        kind = self._channel.unary_stream if self._stream else self._channel.unary_unary
        self._invoke = kind(
            f"/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=to_json,
        )

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> _GrpcCall:
        going = asyncio.Event()
        going.set()
        run = self._run(inputs, hear, left_s, going)
        return _GrpcCall(asyncio.get_running_loop().create_task(run), going)

    async def _run(
        self, inputs: Any, hear: Hear, left_s: float | None, going: asyncio.Event
    ) -> None:
        try:
            result = await self._asked(inputs, hear, left_s, going)
        except PenstockError as error:
            hear.failed(error)
        except Exception as error:  # exceptions of the library and bugs become this call's failure
            hear.failed(ModelError("step-failed", f"{self._name}: {error!r}"[:500]))
        else:
            hear.done(result)

    async def _asked(
        self, inputs: Any, hear: Hear, left_s: float | None, going: asyncio.Event
    ) -> Any:
        from google.protobuf.json_format import ParseError

        try:
            message = self._parse(inputs)
        except ParseError as error:
            raise ModelError(
                "step-failed", f"{self._name}: the inputs don't fit: {error}"
            ) from None
        try:
            if not self._stream:
                answer = await self._invoke(message, timeout=left_s, metadata=hear.trace_headers)
                hear.piece(answer)
                return answer
            pieces = []
            async for piece in self._invoke(message, timeout=left_s, metadata=hear.trace_headers):
                await going.wait()
                if self._keeps:
                    pieces.append(piece)
                hear.piece(piece)
            return pieces
        except self._grpc.aio.AioRpcError as error:
            raise _failure(self._name, error) from None

    async def close(self) -> None:
        await self._channel.close()


class _GrpcCall(Whole):
    __slots__ = ("_going", "_task")

    def __init__(self, task: asyncio.Task[None], going: asyncio.Event) -> None:
        self._task = task
        self._going = going

    def stop(self) -> None:
        self._task.cancel()

    def hold(self, held: bool) -> None:
        """Does nothing: the stream's flow-control window bounds what the service sends
        meanwhile."""
        if held:
            self._going.clear()
        else:
            self._going.set()


def _method(name: str, method: str, path: Path) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    except OSError as error:
        raise ModelError("artifact-incomplete", f"step {name!r}: {path.name}: {error}") from None
    except DecodeError:
        raise ModelError(
            "descriptors-unreadable",
            f"step {name!r}: {path.name} is no FileDescriptorSet",
            hint="Make it with protoc --descriptor_set_out=FILE --include_imports.",
        ) from None
    service, _, called = method.partition("/")
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        found = pool.FindServiceByName(service).methods_by_name[called]
    except (KeyError, TypeError) as error:
        raise ModelError(
            "descriptors-unreadable",
            f"step {name!r}: {path.name} has no method {method!r}: {error}",
            hint="Make it with --include_imports, and write package.Service/Method.",
        ) from None
    if found.client_streaming:
        raise ModelError(
            "method-unsupported",
            f"step {name!r}: {method} takes a stream of requests",
            hint="Call a method that takes one request; `each` makes a call for each piece.",
        )
    return found


def _failure(name: str, error: Any) -> PenstockError:
    code = error.code().name
    words = f"{name}: {code}: {error.details()}"
    if code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"):
        return NotNowError("step-unavailable", words[:500])
    return failed_answer(400 if code == "INVALID_ARGUMENT" else 500, words)
