"""The text in a streamed answer, for a person who watches it grow.

Knows the two forms that models here stream in: TGI's (`data:{"token":{"text":...}}`) and OpenAI's
(`data: {"choices":[...]}`). What is neither is shown as it came.
"""

from __future__ import annotations

import codecs
import json
from typing import Any

_DATA = "data:"


class EventText:
    """Takes the bytes of a stream of events, cut anywhere, and gives the text that they carry."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """The text of the lines that `data` completes."""
        lines = (self._rest + self._decode(data, last)).split("\n")
        self._rest = "" if last else lines.pop()
        return "".join(_text_of(line) for line in lines)


def _text_of(line: str) -> str:
    if not line.strip():
        return ""
    if not line.startswith(_DATA):
        return f"{line}\n"
    payload = line[len(_DATA) :].strip()
    if payload == "[DONE]":
        return ""
    try:
        event: Any = json.loads(payload)
    except ValueError:
        return f"{line}\n"
    text = _token(event) if isinstance(event, dict) else None
    return f"{payload}\n" if text is None else text


def _token(event: dict[str, Any]) -> str | None:
    """The piece of the answer that an event carries; None if it is of neither form."""
    token = event.get("token")
    if isinstance(token, dict):
        return "" if token.get("special") else str(token.get("text") or "")
    choices = event.get("choices")
    if not isinstance(choices, list):
        return None
    pieces = []
    for choice in choices:
        delta = choice.get("delta") if isinstance(choice.get("delta"), dict) else choice
        pieces.append(str(delta.get("content") or delta.get("text") or ""))
    return "".join(pieces)
