"""What is told of refused records where an object gets no output: the first one, and a file of all.

Records are numbered from the object's beginning, as in the errors beside an output. Where spans
before one are not done, nobody knows how many records they have: then only its place is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import InputObject, Span, TransformOutput
from penstock.errors import PenstockError
from penstock.records.committed import Parts
from penstock.records.objects.places import place_of
from penstock.records.parts import part_summary


def first_refusal(parts_uri: str, span: Span) -> str:
    """The first refused record of a committed part, and why, as FailureReason has it."""
    try:
        told = next(_errors(parts_uri, [span]), None)
    except PenstockError:  # whoever puts the output together will say what is wrong with the part
        told = None
    if told is None:
        return "a record was refused"
    number = told.get("record")
    which = "the record" if number is None else f"record {number}"
    return f"{which} at byte {told['offset']}: {told['error']['message']}"


def put_errors(
    one: InputObject,
    spans: Iterable[Span],
    parts_uri: str,
    output: TransformOutput,
    settings: ArtifactSettings,
) -> None:
    """`<key>.errors` of an object that gets no output, of the spans that have some.

    Raises what writing an output raises.
    """
    lines = (orjson.dumps(told) + b"\n" for told in _errors(parts_uri, spans))
    place_of(output, settings).put(f"{safe_path(one.key, where=output.uri)}.errors", lines)


def _errors(parts_uri: str, spans: Iterable[Span]) -> Iterator[dict[str, Any]]:
    for span in sorted(spans, key=lambda one: one.number):
        before = _records_before(parts_uri, span)
        for told in Parts(parts_uri, [span]).errors(span):
            place = {} if before is None else {"record": before + told["index"]}
            yield place | {"offset": told["offset"], "error": told["error"]}


def _records_before(parts_uri: str, span: Span) -> int | None:
    """In its object; None where a span before it is not done."""
    records = 0
    for number in range(span.number):
        summary = part_summary(parts_uri, span.object, number)
        if summary is None:
            return None
        records += summary.records
    return records
