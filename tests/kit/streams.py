"""What an instance with a generation engine sends: pieces, their end, and how they break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from penstock.errors import PenstockError
from penstock.wire import frames

OnInvoke = Callable[[Any, int, frames.Invoke], None]

GENERATION: dict[str, object] = {
    "tokens_in": 5, "tokens_out": 3, "queue_s": 0.001, "first_token_s": 0.02,
}  # fmt: skip
#: A model as an instance with an engine describes it.
MODEL: dict[str, object] = {"runtime": "openvino_genai", "task": "text-generation", "lanes": 8}


def first(ident: int, piece: bytes, content_type: str = "text/event-stream") -> bytes:
    """The first frame of a streamed answer."""
    meta = frames.encode_reply_meta(frames.ReplyMeta(content_type))
    return frames.encode(
        frames.CHUNK, ident, meta + piece, flags=frames.FIRST, meta_bytes=len(meta)
    )


def more(ident: int, piece: bytes) -> bytes:
    return frames.encode(frames.CHUNK, ident, piece)


def end(ident: int) -> bytes:
    meta = frames.encode_reply_meta(frames.ReplyMeta(generation=orjson.dumps(GENERATION).decode()))
    return frames.encode_reply(
        ident, kind=frames.END, batch_rows=2, queue_us=1000, run_us=60_000, meta=meta
    )


def error_of(ident: int, error: PenstockError) -> bytes:
    body = orjson.dumps(error.to_dict())
    return frames.encode_reply(ident, kind=frames.ERROR, status=error.status, body=body)


def streaming(
    *pieces: bytes,
    content_type: str = "text/event-stream",
    error: PenstockError | None = None,
) -> OnInvoke:
    """Sends the pieces at once, then the end, or the error."""

    def answer(connection: Any, ident: int, invoke: frames.Invoke) -> None:
        sent = [more(ident, piece) for piece in pieces]
        if pieces:
            sent[0] = first(ident, pieces[0], content_type)
        sent.append(end(ident) if error is None else error_of(ident, error))
        connection.write(b"".join(sent))

    return answer


def whole(body: bytes, content_type: str = "application/json") -> OnInvoke:
    """One REPLY, with what an engine says of it."""
    meta = frames.encode_reply_meta(
        frames.ReplyMeta(content_type, generation=orjson.dumps(GENERATION).decode())
    )

    def answer(connection: Any, ident: int, invoke: frames.Invoke) -> None:
        reply = frames.encode_reply(
            ident, batch_rows=2, queue_us=1000, run_us=60_000, meta=meta, body=body
        )
        connection.write(reply)

    return answer


class HeldStream:
    """Sends nothing by itself: `send` answers the requests that came, in the test's own time."""

    def __init__(self) -> None:
        self.idents: list[int] = []
        self._connection: Any = None

    def __call__(self, connection: Any, ident: int, invoke: frames.Invoke) -> None:
        self._connection = connection
        self.idents.append(ident)

    def send(self, *sent: bytes) -> None:
        self._connection.write(b"".join(sent))


def operations(invokes: Sequence[frames.Invoke]) -> list[Any]:
    """What the door said of each request beside its body."""
    metas = [frames.decode_request_meta(invoke.meta) for invoke in invokes]
    return [(meta.door, orjson.loads(meta.parameters or "{}")) for meta in metas]
