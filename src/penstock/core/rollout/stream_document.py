"""A streamed answer as one JSON document, so that where it was cut into pieces makes no difference.

A stream is server-sent events (WHATWG HTML, 9.2.6), or JSON objects or lists in a row (JSON lines).
Its events are taken apart by kind: the name of the event, or its member `type`. Those of one kind
become one value:

    with text in pieces    one object. At each path text (`_IN_PIECES`) is joined without blanks;
                           lists are merged by the `index` of their elements, or by place; token
                           probabilities (`_ROWS`) follow each other; of all else the last value
                           counts that is not null. What differs from call to call is left out
    only text              the text, where the events are JSON strings or no JSON
    all else               the list of the events: each of them is whole

The document is that value, or where an event has a kind: an object of these values by kind. So the
order of events of one kind counts, and not how those of several kinds lie among each other.

The members are those of OpenAI, Anthropic, TGI, vLLM, Triton, Ollama and this server's pipelines. A
stream of anything else has no document, and its bytes stay what they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from penstock.core.rollout.comparison import OF_THE_CALL

#: Members whose text comes in pieces.
_IN_PIECES: Final = frozenset({
    "arguments", "completion", "content", "delta", "generated_text", "outputs", "partial_json",
    "reasoning", "reasoning_content", "refusal", "response", "text", "text_output", "thinking",
    "token", "transcript",
})  # fmt: skip
#: Members whose lists have a row for each token of the piece.
_ROWS: Final = frozenset({"logprobs", "token_ids"})
#: Members of an event that depend on how many pieces there are, or are random: of any event, of
#: those of the Responses API, of a pipeline's last one, and of pieces of text (TGI numbers them).
_OF_THE_EVENT: Final = frozenset({"sequence_number", "obfuscation"})
_OF_RESPONSES: Final = _OF_THE_EVENT | {"item_id"}
_OF_DONE: Final = _OF_THE_EVENT | {"events"}
_OF_THE_PIECE: Final = frozenset({"index"})
#: Kinds of events that only keep a connection alive.
_SILENT: Final = ("ping",)
_FIELDS: Final = ("data", "event", "id", "retry", "")  #: of an event; "": a comment
_END: Final = "[DONE]"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANKS: Final = re.compile(r"\s*")
_DECODER: Final = json.JSONDecoder()


class _ByPlace:
    """A list that is being merged: its elements by their index or place."""

    def __init__(self) -> None:
        self.elements: dict[int, Any] = {}


def document(stream: bytes) -> bytes:
    """The document of a whole stream; the stream itself where it has none."""
    try:
        text = stream.decode()
        told = _server_sent(text)
        events = list(_values(text)) if told is None else [_read(*one) for one in told]
        return json.dumps(_merged(events), sort_keys=True).encode() if events else stream
    except (ValueError, RecursionError):
        return stream


def _server_sent(text: str) -> list[tuple[str, str]] | None:
    """Names and data of the events; None: there is a line that is of none."""
    found, name = [], ""
    data: list[str] = []
    for line in (*_LINE_END.split(text), ""):  # the last event may lack its empty line
        field, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data and data != [_END] and name not in _SILENT:
                found.append((name, "\n".join(data)))
            name, data = "", []
        elif not colon or field not in _FIELDS:
            return None
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return found


def _read(name: str, data: str) -> tuple[str, str, Any]:
    """Kind, data and value of an event; its value is its text where that is no JSON."""
    try:
        value = json.loads(data)
    except ValueError:
        return name, data, data
    kind, value = _kind(value)
    return name or kind, data, value


def _values(text: str) -> Iterator[tuple[str, str, Any]]:
    """As `_read`, of objects and lists in a row. Raises ValueError for anything else."""
    at = _BLANKS.match(text).end()  # type: ignore[union-attr]  # it matches the empty text as well
    while at < len(text):
        if text[at] not in "{[":
            raise ValueError("a number or a word alone is a part of a text")
        value, at = _DECODER.raw_decode(text, at)
        kind, value = _kind(value)
        yield kind, "", value
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]


def _kind(value: Any) -> tuple[str, Any]:
    """What kind of an event it says that it is, and what it says."""
    if not isinstance(value, dict):
        return "", value
    said: Any = value
    kind = value.get("type")
    of_pipeline = value.get("pipeline_event")  # over OpenAI's API
    if isinstance(of_pipeline, dict):
        kind, said = of_pipeline.get("event"), of_pipeline.get("data")
    return (kind, said) if isinstance(kind, str) else ("", value)


def _merged(events: list[tuple[str, str, Any]]) -> Any:
    kinds: dict[str, list[tuple[str, Any]]] = {}
    for kind, data, value in events:
        kinds.setdefault(kind, []).append((data, value))
    found = {kind: _of_one_kind(kind, those) for kind, those in kinds.items()}
    return found[""] if found.keys() == {""} else found


def _of_one_kind(kind: str, events: list[tuple[str, Any]]) -> Any:
    if any(isinstance(value, str) for _, value in events):
        return "".join(value if isinstance(value, str) else data for data, value in events)
    left_out = _OF_DONE if kind == "done" else _OF_THE_EVENT
    if kind.startswith("response."):
        left_out = _OF_RESPONSES
    values = [_without(value, left_out) for _, value in events]
    if not any(_has_text("", value) for value in values):
        return values
    made: Any = None
    for value in values:
        made = _joined("", made, _without(value, _OF_THE_PIECE), rows=False)
    return _finished(made)


def _without(value: Any, members: frozenset[str]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if name not in members}


def _has_text(name: str, value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_text(member, each) for member, each in value.items())
    if isinstance(value, list):
        return any(_has_text(name, each) for each in value)
    return isinstance(value, str) and name in _IN_PIECES


def _joined(name: str, made: Any, value: Any, *, rows: bool) -> Any:
    """`made` so far, and what `value` adds to it. `rows`: its lists follow each other."""
    if value is None or value == "":  # neither says anything
        return made
    if isinstance(value, dict):
        object_ = made if isinstance(made, dict) else {}
        for member, each in value.items():
            found = _joined(member, object_.get(member), each, rows=rows or member in _ROWS)
            if found is not None and member not in OF_THE_CALL:
                object_[member] = found
        return object_
    if isinstance(value, list) and rows:
        before = made if isinstance(made, list) else []
        before += value
        return before
    if isinstance(value, list):
        places = made if isinstance(made, _ByPlace) else _ByPlace()
        elements = places.elements
        for place, each in enumerate(value):
            index = each.get("index") if isinstance(each, dict) else None
            at = index if isinstance(index, int) else place
            elements[at] = _joined(name, elements.get(at), each, rows=rows)
        return places
    if isinstance(value, str) and isinstance(made, str) and name in _IN_PIECES:
        return made + value
    return value


def _finished(made: Any) -> Any:
    if isinstance(made, _ByPlace):
        return [_finished(each) for _, each in sorted(made.elements.items())]
    if isinstance(made, dict):
        return {name: _finished(each) for name, each in made.items()}
    return made
