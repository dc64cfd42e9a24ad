"""Steps over HTTP/1.1: other endpoints of this platform, and any service that speaks JSON.

The answer is one JSON value, or a stream of server-sent events whose pieces go on as they arrive.
One connection for each call: to break a call off is to close it, which cancels it at the far end.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httptools
import orjson

from penstock.errors import InternalError, ModelError, NotNowError, PenstockError
from penstock.runtimes.pipeline.calls import ANSWER_BYTES_MAX, Hear, Whole, failed_answer
from penstock.runtimes.pipeline.model_step import without_arrays
from penstock.runtimes.pipeline.platform import PlatformAt

_DONE: Final = b"[DONE]"

#: What a JSON value of an answer says; None: nothing that counts.
Reading = Callable[[Any], Any]


class Readings:
    """How one operation's answers are read: `piece` of a stream, `whole` of an answer, and `joined`
    makes of a stream's pieces what `whole` would have made of the answer."""

    def __init__(self, piece: Reading, whole: Reading, joined: Callable[[list[Any]], Any]) -> None:
        self.piece = piece
        self.whole = whole
        self.joined = joined


class HttpWay:
    def __init__(
        self,
        name: str,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        readings: Readings | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._name = name
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if tls else 80)
        self._tls = tls
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {path} HTTP/1.1", f"host: {parts.netloc.rpartition('@')[2]}"]
        lines.append("connection: close")
        lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
        if method != "GET":
            lines.append("content-type: application/json")
        self._head = "\r\n".join(lines)
        self._method = method
        self._stream = stream
        self._readings = readings or _PLAIN

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> _HttpCall:
        body = b""
        if self._method != "GET":
            body = orjson.dumps(self._body(inputs), default=without_arrays)
        head = f"{self._head}\r\ncontent-length: {len(body)}"
        for key, value in hear.trace_headers:
            head += f"\r\n{key}: {value}"
        if left_s is not None:
            head += f"\r\nx-penstock-deadline-ms: {max(1, int(left_s * 1000))}"
        request = head.encode("latin-1", "replace") + b"\r\n\r\n" + body
        call = _HttpCall(self._name, request, hear, self._readings)
        call.open(self._host, self._port, self._tls)
        return call

    def _body(self, inputs: Any) -> Any:
        if self._stream and isinstance(inputs, dict):
            return {**inputs, "stream": True}
        return inputs

    async def close(self) -> None:
        return


class _HttpCall(Whole, asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, name: str, request: bytes, hear: Hear, readings: Readings) -> None:
        self._name = name
        self._request = request
        self._hear = hear
        self._readings = readings
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._over = self._held = False
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._status = 0
        self._events = False  #: the body is a stream of server-sent events
        self._rest = bytearray()  #: of a body, or of an event that is not whole
        self._pieces: list[Any] = []
        self._searched = 0
        self._taken = 0  #: bytes of events so far

    def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        self._opening = loop.create_task(self._connect(loop, host, port, tls))

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, host: str, port: int, tls: ssl.SSLContext | None
    ) -> None:
        try:
            await loop.create_connection(lambda: self, host, port, ssl=tls)
        except OSError as error:  # those of TLS, too
            self._fail(
                NotNowError(
                    "step-unavailable", f"{self._name}: nobody answers at {host}:{port}: {error}"
                )
            )

    def stop(self) -> None:
        self._over = True
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    def hold(self, held: bool) -> None:
        self._held = held
        if self._transport is None:
            return
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._over:
            transport.abort()
            return
        self.hold(self._held)
        transport.write(self._request)
        self._request = b""

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ModelError("step-failed", f"{self._name}: the answer is not HTTP: {error}"))

    def eof_received(self) -> None:
        framed = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if self._status and not framed:
            self.on_message_complete()  # so HTTP/1.0 marks the end of a body

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(
            ModelError("step-failed", f"{self._name}: the connection broke before the answer ended")
        )

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        kind = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        self._events = kind == b"text/event-stream" and self._status < 300

    def on_body(self, data: bytes) -> None:
        if self._over:
            return
        self._rest += data
        if len(self._rest) > ANSWER_BYTES_MAX:
            self._fail(
                ModelError("step-failed", f"{self._name}: more than {ANSWER_BYTES_MAX} bytes")
            )
        elif self._events:
            self._guarded(self._read_events)

    def on_message_complete(self) -> None:
        if self._over or self._status < 200:
            return
        self._guarded(self._complete)

    # what it says

    def _guarded(self, read: Callable[[], None]) -> None:
        try:
            read()
        except PenstockError as error:
            self._fail(error)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            words = f"{self._name}: the answer can't be read: {type(error).__name__}: {error}"
            self._fail(ModelError("step-failed", words[:500]))

    def _complete(self) -> None:
        if self._events:
            self._rest += b"\n\n"  # a stream may end without the empty line
            self._read_events()
            if not self._over:
                self._finish(self._readings.joined(self._pieces))
            return
        body = bytes(self._rest)
        if self._status >= 300:
            raise self._refusal(body)
        answer = self._readings.whole(orjson.loads(body) if body else None)
        self._hear.piece(answer)
        if not self._over:
            self._finish(answer)

    def _read_events(self) -> None:
        """Takes whole events out of `_rest`."""
        if b"\r" in self._rest:
            self._rest = bytearray(bytes(self._rest).replace(b"\r\n", b"\n"))
        while not self._over:
            end = self._rest.find(b"\n\n", max(0, self._searched - 1))
            if end < 0:
                self._searched = len(self._rest)
                return
            block = bytes(self._rest[:end])
            del self._rest[: end + 2]
            self._searched = 0
            self._taken += end
            if self._taken > ANSWER_BYTES_MAX:
                raise ModelError("step-failed", f"{self._name}: more than {ANSWER_BYTES_MAX} bytes")
            lines = [line[5:].lstrip() for line in block.split(b"\n") if line[:5] == b"data:"]
            if lines and lines != [_DONE]:
                self._take(orjson.loads(b"\n".join(lines)))

    def _take(self, value: Any) -> None:
        if isinstance(value, dict) and value.get("error"):
            raise ModelError("stream-broken", f"{self._name}: {_message(value)}")
        piece = self._readings.piece(value)
        if piece is not None:
            self._pieces.append(piece)
            self._hear.piece(piece)

    def _refusal(self, body: bytes) -> PenstockError:
        try:
            words = _message(orjson.loads(body))
        except ValueError:
            words = body[:300].decode("utf-8", "replace")
        retry = self._headers.get(b"retry-after", b"")
        return failed_answer(
            self._status, f"{self._name}: {words}", float(retry) if retry.isdigit() else None
        )

    def _finish(self, result: Any) -> None:
        self._over = True
        if self._transport is not None:
            self._transport.close()
        self._hear.done(result)

    def _fail(self, error: PenstockError) -> None:
        if self._over:
            return
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        self._hear.failed(error)


