"""Connections to one server: kept for the next request, opened if none is free.

The server may close a kept connection just as it is used again. Then no part of an answer has
arrived, and a request that may be sent twice is sent once more over a new connection, before the
caller learns of it (RFC 9112, 9.3.1). Nothing else is ever sent again here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque

from penstock.clock import Clock
from penstock.wire.http_client import (
    LOST,
    UNREACHABLE,
    UNTRUSTED,
    AnswerReader,
    Headers,
    HttpAnswer,
    HttpClientConnection,
    HttpClientSpec,
    WholeAnswer,
    connect,
)


class HttpExchange:
    """One request and its answer, over one connection, or over two if the first was stale."""

    __slots__ = (
        "_head_only", "_paused", "_pool", "_reader", "_repeatable", "_request", "connection",
        "opening",
    )  # fmt: skip

    def __init__(
        self,
        pool: HttpPool,
        reader: AnswerReader,
        request: bytes,
        *,
        head_only: bool,
        repeatable: bool,
    ) -> None:
        self._pool = pool
        self._reader: AnswerReader | None = reader
        self._request = request
        self._head_only = head_only
        self._repeatable = repeatable
        self._paused = False
        self.connection: HttpClientConnection | None = None
        #: opens a connection that only this exchange can use
        self.opening: asyncio.Task[None] | None = None

    @property
    def cancelled(self) -> bool:
        return self._reader is None

    def begin(self, connection: HttpClientConnection) -> None:
        self.connection = connection
        connection.ask(self, self._request, head_only=self._head_only)
        if self._paused:
            connection.pause()

    def cancel(self) -> None:
        """The caller gets no more of it, and the server stops. Idempotent."""
        self._reader = None
        if self.opening is not None:
            self.opening.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()

    def pause(self) -> None:
        """Stops reading the answer for now; also works before it is connected."""
        self._paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        self._paused = False
        if self.connection is not None:
            self.connection.resume()

    # AnswerReader, for the connection

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        if self._reader is not None:
            self._reader.on_head(status, headers, length)

    def on_body(self, data: bytes) -> None:
        if self._reader is not None:
            self._reader.on_body(data)

    def on_end(self) -> None:
        self.connection = None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.on_end()

    def on_lost(self, reason: str, detail: str) -> None:
        connection, self.connection = self.connection, None
        stale = connection is not None and connection.used and not connection.answered_bytes
        if stale and self._repeatable and self._reader is not None:
            self._repeatable = False
            self._pool.open_for(self)
            return
        self.fail(reason, detail)

    def fail(self, reason: str, detail: str) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.on_lost(reason, detail)


class HttpPool:
    """The connections to one server."""

    def __init__(self, spec: HttpClientSpec, clock: Clock) -> None:
        self._spec = spec
        self._monotonic = clock.monotonic
        self._idle: deque[HttpClientConnection] = deque()  #: the most recently used is last
        self._open: set[HttpClientConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()

    def ask(
        self,
        reader: AnswerReader,
        request: bytes,
        *,
        head_only: bool = False,
        repeatable: bool = True,
    ) -> HttpExchange:
        """Sends a request; `reader` is called from later callbacks only.

        Args:
            repeatable: whether it may be computed twice. If not, it is sent over a new connection.
        """
        exchange = HttpExchange(self, reader, request, head_only=head_only, repeatable=repeatable)
        if repeatable:
            while self._idle:
                connection = self._idle.pop()
                if not connection.ended:
                    exchange.begin(connection)
                    return exchange
        self.open_for(exchange)
        return exchange

    async def fetch(self, request: bytes, *, timeout_s: float) -> HttpAnswer | None:
        """Sends a request that may be computed twice; returns its answer as `WholeAnswer` does.

        Raises TimeoutError. An answer that came while the event loop was blocked came in time.
        """
        answered: asyncio.Future[HttpAnswer | None] = asyncio.get_running_loop().create_future()
        exchange = self.ask(WholeAnswer(answered.set_result), request)
        try:
            await asyncio.wait([answered], timeout=timeout_s)
            if not answered.done():
                raise TimeoutError
            return answered.result()
        finally:
            exchange.cancel()

    def open_for(self, exchange: HttpExchange) -> None:
        """Opens a connection for an exchange, and reports a failure to it."""
        task = asyncio.get_running_loop().create_task(self._connect(exchange))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        if not self._spec.idle_max:
            exchange.opening = task

    async def _connect(self, exchange: HttpExchange) -> None:
        try:
            connection = await connect(self._spec, self._freed)
        except ssl.SSLCertVerificationError as error:
            exchange.fail(UNTRUSTED, error.verify_message)
            return
        except OSError as error:
            exchange.fail(UNREACHABLE, str(error) or "no answer in time")
            return
        if connection.ended:
            exchange.fail(LOST, "the connection ended at once")
            return
        self._open.add(connection)
        if exchange.cancelled:
            self._freed(connection)
        else:
            exchange.begin(connection)

    def _freed(self, connection: HttpClientConnection) -> None:
        if connection.ended:
            self._open.discard(connection)
            if connection in self._idle:
                self._idle.remove(connection)
            return
        connection.idle_since = self._monotonic()
        self._idle.append(connection)
        if len(self._idle) > self._spec.idle_max:
            self._idle.popleft().abort()

    def tidy(self) -> None:
        """Closes connections that were idle for long. Call it every few seconds."""
        before = self._monotonic() - self._spec.idle_s_max
        while self._idle and self._idle[0].idle_since < before:
            self._idle.popleft().abort()

    async def close(self) -> None:
        """Ends all connections; requests in progress get `on_lost`."""
        for task in list(self._opening):
            task.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)
