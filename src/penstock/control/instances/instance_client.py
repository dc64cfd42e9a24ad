"""The control plane's end of a connection to an instance: calls and events, as frames.

Inference requests never use this connection. There is one per instance. Many calls may be under way
at once, each with its own time limit. When the connection breaks, every call ends with
`instance-gone`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import orjson

from penstock.errors import NotNowError, PenstockError, from_dict
from penstock.fleet.identity.dial import Tls, dial, no_tls
from penstock.wire import frames

Json = dict[str, Any]

_CONNECT_S_MAX: Final = 10.0
#: Time limit for the answer of a host of target models, in s; it answers such questions at once.
ANSWER_S: Final = 5.0


class InstanceClient(asyncio.Protocol):
    """Make one with `connect`; `on_close` is called once, also after `close`."""

    def __init__(
        self, instance_id: str, on_event: Callable[[Json], None], on_close: Callable[[], None]
    ) -> None:
        self.instance_id = instance_id
        self._on_event = on_event
        self._on_close = on_close
        self._decoder = frames.FrameDecoder(frames.FROM_INSTANCE)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, asyncio.Future[Json]] = {}
        self._ended = asyncio.Event()
        self._ident = 0

    @classmethod
    async def connect(
        cls,
        instance_id: str,
        address: str,
        *,
        on_event: Callable[[Json], None],
        on_close: Callable[[], None],
        tls: Tls = no_tls,
    ) -> InstanceClient:
        """Raises `NotNowError` (`instance-unreachable`), and what `dial` raises."""
        client = cls(instance_id, on_event, on_close)
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                await dial(instance_id, address, client, tls=tls)
        except (OSError, TimeoutError) as error:
            raise NotNowError(
                "instance-unreachable",
                f"instance {instance_id} can't be reached at {address}: {error}",
            ) from error
        return client

    async def call(self, op: Mapping[str, Any], *, timeout_s: float) -> Json:
        """The reply to one CONTROL frame.

        Raises the error that the instance answered; `NotNowError` with `instance-gone` if the
        connection breaks, or with `instance-silent` if no answer comes in time.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise self._gone()
        self._ident += 1
        ident = self._ident
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._calls[ident] = future
        transport.write(frames.encode(frames.CONTROL, ident, orjson.dumps(op)))
        try:
            async with asyncio.timeout(timeout_s):
                reply = await future
        except TimeoutError:
            raise NotNowError(
                "instance-silent",
                f"instance {self.instance_id} has not answered {op.get('op')!r} within"
                f" {timeout_s:g} s",
            ) from None
        finally:
            self._calls.pop(ident, None)
        error = reply.get("error")
        # A good answer may report a model's error in this field.
        if error is not None and not reply.get("ok"):
            raise from_dict(error)
        return reply

    async def unload(self, copy: int, *, timeout_s: float) -> Json:
        return await self.call({"op": "unload", "copy": copy}, timeout_s=timeout_s)

    async def status(self, *, timeout_s: float) -> Json:
        return await self.call({"op": "status"}, timeout_s=timeout_s)

    async def explain(self, copy: int, *, timeout_s: float) -> Json:
        """The state of a copy's batcher, as JSON for people."""
        return await self.call({"op": "explain", "copy": copy}, timeout_s=timeout_s)

    async def wait_ended(self, *, timeout_s: float) -> None:
        """Returns once the instance has closed its end and all its messages were handled, or after
        `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), timeout_s)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop is no subclass of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except (PenstockError, orjson.JSONDecodeError):
            assert self._transport is not None
            self._transport.abort()  # the other end sent something that is no frame

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        for future in self._calls.values():
            if not future.done():
                future.set_exception(self._gone())
        self._calls.clear()
        self._ended.set()
        self._on_close()

    def _take(self, frame: frames.Frame) -> None:
        if frame.kind == frames.CONTROL_REPLY:
            future = self._calls.get(frame.ident)
            if future is not None and not future.done():
                future.set_result(orjson.loads(frame.payload))
        elif frame.kind == frames.EVENT:
            self._on_event(orjson.loads(frame.payload))

    def _gone(self) -> NotNowError:
        return NotNowError("instance-gone", f"the connection to {self.instance_id} is broken")
