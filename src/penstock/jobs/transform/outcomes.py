"""What an error of an instance, or of a place, means for the job.

What is told of refused records where an object gets no output: the first one, and a file of all.

Records are numbered from the object's beginning, as in the errors beside an output. Where spans
before one are not done, nobody knows how many records they have: then only its place is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.job_actions import AWAY, CRASH, FULL, LATER, TAKEN, WRONG
from penstock.core.jobs.spec import InputObject, Span, TransformOutput
from penstock.core.request.storage_failures import is_storage
from penstock.errors import CallerError, PenstockError
from penstock.records.committed import Parts
from penstock.records.objects.places import place_of
from penstock.records.parts import part_summary

#: The copy is being ended, or its connection has gone because its instance is.
_TAKEN: Final = (
    "transform-copy-ending",
    "transform-caller-gone",
    "transform-stopped",
    "unknown-copy",
)
_GONE: Final = "instance-gone"
#: The call itself can't be read: ours, and never the data's fault.
_OURS: Final = "bad-control-call"
#: A disk of this machine that spans write to, whichever object they are of.
_OF_DISKS: Final = ("artifact-disk-full", "artifact-disk-failed")


def kind_of_span(error: PenstockError, *, begun: bool, stopped: bool) -> str:
    """wrong | crash | taken | away | full | later.

    Args:
        begun: the instance had been told of the span.
        stopped: the instance is being stopped, or was.
    """
    if error.code in _TAKEN:
        return TAKEN
    if error.code == _GONE:
        return CRASH if begun and not stopped else TAKEN
    if is_storage(error):
        return FULL if error.code in _OF_DISKS else AWAY
    return WRONG if isinstance(error, CallerError) and error.code != _OURS else LATER


def kind_of_output(error: PenstockError) -> str:
    """wrong | away | later."""
    if is_storage(error):
        return AWAY
    return WRONG if isinstance(error, CallerError) else LATER


def reason_of(error: PenstockError) -> str:
    """For people: what happened and what to do."""
    return f"{error.message.rstrip('.')}. {error.hint}".rstrip()


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
