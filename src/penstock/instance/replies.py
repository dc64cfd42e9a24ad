"""Reply frames of the instance: answers, errors, and requests given back; written, and read where
the request came from this process."""

from __future__ import annotations

import logging
from typing import Final

import orjson

from penstock.errors import (
    InternalError,
    ModelError,
    NotNowError,
    PenstockError,
    from_dict,
    logged,
)
from penstock.runtimes.base import Returned
from penstock.wire import frames
from penstock.wire.span_notes import SpanScope

_LOG = logging.getLogger(__name__)

#: Reason why the batcher did not run an item -> (message, seconds after which a retry may pass).
_NOT_NOW: Final = {
    "queue-full": ("the model's queue is full", 1.0),
    "queue-timeout": ("the request waited longer than the model's queue allows", 1.0),
    "deadline-passed": ("the deadline passed before the model could run", None),
    "deadline-cannot-be-met": ("its batch would end after the deadline", None),
    "too-many-rows": ("the request has more rows than the queue holds", None),
}

_metas: dict[tuple[str, str | None], bytes] = {}


def reply_meta(content_type: str, custom_attributes: str | None) -> bytes:
    """Wire form of `ReplyMeta`; frequent ones are cached."""
    if custom_attributes is not None:
        return frames.encode_reply_meta(frames.ReplyMeta(content_type, custom_attributes))
    key = (content_type, None)
    meta = _metas.get(key)
    if meta is None:
        meta = frames.encode_reply_meta(frames.ReplyMeta(content_type))
        if len(_metas) >= 256:
            _metas.clear()
        _metas[key] = meta
    return meta


def error_frame(ident: int, error: PenstockError, *, queue_us: int = 0, run_us: int = 0) -> bytes:
    """The frame of an error; a failure of the model is logged by this instance first."""
    if isinstance(error, ModelError):
        logged(error, _LOG.warning)
    return frames.encode_reply(
        ident,
        kind=frames.ERROR,
        status=error.status,
        queue_us=queue_us,
        run_us=run_us,
        body=orjson.dumps(error.to_dict()),
    )


def with_spans(frame: bytes, spans: SpanScope) -> bytes:
    """A final frame with the calls of its request added; a frame without room for them is
    unchanged."""
    told = spans.told() if spans.is_request else None
    if told is None:
        return frame
    (read,) = frames.FrameDecoder(frames.FROM_INSTANCE).feed(frame)
    if read.kind not in (frames.REPLY, frames.END, frames.ERROR):
        return frame
    reply = frames.decode_reply(read.payload, read.meta_bytes)
    try:
        meta = frames.encode_reply_meta(frames.decode_reply_meta(reply.meta)._replace(spans=told))
    except frames.FrameError:
        return frame
    return frames.encode_reply(read.ident, kind=read.kind, **reply._asdict() | {"meta": meta})


def returned_frame(ident: int, reason: str) -> bytes:
    return frames.encode(frames.RETURNED, ident, reason.encode())


def outcome_of(frame: frames.Frame) -> bytes | PenstockError | Returned:
    """What a final frame says: the body, the error, or why the request was given back."""
    if frame.kind == frames.RETURNED:
        return Returned(frame.payload.decode())
    reply = frames.decode_reply(frame.payload, frame.meta_bytes)
    return from_dict(orjson.loads(reply.body)) if frame.kind == frames.ERROR else reply.body


def not_now(reason: str) -> NotNowError:
    """The error for an item that the batcher refused or that expired."""
    words, retry_after_s = _NOT_NOW[reason]
    return NotNowError(reason, words, retry_after_s=retry_after_s)


def as_error(error: BaseException, what: str) -> PenstockError:
    """Our errors as they are; anything else is a bug, whose traceback goes to the log alone."""
    if isinstance(error, PenstockError):
        return error
    _LOG.error("%s failed", what, exc_info=error)
    return InternalError("instance-error", f"{what} failed in the server")
