"""Stand-ins for what surrounds a gateway: time, links, instances, doors and clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvloop
from tests.kit.timers import ManualTimers

from penstock.clock import ManualClock
from penstock.config import LimitConfig
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.errors import PenstockError
from penstock.gateway.dispatch.capture import Captures
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import SENT, Affinity, Invocation
from penstock.gateway.request_id import RequestIds
from penstock.wire import frames

PREFIX = "00000000-0000-4000-8000-"


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a test's coroutine on the loop that the server uses; a hang is an error."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main(), 30)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


class MemoryLink:
    """A link without a socket: `sent` is what the instance would have got."""

    def __init__(self, instance_id: str, address: str, events: Any) -> None:
        self.instance_id = instance_id
        self.events = events
        self.usable = False
        self.sent: list[tuple[Invocation, int, int]] = []  #: (invocation, copy, deadline_ms)
        self.cancelled: list[Invocation] = []
        self.paced: list[tuple[Invocation, bool]] = []
        self.told: list[dict[str, Any]] = []  #: calls whose outcome nobody waits for
        self.asked = 0  #: how often it was asked whether it lives
        self.heard = 0
        self.paused = False
        self.hangs = False  #: it does not say that it lives

    async def open(self, timeout_s: float) -> None:
        self.come_back()

    async def close(self) -> None:
        self.lose()

    def send(self, invocation: Invocation, copy: int, deadline_ms: int) -> None:
        assert self.usable, "sent over a link that can't take it"
        self.sent.append((invocation, copy, deadline_ms))

    def cancel(self, invocation: Invocation) -> None:
        self.cancelled.append(invocation)
        self.sent = [item for item in self.sent if item[0] is not invocation]

    def pace(self, invocation: Invocation, *, waits: bool) -> None:
        self.paced.append((invocation, waits))

    def tell(self, call: dict[str, Any]) -> None:
        assert self.usable, "told over a link that can't take it"
        if call == {"op": "ping"}:
            self.asked += 1
            self.heard += not self.hangs
        else:
            self.told.append(call)

    def take_back(self, copy: int) -> list[Invocation]:
        taken = [one for one, on, _ in self.sent if on == copy and one.state == SENT]
        for invocation in taken:
            self.cancel(invocation)
        return taken

    def come_back(self) -> None:
        self.usable = True
        self.events.on_usable(self.instance_id, fresh=True)

    def lose(self) -> None:
        self.usable = False
        unanswered, self.sent = [item[0] for item in self.sent], []
        self.events.on_unusable(self.instance_id, unanswered)

    def take(self) -> Invocation:
        return self.sent.pop(0)[0]

    def reply(self, body: bytes = b"answer") -> None:
        self.events.on_reply(self.take(), reply(body))

    def fail(self, error: PenstockError) -> None:
        self.events.on_error(self.take(), reply(orjson.dumps(error.to_dict())))

    def give_back(self, reason: str = "worker-died") -> None:
        self.events.on_returned(self.take(), reason)


def reply(body: bytes = b"answer", meta: bytes = b"") -> frames.Reply:
    full = frames.BATCH_REASON_CODES["batch-full"]
    return frames.Reply(200, 2, 0, full, 300, 4000, 2000, meta, body)


class Recording:
    """A responder that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    @property
    def final(self) -> list[tuple[str, Any]]:
        return [entry for entry in self.told if entry[0] != "chunk"]

    def on_reply(self, invocation: Invocation, reply: frames.Reply) -> None:
        self.told.append(("reply", reply.body))

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        self.told.append(("chunk", chunk))

    def on_end(self, invocation: Invocation, reply: frames.Reply) -> None:
        self.told.append(("end", None))

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        self.told.append(("error", error.code))


