"""A dispatcher and its real links on an event loop whose time is virtual; instances are the test's.

Everything of the gateway is the real code, `FrameLink` with its reconnecting included. Only the
socket is replaced: bytes written go to an `Instance`, bytes it sends go to `data_received`. Waiting
takes no time, so minutes of deadlines, stalls and reconnections pass in milliseconds.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from tests.kit.gateway import PREFIX, CountingRecorders

from penstock.config import LimitConfig
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation, Responder
from penstock.gateway.dispatch.link import FrameLink, LinkEvents
from penstock.gateway.dispatch.recording import Recorders
from penstock.gateway.request_id import RequestIds
from penstock.gateway.timers import LoopTimers
from penstock.wire import frames


class _JumpingSelector(selectors.SelectSelector):
    """Waits no time: the clock jumps to where the wait would have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing will ever happen: the test waits for ever"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop under virtual time; it is the dispatcher's clock as well."""

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)
        self.errors: list[dict[str, Any]] = []  #: exceptions that escaped a callback
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._virtual.now

    def monotonic(self) -> float:
        return self._virtual.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self._virtual.now


def run_virtual(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a test's coroutine; an exception that escapes a callback of the loop fails it."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
        loop.run_until_complete(asyncio.sleep(0))
        assert loop.errors == []
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class Transport:
    """What a link sees of its socket. `reading` False: the instance takes nothing."""

    def __init__(self, link: FrameLink, instance: VirtualInstance) -> None:
        self.link = link
        self.instance = instance
        self.reading = True
        self.open = True
        self.unread = bytearray()
        self._high = 64 << 10
        self._low = 16 << 10
        self._paused = False

    # the link's end

    def write(self, data: bytes) -> None:
        if not self.open:
            return
        if self.reading:
            asyncio.get_running_loop().call_soon(self.instance.take, self, bytes(data))
            return
        self.unread += data
        if len(self.unread) > self._high and not self._paused:
            self._paused = True
            self.link.pause_writing()

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def abort(self) -> None:
        if self.open:
            self.open = False
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return not self.open

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    # the instance's end

    def read(self, size: int) -> None:
        """The instance takes `size` of what waits."""
        data = bytes(self.unread[:size])
        del self.unread[:size]
        if data and self.open:
            self.instance.take(self, data)
        if self._paused and len(self.unread) <= self._low:
            self._paused = False
            self.link.resume_writing()

    def read_all(self) -> None:
        """And all that comes from now on."""
        self.reading = True
        while self.unread and self.reading:
            self.read(1 << 20)

    def send(self, data: bytes) -> None:
        if self.open and data:
            self.link.data_received(data)


class VirtualInstance:
    """The other end of links; `on_invoke` answers. By itself it keeps what it is sent."""

    def __init__(self, instance_id: str) -> None:
        self.instance_id = instance_id
        self.accepts = True
        self.reads = True  #: of new connections
        self.connections = 0
        self.transport: Transport | None = None
        self.invokes: list[tuple[int, frames.Invoke]] = []
        self.cancelled: list[int] = []
        self.on_invoke: Callable[[VirtualInstance, int, frames.Invoke], None] = lambda *_: None
        self._decoder = frames.FrameDecoder()

    def accept(self, link: FrameLink) -> None:
        if not self.accepts:
            raise ConnectionRefusedError("nobody listens")
        self.connections += 1
        self._decoder = frames.FrameDecoder()
        self.transport = Transport(link, self)
        self.transport.reading = self.reads
        link.connection_made(self.transport)  # type: ignore[arg-type]  # the part that it uses

    def take(self, transport: Transport, data: bytes) -> None:
        if transport is not self.transport:
            return
        for frame in self._decoder.feed(data):
            if frame.kind == frames.INVOKE:
                invoke = frames.decode_invoke(frame.payload, frame.meta_bytes)
                self.invokes.append((frame.ident, invoke))
                self.on_invoke(self, frame.ident, invoke)
            elif frame.kind == frames.CANCEL:
                self.cancelled.append(frame.ident)

    def send(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.send(data)

    def drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _VirtualLink(FrameLink):
    def __init__(
        self, instance_id: str, address: str, events: LinkEvents, peer: VirtualInstance
    ) -> None:
        super().__init__(instance_id, address, events)
        self._peer = peer

    async def _connect(self) -> None:
        self._lost.clear()
        self._peer.accept(self)


class Network:
    """One dispatcher and its instances `i1`, `i2`, …; make it on a running `VirtualLoop`."""

    def __init__(
        self,
        *copies: int,
        timeout_s: float = 60.0,
        stream_timeout_s: float = 480.0,
        recorders: Recorders | None = None,
    ) -> None:
        """`recorders`: the test's own; without them `counting` writes down what is told."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.instances = {f"i{copy}": VirtualInstance(f"i{copy}") for copy in copies}
        self.counting = CountingRecorders() if recorders is None else None
        self.dispatcher = Dispatcher(
            clock=loop,
            timers=LoopTimers(loop, loop),
            rng=random.Random(1),
            limits=LimitConfig(request_timeout_s=timeout_s, stream_timeout_s=stream_timeout_s),
            recorders=recorders or self.counting,
            ids=RequestIds(PREFIX),
            link_factory=lambda instance_id, address, events: _VirtualLink(
                instance_id, address, events, self.instances[instance_id]
            ),
        )

    async def connect(self) -> None:
        for instance_id in self.instances:
            await self.dispatcher.connect(instance_id, "virtual")

    def instance(self, copy: int) -> VirtualInstance:
        return self.instances[f"i{copy}"]

    def invoke(
        self,
        responder: Responder,
        body: bytes = b"body",
        *,
        deadline_s: float | None = None,
        prepare: Callable[[Invocation], None] = lambda _: None,
    ) -> Invocation:
        now = self.loop.monotonic()
        invocation = Invocation(
            "echo",
            b"[]",
            body,
            responder,
            received=now,
            deadline=None if deadline_s is None else now + deadline_s,
        )
        prepare(invocation)
        self.dispatcher.invoke(invocation)
        return invocation

    def outstanding(self) -> dict[int, int]:
        snapshot = self.dispatcher.snapshot()["endpoints"]["echo"]["router"]
        return {
            copy["copy"]: copy["outstanding"]
            for variant in snapshot["variants"]
            for copy in variant["copies"]
        }


def answer(instance: VirtualInstance, ident: int, invoke: frames.Invoke) -> None:
    """Sends the body back."""
    instance.send(frames.encode_reply(ident, batch_rows=1, run_us=50, body=invoke.body))
