"""The connection to one instance: frames out, frames in, and again when it broke.

All INVOKE frames of one turn of the loop leave in one write. Requests are known by an id of their
own on each connection; what was unanswered when a connection broke goes back to the dispatcher,
which retries it elsewhere. While the instance does not take what is sent, the link says that it is
not usable, so memory stays bounded. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any, Protocol, cast

import orjson

from penstock.errors import NotNowError
from penstock.gateway.invocation import Invocation
from penstock.wire import frames

log = logging.getLogger(__name__)

#: Two bodies of the largest size may wait; more means that the instance has stopped reading.
BUFFER_BYTES_MAX = 16 << 20
BUFFER_BYTES_RESUME = 4 << 20
#: Larger bodies are handed to the transport as they are instead of being copied into one write.
COPY_BYTES_MAX = 65_536
#: Head of a frame and head of its kind in one, as `frames` lays them out.
_pack_invoke = struct.Struct(frames.HEAD.format + frames.INVOKE_HEAD.format[1:]).pack
_unpack_reply = struct.Struct(frames.HEAD.format + frames.REPLY_HEAD.format[1:]).unpack_from
_REPLY_BYTES_MIN = frames.HEAD.size + frames.REPLY_HEAD.size
_new_tuple = tuple.__new__
RECONNECT_S_MIN = 0.02
RECONNECT_S_MAX = 1.0


class LinkEvents(Protocol):
    """Whom a link reports to: the dispatcher."""

    def on_reply(self, invocation: Invocation, reply: frames.Reply) -> None: ...

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None: ...

    def on_end(self, invocation: Invocation, reply: frames.Reply) -> None: ...

    def on_error(self, invocation: Invocation, reply: frames.Reply) -> None: ...

    def on_returned(self, invocation: Invocation, reason: str) -> None: ...

    def on_event(self, instance_id: str, event: dict[str, Any]) -> None: ...

    def on_usable(self, instance_id: str, *, fresh: bool) -> None:
        """Requests may be sent; `fresh`: on a new connection."""

    def on_unusable(self, instance_id: str, unanswered: list[Invocation]) -> None:
        """Requests may not be sent for now. `unanswered`: those that a lost connection had."""


class Link(Protocol):
    """What the dispatcher needs of a connection."""

    usable: bool

    def send(self, invocation: Invocation, copy: int, deadline_ms: int) -> None: ...

    def cancel(self, invocation: Invocation) -> None: ...

    async def open(self, timeout_s: float) -> None: ...

    async def close(self) -> None: ...


class _Decoder(frames.FrameDecoder):
    """Says as well whether the next byte begins a frame."""

    __slots__ = ()

    @property
    def between_frames(self) -> bool:
        return not self._rest and not self._chunks


class FrameLink(asyncio.Protocol):
    """A `Link` over a Unix or TCP socket. One object lives through all reconnections."""

    def __init__(self, instance_id: str, address: str, events: LinkEvents) -> None:
        """`address`: "unix:/path" or "tcp:host:port"."""
        self.instance_id = instance_id
        self.address = address
        self.usable = False
        self._events = events
        self._transport: asyncio.Transport | None = None
        self._decoder = _Decoder()
        self._pending: dict[int, Invocation] = {}
        self._ident = 0
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
            NotNowError: instance-unreachable, after `timeout_s`. The link goes on trying.
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
        """Ends the connection; what it had unanswered is reported. Idempotent."""
        self._closing = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if not self._opened.done():
            self._opened.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._drop_connection()

    async def _keep(self) -> None:
        wait_s = RECONNECT_S_MIN
        while True:
            try:
                await self._connect()
            except OSError as error:
                log.debug("instance %s: %s", self.instance_id, error)
                await asyncio.sleep(wait_s)
                wait_s = min(RECONNECT_S_MAX, wait_s * 2)
                continue
            wait_s = RECONNECT_S_MIN
            await self._lost.wait()
            await asyncio.sleep(wait_s)

    async def _connect(self) -> None:
        self._lost.clear()
        kind, _, rest = self.address.partition(":")
        if kind == "unix":
            await self._loop.create_unix_connection(lambda: self, rest)
        else:
            host, _, port = rest.rpartition(":")
            await self._loop.create_connection(lambda: self, host, int(port))

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX, low=BUFFER_BYTES_RESUME)
        self._decoder = _Decoder()
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
        self.usable = False
        unanswered = list(self._pending.values())
        self._pending.clear()
        self._lost.set()
        if not self._closing:
            level = logging.WARNING if unanswered else logging.INFO
            log.log(level, "lost instance %s, %d unanswered", self.instance_id, len(unanswered))
        self._events.on_unusable(self.instance_id, unanswered)

    def pause_writing(self) -> None:
        self.usable = False
        self._events.on_unusable(self.instance_id, [])

    def resume_writing(self) -> None:
        if self._transport is not None:
            self.usable = True
            self._events.on_usable(self.instance_id, fresh=False)

    def data_received(self, data: bytes) -> None:
        try:
            rest = self._take_replies(data) if self._decoder.between_frames else data
            if rest:
                for kind, flags, meta_bytes, ident, payload in self._decoder.feed(rest):
                    self._take(kind, flags, meta_bytes, ident, payload)
        except Exception:
            # Torn frames or a reply of an impossible form: nothing after it can be trusted.
            log.exception("instance %s sent what can't be read", self.instance_id)
            if self._transport is not None:
                self._transport.abort()

    def _take_replies(self, data: bytes) -> bytes:
        """Handles the whole REPLY frames that `data` begins with; returns the rest.

        Nearly all there is are whole replies: cutting them here, with one unpacking for both heads,
        takes a third of the time of the general decoder.
        """
        pending = self._pending
        on_reply = self._events.on_reply
        at, end = 0, len(data)
        while end - at >= _REPLY_BYTES_MIN:
            (size, kind, _, meta_bytes, ident, status, rows, lane, reason, queue_us, run_us) = (
                _unpack_reply(data, at)
            )
            stop = at + frames.HEAD.size + size
            body_at = at + _REPLY_BYTES_MIN + meta_bytes
            if kind != frames.REPLY or stop > end or body_at > stop:
                break
            invocation = pending.pop(ident, None)
            if invocation is not None:  # else cancelled meanwhile
                meta = data[at + _REPLY_BYTES_MIN : body_at]
                fields = (status, rows, lane, reason, queue_us, run_us, meta, data[body_at:stop])
                on_reply(invocation, _new_tuple(frames.Reply, fields))
            at = stop
        return data[at:] if at else data

    def _take(self, kind: int, flags: int, meta_bytes: int, ident: int, payload: bytes) -> None:
        if kind == frames.EVENT:
            self._events.on_event(self.instance_id, orjson.loads(payload))
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
        if kind not in (frames.REPLY, frames.ERROR, frames.END):
            raise frames.FrameError(f"an instance sent a frame of kind {kind}")
        # Decoded before the request is taken out: if that fails it is retried, not forgotten.
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
        """Sends a request to a copy; its answer is reported to the events object."""
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
        """The request is wanted by nobody any more; no answer to it will be reported."""
        if self._pending.pop(invocation.ident, None) is None or self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frames.encode(frames.CANCEL, invocation.ident))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is None or not out:
            return
        if self._out_large:
            self._out_large = False
            self._transport.writelines(out)
        else:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
