"""The answer of a model's own server, sent to its caller piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from penstock.core.batching.spec import RunBatch
from penstock.instance.request import Request
from penstock.wire import frames

#: It is in the meta of each request that asks for a stream, and of few others.
_MARK: Final = b"stream"


def stream_of(request: Request) -> RequestStream | None:
    """Where the answer may be streamed; None: its caller waits for one whole answer."""
    if _MARK not in request.meta:
        return None
    asked = frames.decode_request_meta(request.meta)
    parameters = orjson.loads(asked.parameters) if asked.parameters else {}
    return RequestStream(request) if parameters.get("stream") is True else None


class RequestStream:
    """A `base.AnswerStream`. After the caller has gone, pieces are dropped."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._head: bytes | None = None  #: until it has left with the first piece

    def begin(self, content_type: str, custom_attributes: str | None) -> None:
        meta = frames.ReplyMeta(content_type, custom_attributes)
        try:
            self._head = frames.encode_reply_meta(meta)
        except frames.FrameError:  # larger than a head may be: the answer goes without it
            self._head = frames.encode_reply_meta(frames.ReplyMeta())

    def send(self, piece: bytes) -> None:
        head, self._head = self._head, None
        request = self._request
        if request.answered:
            return
        if head is None:
            request.sink.send(frames.encode(frames.CHUNK, request.ident, piece))
            return
        request.alone = False  # it did not kill the process; later deaths have other causes
        first = frames.encode(
            frames.CHUNK, request.ident, head + piece, flags=frames.FIRST, meta_bytes=len(head)
        )
        request.sink.send(first)

    @property
    def full(self) -> bool:
        return self._request.sink.full and not self._request.answered

    def when_taken(self, go_on: Callable[[], None]) -> None:
        self._request.sink.when_taken(go_on)


def end_of_stream(request: Request, action: RunBatch, queue_us: int, run_us: int) -> bytes:
    return frames.encode_reply(
        request.ident,
        kind=frames.END,
        batch_rows=action.rows,
        lane=action.lane,
        queue_us=queue_us,
        run_us=run_us,
    )
