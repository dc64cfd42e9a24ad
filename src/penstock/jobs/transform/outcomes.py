"""Classifies errors of a job's instances and stores, and reports refused records.

Where an object gets no output, the first refused record is reported, and a file lists all. Records
are numbered from the object's beginning, as in the errors beside an output. Where earlier spans are
not done, their number of records is unknown: then only the record's byte offset is reported.
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
from penstock.records.output import place_of
from penstock.records.parts import Parts, part_summary

#: Errors of a copy that is being ended, or whose connection broke because its instance ended.
_TAKEN: Final = (
    "transform-copy-ending",
    "transform-caller-gone",
    "transform-stopped",
    "unknown-copy",
)
_GONE: Final = "instance-gone"
#: The call itself can't be read: our bug, and never the fault of the data.
_OURS: Final = "bad-control-call"
#: Errors of a disk of this machine that all spans write to.
_OF_DISKS: Final = ("artifact-disk-full", "artifact-disk-failed")


def kind_of_span(error: PenstockError, *, begun: bool, stopped: bool) -> str:
    """One of: wrong | crash | taken | away | full | later.

    Args:
        begun: the instance had received the span.
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
    """One of: wrong | away | later."""
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
    except PenstockError:  # assembling the output will report what is wrong with the part
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
    """Writes `<key>.errors` for an object that gets no output, from those of its spans that have
    errors.

    Raises what writing an output raises.
    """
    lines = (orjson.dumps(told) + b"\n" for told in _errors(parts_uri, spans))
    place_of(output, settings).put(f"{safe_path(one.key, where=output.uri)}.errors", lines)


def _errors(parts_uri: str, spans: Iterable[Span]) -> Iterator[dict[str, Any]]:
    for span in sorted(spans, key=lambda one: one.number):
        before = _records_before(parts_uri, span)
        for told in Parts(parts_uri, [span]).errors(span):
            place = {} if before is None else {"record": before + told["index"]}
            yield place | {"offset": told["offset"], "error": _shown(told["error"])}


def _shown(error: dict[str, Any]) -> dict[str, Any]:
    """What concerns the owner of the record; between processes an error says more of itself."""
    return {key: error[key] for key in ("code", "message", "hint") if error.get(key)}


def _records_before(parts_uri: str, span: Span) -> int | None:
    """How many records of the object are before the span; None where an earlier span is not
    done."""
    records = 0
    for number in range(span.number):
        summary = part_summary(parts_uri, span.object, number)
        if summary is None:
            return None
        records += summary.records
    return records
