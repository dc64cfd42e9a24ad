"""Messages of the channel, and routes in them: bytes into values and back.

A message is a frame of `wire/frames.py` with a kind of its own. Its payload is the length of the
JSON (u32), the JSON object, and bytes that belong to it (metrics; mostly none).

    TELL     {"op": ...}; nobody answers
    ASK      {"op": ...}; answered by ANSWER with the same id
    ANSWER   {"ok": {...}} or {"error": {...}}
"""

from __future__ import annotations

import struct
from typing import Any, Final

import orjson

from penstock.core.deployment.deployment import (
    CaptureSpec,
    ComparedRoutes,
    CopyRoute,
    EndpointRoutes,
    TargetRoutes,
    VariantRoutes,
)
from penstock.core.rollout.agreement import AgreementSpec
from penstock.wire import frames

Json = dict[str, Any]

TELL: Final = 64
ASK: Final = 65
ANSWER: Final = 66

#: Size limit of a message: room for all routes of thousands of endpoints, or their metrics of 1 s.
_BYTES_MAX: Final = 256 << 20
_BOUNDS: Final = tuple(_BYTES_MAX if kind in (TELL, ASK, ANSWER) else -1 for kind in range(256))
_JSON_BYTES: Final = struct.Struct("<I")


def decoder() -> frames.FrameDecoder:
    """A decoder for one direction of a channel."""
    return frames.FrameDecoder(_BOUNDS)


def encode(kind: int, number: int, fields: Json, data: bytes = b"") -> bytes:
    """`fields` may hold dataclasses; they become objects."""
    written = orjson.dumps(fields)
    return frames.encode(kind, number, _JSON_BYTES.pack(len(written)) + written + data)


def decode(payload: bytes) -> tuple[Json, bytes]:
    """Raises FrameError if the payload is not a valid message."""
    if len(payload) < _JSON_BYTES.size:
        raise frames.FrameError("a message is shorter than its head")
    (size,) = _JSON_BYTES.unpack_from(payload)
    end = _JSON_BYTES.size + size
    if end > len(payload):
        raise frames.FrameError(f"a message claims {size} bytes of JSON and has fewer")
    try:
        fields = orjson.loads(payload[_JSON_BYTES.size : end])
    except orjson.JSONDecodeError as error:
        raise frames.FrameError(f"a message can't be read: {error}") from None
    if not isinstance(fields, dict):
        raise frames.FrameError("a message is no JSON object")
    return fields, payload[end:]


def routes_from(fields: Json) -> EndpointRoutes:
    """What `orjson` made of `EndpointRoutes`. Raises TypeError or KeyError for anything else."""
    read: Json = {"variants": tuple(_variant(one) for one in fields["variants"])}
    # An older server tells of none.
    read["shadows"] = tuple(_variant(one) for one in fields.get("shadows", ()))
    read["capture"] = _capture(fields["capture"]) if fields.get("capture") else None
    read["compared"] = _compared(fields["compared"]) if fields.get("compared") else None
    read["targets"] = tuple(_target(one) for one in fields.get("targets", ()))
    return EndpointRoutes(**(fields | read))


def _target(fields: dict[str, Any]) -> TargetRoutes:
    compared = _compared(fields["compared"]) if fields["compared"] else None
    return TargetRoutes(**(fields | {"compared": compared}))


def _compared(fields: dict[str, Any]) -> ComparedRoutes:
    return ComparedRoutes(**(fields | {"spec": AgreementSpec(**fields["spec"])}))


def _capture(fields: dict[str, Any]) -> CaptureSpec:
    types = {name: tuple(fields[name]) for name in ("csv_types", "json_types")}
    return CaptureSpec(**(fields | types))


def _variant(fields: dict[str, Any]) -> VariantRoutes:
    read: dict[str, Any] = {"copies": tuple(CopyRoute(**one) for one in fields["copies"])}
    read["compared"] = _compared(fields["compared"]) if fields.get("compared") else None
    return VariantRoutes(**(fields | read))
