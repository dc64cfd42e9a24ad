"""Steps over HTTP/1.1: other endpoints of this platform, and any service that speaks JSON.

The answer is one JSON value, or a stream of server-sent events whose pieces are passed on as they
arrive. Each call has its own connection: closing it cancels the call on the server.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import orjson

from penstock.clock import Clock
from penstock.errors import InternalError, ModelError, NotNowError, PenstockError
from penstock.runtimes.pipeline.calls import ANSWER_BYTES_MAX, Hear, Way, Whole, failed_answer
from penstock.runtimes.pipeline.model_step import without_arrays
from penstock.runtimes.pipeline.platform import PlatformAt
from penstock.wire.http_client import (
    UNREACHABLE,
    UNTRUSTED,
    Headers,
    HttpClientSpec,
    request_of,
)
from penstock.wire.http_pool import HttpExchange, HttpPool
from penstock.wire.server_sent_events import EventSplitter

_DONE: Final = b"[DONE]"

#: The content of an answer's JSON value; None: it has none.
Reading = Callable[[Any], Any]


class Readings(NamedTuple):
    """How to read one operation's answers."""

    piece: Reading  #: of a stream
    whole: Reading  #: of an answer
    joined: Callable[[list[Any]], Any]  #: from a stream's pieces what `whole` would return


class HttpWay(Way):
    def __init__(
        self,
        name: str,
        url: str,
        clock: Clock,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        readings: Readings | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        spec = HttpClientSpec(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or (443 if tls else 80),
            tls=tls,
            body_bytes_max=ANSWER_BYTES_MAX,
        )
        self._name = name
        self._where = f"{spec.host}:{spec.port}"
        self._pool = HttpPool(spec, clock)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"host": parts.netloc.rpartition("@")[2], "connection": "close"}
        self._headers |= headers or {}
        if method != "GET":
            self._headers["content-type"] = "application/json"
        self._method = method
        self._stream = stream
        self._readings = readings or _PLAIN

    def begin(self, inputs: Any, hear: Hear, *, left_s: float | None) -> _HttpCall:
        body = b""
        if self._method != "GET":
            body = orjson.dumps(self._body(inputs), default=without_arrays)
        headers = self._headers | dict(hear.trace_headers)
        if left_s is not None:
            headers["x-penstock-deadline-ms"] = str(max(1, int(left_s * 1000)))
        call = _HttpCall(self._name, self._where, hear, self._readings)
        request = request_of(self._method, self._path, headers, body)
        call.exchange = self._pool.ask(call, request, repeatable=False)
        return call

    def _body(self, inputs: Any) -> Any:
        if self._stream and isinstance(inputs, dict):
            return {**inputs, "stream": True}
        return inputs


class _HttpCall(Whole):
    """One request; the `AnswerReader` of its answer."""

    def __init__(self, name: str, where: str, hear: Hear, readings: Readings) -> None:
        self._name = name
        self._where = where
        self._hear = hear
        self._readings = readings
        self.exchange: HttpExchange | None = None
        self._over = False
        self._status = 0
        self._retry_after = b""
        self._events: EventSplitter | None = None  #: set where the body is server-sent events
        self._body = bytearray()
        self._pieces: list[Any] = []

    def stop(self) -> None:
        self._over = True
        if self.exchange is not None:
            self.exchange.cancel()

    def hold(self, held: bool) -> None:
        if self.exchange is None:
            return
        if held:
            self.exchange.pause()
        else:
            self.exchange.resume()

    # AnswerReader

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        told = dict(headers)
        self._status = status
        self._retry_after = told.get(b"retry-after", b"")
        kind = told.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind == b"text/event-stream" and status < 300:
            self._events = EventSplitter(ANSWER_BYTES_MAX)

    def on_body(self, data: bytes) -> None:
        if self._events is None:
            self._body += data
        else:
            self._guarded(partial(self._read_events, self._events.feed(data)))

    def on_end(self) -> None:
        self._guarded(self._complete)

    def on_lost(self, reason: str, detail: str) -> None:
        if reason in (UNREACHABLE, UNTRUSTED):
            words = f"{self._name}: nobody answers at {self._where}: {detail}"
            self._fail(NotNowError("step-unavailable", words))
        else:
            self._fail(ModelError("step-failed", f"{self._name}: {detail}"))

    # Content of the answer

    def _guarded(self, read: Callable[[], None]) -> None:
        try:
            read()
        except PenstockError as error:
            self._fail(error)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            words = f"{self._name}: the answer can't be read: {type(error).__name__}: {error}"
            self._fail(ModelError("step-failed", words[:500]))

    def _complete(self) -> None:
        if self._events is not None:
            # A stream may end without the final empty line
            self._read_events([self._events.rest()])
            if not self._over:
                self._finish(self._readings.joined(self._pieces))
            return
        body = bytes(self._body)
        if self._status >= 300:
            raise self._refusal(body)
        answer = self._readings.whole(orjson.loads(body) if body else None)
        self._hear.piece(answer)
        if not self._over:
            self._finish(answer)

    def _read_events(self, events: list[bytes]) -> None:
        for event in events:
            if self._over:
                return
            lines = [line[5:].lstrip() for line in event.splitlines() if line[:5] == b"data:"]
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
        retry = self._retry_after
        return failed_answer(
            self._status, f"{self._name}: {words}", float(retry) if retry.isdigit() else None
        )

    def _finish(self, result: Any) -> None:
        self.stop()
        self._hear.done(result)

    def _fail(self, error: PenstockError) -> None:
        if not self._over:
            self.stop()
            self._hear.failed(error)


