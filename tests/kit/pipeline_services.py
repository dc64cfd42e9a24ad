"""Small services on loopback for pipelines to call: a writer of text, and a catalogue over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.artifacts.description.description import ModelDescription
from penstock.errors import PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.pipeline.runtime import PipelineRuntime

DEADLINE_S = 20.0


class Writer:
    """Speaks OpenAI's chat stream. Each word leaves when `say` is called; `break_off` kills it."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.status = 200
        self.whole: Any = None  #: a JSON answer in place of a stream
        self.gone = asyncio.Event()  #: a client went away
        self._asked = asyncio.Event()
        self.streams: list[asyncio.StreamWriter] = []  #: in the order in which they were asked for
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Writer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.break_off()
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0] or 0)
        self.paths.append(head.split(" ")[1])
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(size) or b"null"))
        if self.whole is not None or self.status != 200:
            body = json.dumps(self.whole).encode()
            writer.write(
                f"HTTP/1.1 {self.status} -\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            writer.close()
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        self.streams.append(writer)
        self._asked.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.gone.set()

    async def say(self, text: str, finish: str | None = None, *, to: int = -1) -> None:
        await asyncio.wait_for(self._asked.wait(), DEADLINE_S)
        value = {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}
        event = b"data: " + json.dumps(value).encode() + b"\r\n\r\n"
        self.streams[to].write(b"%x\r\n%b\r\n" % (len(event), event))

    async def end(self, *, to: int = -1) -> None:
        await self.say("", "stop", to=to)
        done = b"data: [DONE]\n\n"
        self.streams[to].write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done))

    def break_off(self) -> None:
        for stream in self.streams:
            stream.transport.abort()


def catalogue_descriptors() -> descriptor_pb2.FileDescriptorSet:
    """package shop: service Catalogue { Card(Ask) -> Card; Cards(Ask) -> stream of Card }."""
    text, one = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, 1
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    for name, fields in (("Ask", ("id",)), ("Card", ("id", "title"))):
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields, start=one):
            message.field.add(name=field, number=number, type=text, label=1)
    service = file.service.add(name="Catalogue")
    service.method.add(name="Card", input_type=".shop.Ask", output_type=".shop.Card")
    service.method.add(
        name="Cards", input_type=".shop.Ask", output_type=".shop.Card", server_streaming=True
    )
    return descriptor_pb2.FileDescriptorSet(file=[file])


class Catalogue:
    """Answers with a card, once `go` is set. `stop` ends it in the middle of what it does."""

    def __init__(self) -> None:
        self.target = ""
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.metadata: list[dict[str, str]] = []
        self.cancelled = asyncio.Event()
        self._server: Any = None
        pool = descriptor_pool.DescriptorPool()
        for file in catalogue_descriptors().file:
            pool.Add(file)
        find = pool.FindMessageTypeByName
        self._ask: Any = message_factory.GetMessageClass(find("shop.Ask"))
        self._card: Any = message_factory.GetMessageClass(find("shop.Card"))

    async def __aenter__(self) -> Catalogue:
        self._server = grpc.aio.server()
        how: dict[str, Callable[..., Any]] = {
            "request_deserializer": self._ask.FromString,
            "response_serializer": lambda card: card.SerializeToString(),
        }
        handlers = {
            "Card": grpc.unary_unary_rpc_method_handler(self._one, **how),
            "Cards": grpc.unary_stream_rpc_method_handler(self._many, **how),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("shop.Catalogue", handlers),)
        )
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _waited(self, ask: Any) -> Any:
        self.asked.append(ask.id)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self._card(id=ask.id, title=f"the {ask.id}")

    async def _one(self, ask: Any, context: Any) -> Any:
        self.metadata.append(dict(context.invocation_metadata()))
        return await self._waited(ask)

    async def _many(self, ask: Any, context: Any) -> AsyncIterator[Any]:
        yield self._card(id=ask.id, title="first")
        yield await self._waited(ask)


class Lanes:
    """Notes what a runtime says of its worker."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self.said.append("lost")

    def lane_ready(self, lane: int) -> None:
        self.said.append("ready")

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self.said.append("failed")


class Shown:
    """A running pipeline and what it tells, request by request."""

    def __init__(self, runtime: PipelineRuntime) -> None:
        self.runtime = runtime
        self.told: dict[int, list[dict[str, Any]]] = {}
        self._news = asyncio.Event()
        runtime.attach(self._events, lambda: False)

    def _events(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self.told.setdefault(event["i"], []).append(event)
        self._news.set()

    def said(self, ident: int = 1) -> list[tuple[str, Any]]:
        return [(each["k"], each["d"]) for each in self.told.get(ident, []) if "k" in each]

    def kinds(self, ident: int = 1) -> list[str]:
        return [kind for kind, _ in self.said(ident)]

    def held(self, step: str, ident: int = 1) -> int:
        """Events of a step that wait for their place."""
        seen = self.runtime.snapshot().get(ident, {"steps": {step: {"events_held": 0}}})
        return int(seen["steps"][step]["events_held"])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Raises TimeoutError if it does not come to hold."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.05)

    async def over(self, ident: int = 1) -> dict[str, Any]:
        """The last event: {"f": ...} or {"e": ...}."""

        def ended() -> bool:
            told = self.told.get(ident, [])
            return bool(told) and ("f" in told[-1] or "e" in told[-1])

        await self.until(ended)
        return self.told[ident][-1]


@contextlib.asynccontextmanager
async def served(
    folder: Path, declared: str, *, code: str = "", environment: dict[str, str] | None = None
) -> AsyncIterator[Shown]:
    """The pipeline of this text, loaded as an instance loads it."""
    (folder / "pipeline.yaml").write_text(declared)
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "steps.py").write_text(code)
    (folder / "shop.binpb").write_bytes(catalogue_descriptors().SerializeToString())
    context = LoadContext(
        model_dir=folder,
        description=ModelDescription(runtime="python", task="payload", file="pipeline.yaml"),
        endpoint_name="assistant",
        variant_name="main",
        cores=1.0,
        memory_bytes_max=0,
        environment=environment or {},
        startup_timeout_s=60.0,
    )
    runtime = await PipelineRuntime.start(context, Lanes())
    try:
        yield Shown(runtime)
    finally:
        await runtime.close()