def _message(value: Any) -> str:
    """The words of an error, in the shape of any door of ours or of OpenAI's."""
    if isinstance(value, dict):
        inner = value.get("error", value)
        if isinstance(inner, dict):
            found = inner.get("message") or inner.get("Message") or inner.get("OriginalMessage")
            return str(found or inner)
        return str(inner)
    return str(value)


# the operations of this platform's endpoints


def _same(value: Any) -> Any:
    return value


def _chat_piece(value: Any) -> Any:
    choices = value.get("choices")
    if not choices:
        return None  # the chunk that tells the usage
    return _told(choices[0], choices[0].get("delta", {}).get("content"))


def _text_piece(value: Any) -> Any:
    choices = value.get("choices")
    return _told(choices[0], choices[0].get("text")) if choices else None


def _told(choice: dict[str, Any], text: str | None) -> dict[str, Any] | None:
    finish = choice.get("finish_reason")
    if not text and finish is None:
        return None
    return {"text": text or "", "finish_reason": finish}


def _joined_text(pieces: list[Any]) -> Any:
    finish = pieces[-1]["finish_reason"] if pieces else None
    return {"text": "".join(piece["text"] for piece in pieces), "finish_reason": finish}


def _chat_whole(value: Any) -> Any:
    choice = value["choices"][0]
    return {"text": choice["message"]["content"], "finish_reason": choice.get("finish_reason")}


def _text_whole(value: Any) -> Any:
    choice = value["choices"][0]
    return {"text": choice["text"], "finish_reason": choice.get("finish_reason")}


def _vectors(value: Any) -> Any:
    return {"embeddings": [each["embedding"] for each in value["data"]]}


_PLAIN: Final = Readings(_same, _same, list)
_OPERATIONS: Final = {
    "invoke": ("invocations", _PLAIN),
    "chat": ("openai/v1/chat/completions", Readings(_chat_piece, _chat_whole, _joined_text)),
    "completions": ("openai/v1/completions", Readings(_text_piece, _text_whole, _joined_text)),
    "embeddings": ("openai/v1/embeddings", Readings(_same, _vectors, list)),
}


def endpoint_way(
    name: str, platform: PlatformAt, endpoint: str, operation: str, *, stream: bool
) -> HttpWay:
    """An endpoint of this platform, asked as any client asks it. Raises InternalError."""
    if operation not in _OPERATIONS:
        raise InternalError("unknown-operation", f"no operation {operation!r}")
    path, readings = _OPERATIONS[operation]
    headers = {"authorization": f"Bearer {platform.key}"} if platform.key else {}
    url = f"{platform.url}/endpoints/{quote(endpoint, safe='')}/{path}"
    return HttpWay(name, url, headers=headers, stream=stream, readings=readings, tls=platform.tls)
