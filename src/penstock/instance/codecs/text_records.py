"""Records of a large data set as bodies of a text model: read one by one, written many at once.

A record's answer is that to a request with this body. In JSON Lines a record is a line: `{"text":
"...", "text_pair": "..."}`, a text, or a whole JSON body with `inputs`; in CSV, a row. The answer
to a line with one text has no list around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.artifacts.description.description import Head
from penstock.errors import PenstockError
from penstock.instance.codecs import oip_json
from penstock.instance.codecs.base import (
    CSV,
    JSON,
    JSON_LINES,
    Tensors,
    media_type,
    negotiate,
)
from penstock.instance.codecs.text import Text, TextDecoded, TextModel, decode_texts, from_json
from penstock.instance.codecs.text_heads import TopK, as_json, json_rows
from penstock.instance.codecs.values import dump_json, parse_json
from penstock.wire.frames import RequestMeta


class Shown(NamedTuple):
    """How a record's results are written as JSON. Most records of a job have the same form."""

    heads: tuple[Head, ...]
    bare: bool  #: one result without a list around it
    top_k: TopK


class TextRecord(NamedTuple):
    texts: Sequence[Text]
    shown: Shown | TextDecoded  #: a `TextDecoded` writes its answer itself


Read = Callable[[bytes], TextRecord]


def reader(model: TextModel, meta: RequestMeta) -> Read:
    """The reader of a record; it raises ModelError with the status that the model answers.

    Facts that all records share are computed once here. Raises ModelError for an Accept that no
    record can fulfil.
    """
    kind = media_type(meta.content_type)
    if kind in (JSON, "", *JSON_LINES):
        negotiate(meta.accept, (JSON, *JSON_LINES))
    if kind in JSON_LINES:
        return _line_reader(model)
    if media_type(meta.accept) in JSON_LINES:
        meta = meta._replace(accept=JSON)  # the answer to a record is a line
    if kind == CSV:
        return lambda record: _of_line(decode_texts(model, meta, record))
    if kind not in (JSON, ""):
        return lambda record: _record(decode_texts(model, meta, record))
    plain = meta._replace(accept=None)
    return lambda record: _record(_body(model, plain, record))


def _body(model: TextModel, meta: RequestMeta, record: bytes) -> TextDecoded:
    parsed = parse_json(record, "record")
    if oip_json.is_oip(parsed):
        return decode_texts(model, meta, record)
    return from_json(model, parsed)


def _line_reader(model: TextModel) -> Read:
    every = Shown(model.heads, True, 0)
    pairs = model.pairs != "never"

    def read(record: bytes) -> TextRecord:
        parsed = parse_json(record, "record")
        if type(parsed) is dict and "text" in parsed:
            text, other = parsed["text"], parsed.get("text_pair")
            if pairs and len(parsed) == 2 and type(text) is str and type(other) is str:
                return TextRecord(((text, other),), every)
            return _record(from_json(model, {"inputs": parsed}))
        decoded = from_json(model, parsed)
        return _of_line(decoded) if isinstance(parsed, str) else _record(decoded)

    return read


def _record(decoded: TextDecoded) -> TextRecord:
    if decoded.as_json is None:
        return TextRecord(decoded.texts, decoded)
    return TextRecord(decoded.texts, Shown(decoded.heads, *decoded.as_json))


def _of_line(decoded: TextDecoded) -> TextRecord:
    """The answer to a line about one text is its result alone."""
    if decoded.as_json is not None and len(decoded.texts) == 1:
        decoded.as_json = (True, decoded.as_json[1])
    return _record(decoded)


def answers(
    shown: Sequence[Shown | TextDecoded | None], starts: Sequence[int], results: Tensors
) -> list[bytes | PenstockError]:
    """The answer to each record, or its error; b"" where there is no record.

    `results`: of all heads, one row per text of the window; `starts[n]`: the first text of record
    n.
    """
    writers: dict[tuple[tuple[Head, ...], TopK], _Rows] = {}
    written: list[bytes | PenstockError] = []
    last, rows = None, None  #: most often all records have the same form
    for at, one in enumerate(shown):
        if one is None:
            written.append(b"")
        elif isinstance(one, Shown):
            if one is not last or rows is None:
                last, rows = one, writers.get((one.heads, one.top_k))
                if rows is None:
                    rows = writers[one.heads, one.top_k] = _Rows(one, results)
            written.append(rows.answer(starts[at], starts[at + 1], one.bare))
        else:
            written.append(_encoded(one, starts[at], starts[at + 1], results))
    return written


class _Rows:
    """The results of all texts of a window, in the form of one `Shown`."""

    def __init__(self, shown: Shown, results: Tensors) -> None:
        self._lines = json_rows(shown.heads, results) if shown.top_k == 0 else None
        self._values: Any = None
        if self._lines is None:
            self._values = as_json(shown.heads, results, shown.top_k)

    def answer(self, start: int, stop: int, bare: bool) -> bytes:
        if self._lines is not None:
            return self._lines[start] if bare else b"[" + b",".join(self._lines[start:stop]) + b"]"
        return dump_json(self._values[start] if bare else self._values[start:stop])


def _encoded(one: TextDecoded, start: int, stop: int, results: Tensors) -> bytes | PenstockError:
    try:
        return one.encode({name: array[start:stop] for name, array in results.items()})[0]
    except PenstockError as error:
        return error
