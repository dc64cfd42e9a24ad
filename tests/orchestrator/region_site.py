"""An orchestrator before regions that do what a test tells them: reset, refuse, stop half-way."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.kit.polling import until

from penstock.api.traffic.orchestrator import Orchestrator
from penstock.config import LimitConfig, ListenConfig, ServerConfig, TelemetryConfig
from penstock.orchestrator.regions_file import read_regions

LIMITS = LimitConfig(request_timeout_s=20.0, drain_s_max=5.0)


@dataclass
class RegionRequest:
    """A request as a region got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[RegionRequest, asyncio.StreamWriter], Awaitable[None]]


async def reset(_asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
    """The connection breaks without a word."""
    writer.transport.abort()


async def nothing(_asked: RegionRequest, _writer: asyncio.StreamWriter) -> None:
    """Takes it and never answers."""
    await asyncio.Event().wait()


def saying(body: bytes, *, status: int = 200, **headers: str) -> Script:
    async def say(_asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return say


def breaking(head: bytes, *pieces: bytes) -> Script:
    """Sends what is given, then resets."""

    async def say(_asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        await asyncio.sleep(0.05)  # so that it leaves before the reset
        writer.transport.abort()

    return say


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENTS_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def event(fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


@dataclass
class ScriptedRegion:
    """Feeds, answers probes, and answers all else by its script."""

    name: str
    script: Script = field(default_factory=lambda: saying(b"[1]"))
    rooms: dict[str, int] = field(default_factory=lambda: {"echo": 8})
    load: dict[str, Any] = field(default_factory=dict)  #: what else it tells of each endpoint
    accepting: bool = True
    answers_probes: bool = True
    probe_s: float = 0.0  #: that an answer to a probe is under way
    feed_status: int = 200
    key: str = ""  #: who does not give it is not let in
    asked: list[RegionRequest] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    port: int = 0
    gone: int = 0  #: connections that the other side has ended
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self.tls, limit=1 << 24
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As if its process was killed."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                asked = await _read(reader)
                if self.key and asked.headers.get("authorization") != f"Bearer {self.key}":
                    await saying(b"", status=403)(asked, writer)
                elif asked.path == "/penstock/v1/traffic":
                    await self._feed(writer)
                elif asked.path == "/ping":
                    if not self.answers_probes:
                        await asyncio.Event().wait()
                    await asyncio.sleep(self.probe_s)
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                else:
                    self.asked.append(asked)
                    working = asyncio.ensure_future(self.script(asked, writer))
                    ended = asyncio.ensure_future(_wait_eof(reader))
                    await asyncio.wait([working, ended], return_when=asyncio.FIRST_COMPLETED)
                    if not working.done():
                        self.gone += 1
                        working.cancel()
                        return
                    ended.cancel()
                    await asyncio.gather(ended, return_exceptions=True)
                    working.result()
                await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _feed(self, writer: asyncio.StreamWriter) -> None:
        if self.feed_status != 200:
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % self.feed_status)
            return
        writer.write(EVENTS_HEAD)
        while True:
            endpoints = {
                name: {"room": room, "copies": 1, "waiting": 0, "in_flight": 0} | self.load
                for name, room in self.rooms.items()
            }
            writer.write(chunk(event({"accepting": self.accepting, "endpoints": endpoints})))
            await writer.drain()
            await asyncio.sleep(0.03)


async def _wait_eof(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof():  # noqa: ASYNC110 - a reader tells of its end in no other way
        await asyncio.sleep(0.01)


async def _read(reader: asyncio.StreamReader) -> RegionRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    for line in head[1:]:  # values as they came
        if line:
            name, value = line.split(": ", 1)
            headers[name.lower()] = value
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RegionRequest(method, path, headers, body)


@dataclass
class HttpAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class OrchestratorSite:
    """The orchestrator, and the regions by their names."""

    orchestrator: Orchestrator
    port: int
    regions: dict[str, ScriptedRegion]

    async def open(
        self,
        path: str,
        body: bytes = b"[1]",
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        limit: int = 1 << 24,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sends a request over a connection of its own, which takes `limit` bytes unread."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=limit)
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return reader, writer

    async def ask(
        self,
        path: str = "/endpoints/echo/invocations",
        body: bytes = b"[1]",
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
    ) -> HttpAnswer:
        reader, writer = await self.open(path, body, method=method, headers=headers)
        async with asyncio.timeout(60):
            data = await reader.read()
        writer.close()
        return whole(data)

    async def told(self, path: str) -> Any:
        return (await self.ask(path, b"", method="GET")).json

    async def wait_serving(self, *names: str, endpoint: str = "echo") -> None:
        """Until exactly these regions are used for the endpoint."""

        async def serving() -> bool:
            known = (await self.told("/penstock/v1/regions"))["regions"]
            return {
                one["region"]
                for one in known
                if endpoint in one["endpoints"] and one["health"] in ("serving", "slow-start")
            } == set(names)

        await until(serving, f"{endpoint} served by {names}")


def whole(data: bytes) -> HttpAnswer:
    """An answer, its chunks joined; one that was cut raises."""
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in lines[1:]}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            count = int(size, 16)
            if not count:
                break
            body, rest = body + rest[:count], rest[count + 2 :]
    else:
        body = rest
        assert len(body) == int(headers.get("content-length", len(body))), "an answer was cut"
    return HttpAnswer(int(lines[0].split(" ")[1]), headers, body)


@asynccontextmanager
async def site(
    tmp_path: Path,
    *names: str,
    regions: list[ScriptedRegion] | None = None,
    more: dict[str, dict[str, Any]] | None = None,
    limits: LimitConfig = LIMITS,
    wait: bool = True,
    auth: bool = False,
    telemetry: TelemetryConfig | None = None,
    **said: Any,
) -> AsyncIterator[OrchestratorSite]:
    """`more`: of a region in the file; `said`: of the file itself."""
    there = regions or [ScriptedRegion(name) for name in names]
    for region in there:
        await region.start()
    listed = [{"name": one.name, "url": one.url} | (more or {}).get(one.name, {}) for one in there]
    file = tmp_path / "regions.yaml"
    file.write_text(yaml.safe_dump({"regions": listed} | said))
    config = ServerConfig(
        state_dir=tmp_path / "orchestrator",
        listen=ListenConfig(port=0, auth=auth),
        limits=limits,
        telemetry=telemetry or TelemetryConfig(),
    )
    served = Orchestrator(config, read_regions(file))
    url = await served.start()
    made = OrchestratorSite(served, int(url.rpartition(":")[2]), {one.name: one for one in there})
    try:
        if wait:
            await made.wait_serving(*(one.name for one in there))
        yield made
    finally:
        await served.stop()
        for region in there:
            await region.stop()
