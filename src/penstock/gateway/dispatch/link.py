"""The connection to one instance: frames out and in, and reconnecting. It decides nothing.

All INVOKE frames of one turn of the loop leave in one write. Each request has an id of its own on a
connection. When a connection breaks, its unanswered requests go back to the dispatcher, which
retries them elsewhere.

While the instance does not read, the link is paused, which only means "not now". Requests sent
meanwhile wait here. They leave in order with the time that they then have left, and disappear if
they are cancelled before. Nothing is lost, and the transport's buffer stays bounded.

Bytes that are no frame end the connection. So does a frame that is never completed: its head was
damaged, and waiting for the rest would block the link (`wire/frames.py`).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterable
from typing import Any, Protocol, cast

import orjson

from penstock.core.backoff import Backoff
from penstock.errors import NotNowError, PenstockError
from penstock.fleet.identity.dial import Tls, dial, no_tls
from penstock.gateway.dispatch.invocation import SENT, AnswerEvents, Invocation, Link
from penstock.wire import frames
from penstock.wire.frames import LOOK_S, StallWatch

log = logging.getLogger(__name__)

#: Two bodies of the usual largest size. If more is buffered, the instance reads too slowly.
BUFFER_BYTES_MAX = 16 << 20
BUFFER_BYTES_RESUME = 4 << 20
#: Larger bodies are passed to the transport as they are, not copied into one write.
COPY_BYTES_MAX = 65_536
#: The head of a frame and the head of its kind together, as `frames` defines them.
_pack_invoke = struct.Struct(frames.HEAD.format + frames.INVOKE_HEAD.format[1:]).pack
_unpack_reply = struct.Struct(frames.HEAD.format + frames.REPLY_HEAD.format[1:]).unpack_from
_REPLY_BYTES_MIN = frames.HEAD.size + frames.REPLY_HEAD.size
_new_tuple = tuple.__new__
_RECONNECT = Backoff(0.02, 1.0)
_WELL_S = 1.0  #: a connection that lasted at least this long did not fail


class LinkEvents(AnswerEvents, Protocol):
    """The receiver of a link's reports: the dispatcher."""

    def on_error(self, invocation: Invocation, reply: frames.Reply) -> None: ...

    def on_event(self, instance_id: str, event: dict[str, Any]) -> None: ...

    def on_counts(self, instance_id: str, counts: Iterable[tuple[int, int]]) -> None:
        """Changed numbers of requests that copies have in flight from other gateways."""

    def on_usable(self, instance_id: str, *, fresh: bool) -> None:
        """Requests may be sent; `fresh`: the connection is new."""

    def on_unusable(self, instance_id: str, unanswered: list[Invocation]) -> None:
        """The connection is lost. `unanswered`: the requests on it."""

    def on_paused(self, instance_id: str, paused: bool) -> None:
        """The instance does not read, so requests wait; or it reads again."""


class InstanceLink(Link, Protocol):
    """The connection to an instance as the dispatcher uses it."""

    usable: bool
    heard: int  #: number of messages that the instance has sent

    @property
    def paused(self) -> bool:
        """Requests wait here until the instance reads again."""

    def take_back(self, copy: int) -> list[Invocation]:
        """Takes back the requests that a copy has not begun to answer, and returns them."""

    def tell(self, call: dict[str, Any]) -> None: ...

    async def open(self, timeout_s: float) -> None: ...

    async def close(self) -> None: ...