class CountingRecorders:
    """Recorders that write down what they are told: (endpoint, variant, what, ...)."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def recorder(self, endpoint: str, variant: str, component: str = "", config: str = "") -> Any:
        names = (variant, component) if component else (variant,)
        return _CountingRecorder(self.told, endpoint, *names)


class _CountingRecorder:
    def __init__(self, told: list[tuple[Any, ...]], *who: str) -> None:
        self._told = told
        self._who = who

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self._told.append((*self._who, name, *args))


def routes(
    *copies: int,
    endpoint: str = "echo",
    variant: str = "AllTraffic",
    outstanding_max: int = 4,
    model: dict[str, object] | None = None,
) -> EndpointRoutes:
    """One variant; copy n lives on instance "i<n>"."""
    return EndpointRoutes(
        endpoint=endpoint,
        variants=(
            VariantRoutes(
                name=variant,
                weight=1.0,
                strategy=LEAST_OUTSTANDING_REQUESTS,
                copies=tuple(
                    CopyRoute(copy=copy, instance_id=f"i{copy}", outstanding_max=outstanding_max)
                    for copy in copies
                ),
                model=model or {},
            ),
        ),
    )


class Bench:
    """A dispatcher under a manual clock with links in memory."""

    def __init__(
        self,
        *copies: int,
        outstanding_max: int = 4,
        timeout_s: float = 60.0,
        stream_timeout_s: float = 480.0,
        zero_capacity: str = "refuse",
        shared: bool = False,
        captures: Captures | None = None,
        **limits: Any,
    ) -> None:
        """`zero_capacity`: most tests see by a refusal that no copy could take a request.

        `shared`: other gateways send to the same copies.
        """
        self.wanted: list[tuple[str, str, str, int]] = []  #: what was told of those that wait
        self.ready_in_s: float | None = None  #: what is known of the next start
        self.clock = ManualClock(monotonic_s=100.0)
        self.timers = ManualTimers(self.clock)
        self.links: dict[str, MemoryLink] = {}
        self.counting = CountingRecorders()
        self.dispatcher = Dispatcher(
            clock=self.clock,
            timers=self.timers,
            rng=random.Random(1),
            limits=LimitConfig(
                request_timeout_s=timeout_s,
                stream_timeout_s=stream_timeout_s,
                zero_capacity=zero_capacity,
                **limits,
            ),
            recorders=self.counting,
            ids=RequestIds(PREFIX),
            link_factory=self._link,
            on_waiting=lambda *waiting: self.wanted.append(waiting),
            ready_in_s=lambda *pool: self.ready_in_s,
            shared=shared,
            captures=captures,
        )
        for copy in copies:
            self.connect(f"i{copy}")
        self.dispatcher.publish(routes(*copies, outstanding_max=outstanding_max))

    def _link(self, instance_id: str, address: str, events: Any) -> MemoryLink:
        link = self.links[instance_id] = MemoryLink(instance_id, address, events)
        return link

    def connect(self, instance_id: str) -> MemoryLink:
        asyncio.run(self.dispatcher.connect(instance_id, "memory"))
        return self.links[instance_id]

    def link(self, copy: int) -> MemoryLink:
        return self.links[f"i{copy}"]

    def invoke(
        self,
        *,
        endpoint: str = "echo",
        variant: str | None = None,
        component: str | None = None,
        deadline_s: float | None = None,
        body: bytes = b"body",
        meta: bytes = b"[]",
        affinity: Affinity | None = None,
    ) -> tuple[Invocation, Recording]:
        now = self.clock.monotonic()
        recording = Recording()
        invocation = Invocation(
            endpoint,
            meta,
            body,
            recording,
            received=now,
            deadline=None if deadline_s is None else now + deadline_s,
            variant=variant,
        )
        invocation.affinity = affinity
        if component is not None:
            invocation.affinity = Affinity(component=component)
        self.dispatcher.invoke(invocation)
        return invocation, recording

    def outstanding(self) -> dict[int, int]:
        snapshot = self.dispatcher.snapshot()["endpoints"]["echo"]["router"]
        return {
            copy["copy"]: copy["outstanding"]
            for variant in snapshot["variants"]
            for copy in variant["copies"]
        }


class FakeInstance:
    """The instance's end of frames connections, on a Unix socket."""

    def __init__(self, path: str) -> None:
        self.address = f"unix:{path}"
        self._path = path
        self.cancelled: list[int] = []
        self.paced: list[tuple[int, bool]] = []  #: requests, and whether their answers are to wait
        self.invokes: list[frames.Invoke] = []
        self.flags: list[int] = []  #: of their frames
        self.connections: list[_InstanceConnection] = []
        #: what to do with an INVOKE; the default echoes
        self.on_invoke: Callable[[_InstanceConnection, int, frames.Invoke], None] = echo
        self._server: Any = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _InstanceConnection(self), self._path)

    def drop(self) -> None:
        """Cuts all connections, as a crash does."""
        for connection in self.connections:
            connection.transport.abort()

    async def stop(self) -> None:
        self._server.close()
        self.drop()
        await asyncio.sleep(0)


class _InstanceConnection(asyncio.Protocol):
    def __init__(self, instance: FakeInstance) -> None:
        self._instance = instance
        self._decoder = frames.FrameDecoder()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._instance.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._instance.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if frame.kind == frames.INVOKE:
                invoke = frames.decode_invoke(frame.payload, frame.meta_bytes)
                self._instance.flags.append(frame.flags)
                self._instance.invokes.append(invoke)
                self._instance.on_invoke(self, frame.ident, invoke)
            elif frame.kind == frames.CANCEL:
                self._instance.cancelled.append(frame.ident)
            elif frame.kind == frames.PACE:
                self._instance.paced.append((frame.ident, bool(frame.flags & frames.WAIT)))

    def write(self, data: bytes) -> None:
        self.transport.write(data)


def echo(connection: _InstanceConnection, ident: int, invoke: frames.Invoke) -> None:
    """The body, with the content type and the custom attributes of the request."""
    asked = frames.decode_request_meta(invoke.meta)
    meta = frames.encode_reply_meta(
        frames.ReplyMeta(asked.content_type, asked.custom_attributes, asked.json_header_bytes)
    )
    connection.write(
        frames.encode_reply(ident, batch_rows=1, run_us=50, meta=meta, body=invoke.body)
    )


def fail_with(error: PenstockError) -> Callable[[_InstanceConnection, int, frames.Invoke], None]:
    def answer(connection: _InstanceConnection, ident: int, invoke: frames.Invoke) -> None:
        body = orjson.dumps(error.to_dict())
        connection.write(frames.encode_reply(ident, kind=frames.ERROR, body=body))

    return answer


def silent(connection: _InstanceConnection, ident: int, invoke: frames.Invoke) -> None:
    """Never answers."""