def _message(value: Any) -> str:
    """The message of an error, in the format of any of our front doors or of OpenAI's."""
    if isinstance(value, dict):
        inner = value.get("error", value)
        if isinstance(inner, dict):
            found = inner.get("message") or inner.get("Message") or inner.get("OriginalMessage")
            return str(found or inner)
        return str(inner)
    return str(value)


# The operations of this platform's endpoints


def _same(value: Any) -> Any:
    return value


def _texts(of_piece: Reading, of_whole: Reading) -> Readings:
    """Of an operation that answers with text: where a choice has it, in a stream and as a whole."""

    def piece(value: Any) -> Any:
        choices = value.get("choices")
        if not choices:
            return None  # the chunk with the usage
        text, finish = of_piece(choices[0]), choices[0].get("finish_reason")
        return {"text": text or "", "finish_reason": finish} if text or finish is not None else None

    def whole(value: Any) -> Any:
        choice = value["choices"][0]
        return {"text": of_whole(choice), "finish_reason": choice.get("finish_reason")}

    def joined(pieces: list[Any]) -> Any:
        finish = pieces[-1]["finish_reason"] if pieces else None
        return {"text": "".join(piece["text"] for piece in pieces), "finish_reason": finish}

    return Readings(piece, whole, joined)


def _vectors(value: Any) -> Any:
    return {"embeddings": [each["embedding"] for each in value["data"]]}


_PLAIN: Final = Readings(_same, _same, list)
_CHAT: Final = _texts(
    lambda choice: choice.get("delta", {}).get("content"),
    lambda choice: choice["message"]["content"],
)
_COMPLETION: Final = _texts(lambda choice: choice.get("text"), lambda choice: choice["text"])
_OPERATIONS: Final = {
    "invoke": ("invocations", _PLAIN),
    "chat": ("openai/v1/chat/completions", _CHAT),
    "completions": ("openai/v1/completions", _COMPLETION),
    "embeddings": ("openai/v1/embeddings", Readings(_same, _vectors, list)),
}


def endpoint_way(
    name: str,
    platform: PlatformAt,
    endpoint: str,
    operation: str,
    clock: Clock,
    *,
    stream: bool,
) -> HttpWay:
    """An endpoint of this platform, called as by any client. Raises InternalError."""
    if operation not in _OPERATIONS:
        raise InternalError("unknown-operation", f"no operation {operation!r}")
    path, readings = _OPERATIONS[operation]
    headers = {"authorization": f"Bearer {platform.key}"} if platform.key else {}
    url = f"{platform.url}/endpoints/{quote(endpoint, safe='')}/{path}"
    return HttpWay(
        name, url, clock, headers=headers, stream=stream, readings=readings, tls=platform.tls
    )
