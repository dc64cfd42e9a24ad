"""Captured calls as the JSON lines that SageMaker's data capture writes, and their files' names.

A line has the request, the answer, or both, each with its data as text or in Base64, and says which
(`encoding`). Readers of these files, such as Model Monitor's analyses, know this form.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

_CSV: Final = "CSV"
_JSON: Final = "JSON"
_BASE64: Final = "BASE64"


class CapturedCall(NamedTuple):
    """One answered call. None: it has no such thing, or it is not captured."""

    ended: float  #: wall s
    request: bytes | None
    answer: bytes | None
    request_type: str | None = None  #: content types
    answer_type: str | None = None
    inference_id: str | None = None
    custom_attributes: str | None = None


def line(
    call: CapturedCall,
    event_id: str,
    *,
    csv_types: Collection[str],
    json_types: Collection[str],
) -> bytes:
    """The line, with its end. The types are those whose data is written as text."""
    captured: dict[str, Any] = {}
    for name, mode, data, content_type in (
        ("endpointInput", "INPUT", call.request, call.request_type),
        ("endpointOutput", "OUTPUT", call.answer, call.answer_type),
    ):
        if data is not None:
            text, encoding = _encoded(data, content_type, csv_types, json_types)
            shown = {} if content_type is None else {"observedContentType": content_type}
            captured[name] = shown | {"mode": mode, "data": text, "encoding": encoding}
    about: dict[str, Any] = {"eventId": event_id}
    if call.inference_id is not None:
        about["inferenceId"] = call.inference_id
    if call.custom_attributes is not None:
        about["customAttributes"] = [call.custom_attributes]
    about["inferenceTime"] = f"{_utc(call.ended):%Y-%m-%dT%H:%M:%SZ}"
    whole = {"captureData": captured, "eventMetadata": about, "eventVersion": "0"}
    return orjson.dumps(whole, option=orjson.OPT_APPEND_NEWLINE)


def read(text: bytes) -> CapturedCall:
    """The call of a line, whoever wrote it. Raises ValueError for what is no such line."""
    try:
        whole = orjson.loads(text)
        captured, about = whole["captureData"], whole.get("eventMetadata") or {}
        sides = [captured.get(name) or {} for name in ("endpointInput", "endpointOutput")]
        request, answer = (_decoded(one) for one in sides)
        ended = datetime.strptime(about["inferenceTime"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        custom = about.get("customAttributes") or [None]
        return CapturedCall(
            ended.timestamp(), request, answer,
            request_type=sides[0].get("observedContentType"),
            answer_type=sides[1].get("observedContentType"),
            inference_id=about.get("inferenceId"), custom_attributes=custom[0],
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"no captured call: {error!r}") from error


def _decoded(side: dict[str, Any]) -> bytes | None:
    data = side.get("data")
    if data is None:
        return None
    return base64.b64decode(data) if side.get("encoding") == _BASE64 else data.encode()


def object_name(endpoint: str, variant: str, begun: float, ident: str) -> str:
    """Name of a file below its destination; `begun`: wall s of its first call."""
    at = _utc(begun)
    return f"{endpoint}/{variant}/{at:%Y/%m/%d/%H/%M-%S}-{at.microsecond // 1000:03d}-{ident}.jsonl"


def _encoded(
    data: bytes, content_type: str | None, csv_types: Collection[str], json_types: Collection[str]
) -> tuple[str, str]:
    kind = (content_type or "").partition(";")[0].strip().lower()
    encoding = _CSV if kind in csv_types else _JSON if kind in json_types else _BASE64
    if encoding != _BASE64:
        try:
            return data.decode(), encoding
        except UnicodeDecodeError:  # a line is JSON, whose texts are Unicode
            pass
    return base64.b64encode(data).decode(), _BASE64


def _utc(wall_s: float) -> datetime:
    return datetime.fromtimestamp(wall_s, UTC)