class FrameLink(asyncio.Protocol):
    """An `InstanceLink` over a Unix socket, TCP or TLS. It lasts through all reconnections."""

    def __init__(
        self, instance_id: str, address: str, events: LinkEvents, *, tls: Tls = no_tls
    ) -> None:
        """`address`: "unix:/path", "tcp:host:port" or "tls:host:port"; `tls` gives the TLS
        context."""
        self.instance_id = instance_id
        self.address = address
        self.usable = False
        self.heard = 0
        self._events = events
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._decoder = frames.FrameDecoder(frames.FROM_INSTANCE)
        self._stall = StallWatch(self._decoder)
        #: a timer that runs while a frame is incomplete
        self._looking: asyncio.TimerHandle | None = None
        self._pending: dict[int, Invocation] = {}
        self._ident = 0
        self._told: set[int] = set()  #: ids of control calls from `tell`, whose answers are ignored
        self._holding = False  #: it is paused, or requests from the pause are not sent yet
        self._paused = False
        #: number -> (request, copy, its deadline in s of the loop's clock)
        self._waiting: dict[int, tuple[Invocation, int, float]] = {}
        self._connected_at = 0.0
        self._out: list[bytes] = []
        self._out_large = False
        self._loop = asyncio.get_running_loop()
        self._keeper: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closing = False

    # Lifecycle

    async def open(self, timeout_s: float) -> None:
        """Returns once connected; from then on the link reconnects by itself.

        Raises:
            NotNowError: instance-unreachable, after `timeout_s`; instance-untrusted or
                instance-version, at once. The link keeps trying.
        """
        self._keeper = self._loop.create_task(self._keep())
        try:
            await asyncio.wait_for(asyncio.shield(self._opened), timeout_s)
        except TimeoutError:
            raise NotNowError(
                "instance-unreachable",
                f"Instance {self.instance_id} does not answer at {self.address}.",
                hint="Its log tells whether it started.",
                retry_after_s=1.0,
            ) from None

    async def close(self) -> None:
        """Ends the connection and reports its unanswered requests. Idempotent."""
        self._closing = True
        if not self._opened.done():
            self._opened.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._drop_connection()
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                await self._connect()
            except (OSError, PenstockError) as error:
                self._not_connected(error)
            else:
                await self._lost.wait()
                if self._loop.time() >= self._connected_at + _WELL_S:
                    failures = 0
            failures += 1  # a connection that breaks again at once counts as a failure
            await asyncio.sleep(_RECONNECT.pause_s(failures))

    async def _connect(self) -> None:
        self._lost.clear()
        await dial(self.instance_id, self.address, self, tls=self._tls)

    def _not_connected(self, error: OSError | PenstockError) -> None:
        # Something answers there, but it is not the right instance.
        refused = isinstance(error, PenstockError)
        log.log(logging.WARNING if refused else logging.DEBUG, "%s: %s", self.instance_id, error)
        if refused and not self._opened.done():
            self._opened.set_exception(error)

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._closing:
            self._transport.abort()
            self._transport = None
            return
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX, low=BUFFER_BYTES_RESUME)
        self._decoder = frames.FrameDecoder(frames.FROM_INSTANCE)
        self._stall = StallWatch(self._decoder)
        self._connected_at = self._loop.time()
        self._out = []
        self._out_large = False
        self.usable = True
        if not self._opened.done():
            self._opened.set_result(None)
        self._events.on_usable(self.instance_id, fresh=True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._drop_connection()

    def _drop_connection(self) -> None:
        self._transport = None
        self.usable = self._paused = self._holding = False
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        unanswered = [*self._pending.values(), *(waiting[0] for waiting in self._waiting.values())]
        self._pending.clear()
        self._told.clear()
        self._waiting.clear()
        self._lost.set()
        if not self._closing:
            level = logging.WARNING if unanswered else logging.INFO
            log.log(level, "lost instance %s, %d unanswered", self.instance_id, len(unanswered))
        self._events.on_unusable(self.instance_id, unanswered)

    def pause_writing(self) -> None:
        self._paused = self._holding = True
        self._events.on_paused(self.instance_id, True)

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._paused = False
            self._send_waiting()
            if not self._paused:
                self._events.on_paused(self.instance_id, False)

    def _send_waiting(self) -> None:
        """Sends requests that waited, oldest first, as many as the transport takes now."""
        transport, waiting = self._transport, self._waiting
        while waiting and transport is not None and not self._paused:
            if transport.get_write_buffer_size() >= BUFFER_BYTES_MAX:
                # By then the link is paused, or the transport has written.
                self._loop.call_soon(self._send_waiting)
                return
            invocation, copy, until = waiting.pop(next(iter(waiting)))
            left_ms = int((until - self._loop.time()) * 1000.0)
            self._holding = False
            self.send(invocation, copy, left_ms if left_ms > 0 else 1)
            self._holding = True
            self._flush()
        self._holding = self._paused

    @property
    def paused(self) -> bool:
        return self._holding

    def data_received(self, data: bytes) -> None:
        self.heard += 1
        decoder = self._decoder
        try:
            rest = self._take_replies(data) if decoder.between_frames else data
            if rest:
                decoder.ident_max = self._ident
                for kind, flags, meta_bytes, ident, payload in decoder.feed(rest):
                    self._take(kind, flags, meta_bytes, ident, payload)
                if self._looking is None and not decoder.between_frames:
                    self._looking = self._loop.call_later(LOOK_S, self._look)
        except Exception:
            # Torn frames or an impossible reply: nothing after it can be trusted.
            log.exception("instance %s sent what can't be read", self.instance_id)
            if self._transport is not None:
                self._transport.abort()

    def _look(self) -> None:
        """Checks whether the incomplete frame still grows."""
        self._looking = None
        if self._transport is None or self._decoder.between_frames:
            return
        if self._stall.look():
            log.error("instance %s does not end a frame that it began", self.instance_id)
            self._transport.abort()
        else:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def _take_replies(self, data: bytes) -> bytes:
        """Handles the complete REPLY frames at the beginning of `data`; returns the rest.

        Nearly all data are complete replies. Unpacking both heads at once takes a third of the time
        of the general decoder.
        """
        pending = self._pending
        on_reply = self._events.on_reply
        at, end = 0, len(data)
        while end - at >= _REPLY_BYTES_MIN:
            (
                size, kind, _, meta_bytes, ident,
                status, rows, lane, reason, queue_us, run_us, lane_us,
            ) = _unpack_reply(data, at)  # fmt: skip
            stop = at + frames.HEAD.size + size
            body_at = at + _REPLY_BYTES_MIN + meta_bytes
            if kind != frames.REPLY or stop > end or body_at > stop:
                break
            invocation = pending.pop(ident, None)
            if invocation is None:  # it was cancelled meanwhile, or never existed
                if ident > self._ident:
                    raise frames.FrameError(f"a reply to request {ident}, which was never sent")
            else:
                meta = data[at + _REPLY_BYTES_MIN : body_at]
                body = data[body_at:stop]
                fields = (status, rows, lane, reason, queue_us, run_us, lane_us, meta, body)
                on_reply(invocation, _new_tuple(frames.Reply, fields))
            at = stop
        return data[at:] if at else data

    def _take(self, kind: int, flags: int, meta_bytes: int, ident: int, payload: bytes) -> None:
        if kind == frames.EVENT:
            self._events.on_event(self.instance_id, orjson.loads(payload))
            return
        if kind == frames.COUNTS:
            self._events.on_counts(self.instance_id, frames.decode_counts(payload))
            return
        if kind == frames.CHUNK:
            invocation = self._pending.get(ident)
            if invocation is not None:
                meta = payload[:meta_bytes] if flags & frames.FIRST else None
                self._events.on_chunk(invocation, payload[meta_bytes:], meta)
            return
        if kind == frames.RETURNED:
            invocation = self._pending.pop(ident, None)
            if invocation is not None:
                self._events.on_returned(invocation, payload.decode("utf-8", "replace"))
            return
        if kind == frames.CONTROL_REPLY and ident in self._told:
            self._told.discard(ident)
            return  # an answer to `tell`: nobody waits for it
        if kind not in (frames.REPLY, frames.ERROR, frames.END):
            raise frames.FrameError(f"an instance sent a frame of kind {kind}")
        # Decode before the request is removed: if decoding fails, it is retried, not forgotten.
        reply = frames.decode_reply(payload, meta_bytes)
        invocation = self._pending.pop(ident, None)
        if invocation is not None:
            if kind == frames.REPLY:
                self._events.on_reply(invocation, reply)
            elif kind == frames.END:
                self._events.on_end(invocation, reply)
            else:
                self._events.on_error(invocation, reply)

    # What the dispatcher calls

    def send(self, invocation: Invocation, copy: int, deadline_ms: int) -> None:
        """Sends a request to a copy; the answer goes to the events object."""
        if self._holding:
            until = self._loop.time() + deadline_ms * 1e-3
            self._waiting[invocation.number] = (invocation, copy, until)
            return
        self._ident = ident = self._ident + 1
        invocation.ident = ident
        self._pending[ident] = invocation
        body = invocation.body
        meta = invocation.meta
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        meta_bytes = len(meta)
        size = 9 + meta_bytes + len(body)
        flags = frames.ALONE if invocation.past.alone else 0
        head = _pack_invoke(
            size, frames.INVOKE, flags, meta_bytes, ident, copy, deadline_ms, invocation.priority
        )
        if size <= COPY_BYTES_MAX:
            out.append(head + meta + body)
        else:
            out.append(head + meta)
            out.append(body)
            self._out_large = True

    def cancel(self, invocation: Invocation) -> None:
        """Nobody waits for the request any more; its answer will not be reported."""
        if self._waiting.pop(invocation.number, None) is not None:
            return  # it was never sent
        ident = invocation.ident
        if self._pending.pop(ident, None) is None or self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frames.encode(frames.CANCEL, ident))

    def pace(self, invocation: Invocation, *, waits: bool) -> None:
        ident = invocation.ident
        if self._transport is None or self._pending.get(ident) is not invocation:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frames.encode(frames.PACE, ident, flags=frames.WAIT if waits else 0))

    def take_back(self, copy: int) -> list[Invocation]:
        """Cancels the requests that a copy has not begun to answer; returns them, oldest first."""
        sent = [*self._pending.values(), *(waiting[0] for waiting in self._waiting.values())]
        taken = [
            one
            for one in sent
            if one.state == SENT and one.copy is not None and one.copy.copy == copy
        ]
        for invocation in taken:
            self.cancel(invocation)
        return taken

    def tell(self, call: dict[str, Any]) -> None:
        """Sends a control call whose result nobody waits for. It is lost without a connection."""
        if self._transport is None:
            return
        self._ident += 1
        self._told.add(self._ident)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frames.encode(frames.CONTROL, self._ident, orjson.dumps(call)))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is None or not out:
            return
        if self._out_large:
            self._out_large = False
            self._transport.writelines(out)
        else:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
