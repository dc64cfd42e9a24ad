"""The `transform` operation of the control connection, validated; and the progress of its span,
which the threads that work on it share."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from functools import cached_property
from typing import Any

import msgspec

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import InputObject, Span, SpanDone, TransformSpec
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError
from penstock.instance.settings import InstanceSettings
from penstock.records.filters import Processing
from penstock.records.inference_ids import InferenceIds
from penstock.records.parts import PartSummary
from penstock.records.reader import RecordReader
from penstock.wire.frames import RequestMeta


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformCall:
    copy: int
    job: str
    spec: TransformSpec
    object: InputObject
    span: Span
    parts_uri: str  #: URI where the part is committed
    settings: ArtifactSettings
    began: float = 0.0  #: when the job began, s since the epoch
    noted: bool = False  #: True: an instance ended over this span, so the records at work are noted
    #: Suspected records (by number in the span), in parts that are run one after the other. Then
    #: nothing else is run and nothing is committed.
    apart: tuple[tuple[int, ...], ...] = ()
    #: Records that the model does not get, and the error: how the last instance with them ended, or
    #: that the reader finds them too large.
    refused: dict[int, PenstockError] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, call: dict[str, Any], settings: InstanceSettings) -> TransformCall:
        """Raises CallerError for missing or impossible fields."""
        try:
            told = call.get("settings")
            artifact = ArtifactSettings.from_dict(told) if told else settings.artifact
            closed = artifact.closed + settings.artifact.closed
            return cls(
                copy=int(call["copy"]),
                job=str(call["job"]),
                spec=msgspec.convert(call["spec"], TransformSpec),
                object=msgspec.convert(call["object"], InputObject),
                span=msgspec.convert(call["span"], Span),
                parts_uri=str(call["parts_uri"]),
                began=float(call.get("began", 0.0)),
                settings=dataclasses.replace(artifact, closed=closed),
                noted=bool(call.get("noted", False)),
                apart=tuple(tuple(map(int, part)) for part in call.get("apart", ())),
                refused={int(at): ended(str(story)) for at, story in call.get("refused", ())},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CallerError(
                "bad-control-call", f"transform: {type(error).__name__}: {error}"
            ) from None

    @cached_property
    def processing(self) -> Processing:
        """Raises CallerError for invalid filters."""
        return Processing(
            self.spec.processing,
            self.spec.input,
            self.spec.output,
            inference_ids=self.spec.inference_ids,
        )

    @cached_property
    def _ids(self) -> InferenceIds | None:
        if not self.spec.inference_ids:
            return None
        return InferenceIds(self.job, self.span, began=self.began)

    @property
    def asked(self) -> RequestMeta:
        """The metadata of each body for the model."""
        return RequestMeta(
            content_type=self.processing.body_type or None,
            accept=self.processing.accept or None,
        )

    def model_input(self, number: int, record: bytes) -> bytes:
        """The model's input for a record. Raises PenstockError where there is none.

        Args:
            number: of the record in the span, from 0.
        """
        if number in self.refused:
            raise self.refused[number]
        return self.processing.model_input(record)

    def output(self, number: int, record: bytes, answer: bytes) -> bytes:
        """What is written for a record with this answer. Raises PenstockError where that can't be
        made."""
        return self.processing.output(record, answer, number, self._ids)

    def reader(self) -> RecordReader:
        return RecordReader(
            self.object,
            self.span,
            self.spec.input,
            self.settings,
            record_bytes_max=self.spec.payload_bytes_max,
            whole_records=self.processing.needs_whole_records,
            refused=self.refused,
        )

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies the part: only one run writes it at a time."""
        return self.job, self.span.object, self.span.number


def ended(story: str) -> ModelError:
    """The error of a record over which instances ended. `story`: how the last one did."""
    return ModelError(
        "model-worker-died",
        f"instances ended while they had this record and no other: {story}",
        hint="Look into the job's log.",
        original_message="the instance ended while it had this record",
    )


class SpanProgress:
    """Create it on the event loop, which reads it; the span's own threads write it."""

    def __init__(self) -> None:
        #: Records that are answered or refused. Within a window it is estimated from the share of
        #: batches that have run, because a slow model takes hours for one window.
        self.records = 0
        self.refused = 0
        self.run_s = 0.0  #: time that lanes were busy
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._wakes = asyncio.Event()  #: wakes waiting coroutines
        self._error: PenstockError | None = None

    def end(self, error: PenstockError) -> None:
        """The span must not go on. The first reason counts."""
        if self._error is None:
            self._error = error
        self._ended.set()
        self._loop.call_soon_threadsafe(self._wakes.set)

    async def wait(self) -> None:
        """Returns once the span must not go on; on the event loop."""
        await self._wakes.wait()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def done(self, part: PartSummary) -> SpanDone:
        """The end of the span; `part`: what was committed."""
        return SpanDone(
            object=part.object,
            span=part.span,
            records=part.records,
            refused=part.refused,
            bytes_in=part.bytes_in,
            bytes_out=part.bytes_out,
            run_s=self.run_s,
        )

    def check(self) -> None:
        """Raises the reason if the span must not go on."""
        if self._error is not None:
            raise self._error


def stopped(job: str) -> NotNowError:
    return NotNowError("transform-stopped", f"the job {job} was stopped")
