"""How objects are cut into spans: the same objects and sizes always give the same spans.

Spans are numbers of bytes, known before anything is read: a record belongs to the span in which it
begins. Only what can be entered in the middle is cut: lines, by the newline before them, and
Parquet, by its row groups. A Gzip stream, and frames that are found only by reading all before
them (RecordIO, TFRecord), are one span each, as is an object behind https://, which is read whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.core.jobs.spec import LINE, NONE, InputObject, Span, TransformInput

#: Content types of Parquet, Apache's own registration last.
PARQUET_TYPES: Final = ("application/x-parquet", "application/vnd.apache.parquet")
_MEBIBYTE: Final = 1024 * 1024
#: About a minute's work of a small text model, and at most what is done again after a kill.
SPAN_BYTES: Final = 8 * _MEBIBYTE


def cut(
    objects: Iterable[InputObject], data: TransformInput, span_bytes: int = SPAN_BYTES
) -> tuple[Span, ...]:
    """The spans of all objects, in their order.

    Together an object's spans have every byte of it once. An empty object is one empty span, so
    that its output is made too.

    Args:
        span_bytes: of a span, at most and where the object can be cut; at least 1.
    """
    if span_bytes < 1:
        raise ValueError(f"span_bytes is {span_bytes}")
    spans: list[Span] = []
    for one in objects:
        step = span_bytes if can_cut(one, data) else max(span_bytes, one.size)
        starts = range(0, max(1, one.size), step)
        spans += [
            Span(object=one.number, number=number, start=start, stop=min(start + step, one.size))
            for number, start in enumerate(starts)
        ]
    return tuple(spans)


def can_cut(one: InputObject, data: TransformInput) -> bool:
    """Whether reading can begin in the middle of it."""
    if data.compression != NONE or one.uri.lower().startswith(("http:", "https:")):
        return False
    return data.split == LINE or is_parquet(data.content_type)


def is_parquet(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in PARQUET_TYPES
