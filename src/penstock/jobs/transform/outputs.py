"""Assembles the outputs of one job on threads, and writes error files where there is no output."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final

from penstock.artifacts.files.budget import disk_errors
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.job_actions import NotDone
from penstock.core.request.storage_failures import is_storage
from penstock.errors import PenstockError
from penstock.jobs.transform.outcomes import kind_of_output, put_errors, reason_of
from penstock.jobs.transform.records import JobRecord
from penstock.jobs.transform.work import JobWork
from penstock.records.output import assemble
from penstock.records.parts import forget, parts_folder

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 2


class JobOutputs:
    """The outputs of one running job."""

    def __init__(
        self, record: JobRecord, work: JobWork, parts_uri: str, settings: ArtifactSettings
    ) -> None:
        self._record = record
        self._parts_uri = parts_uri
        self._settings = settings
        self._objects = {one.number: one for one in work.objects}
        self._spans = work.spans_of()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._in_place = set(work.assembled)
        self._refused = {(one.object, one.span) for one in work.done if one.refused}

    async def assemble(self, number: int) -> NotDone | None:
        """None: the output is in its place. Idempotent."""
        async with self._places:
            try:
                await asyncio.to_thread(self._assemble, number)
            except PenstockError as error:
                return NotDone(kind_of_output(error), reason_of(error))
        self._in_place.add(number)
        return None

    def _assemble(self, number: int) -> None:
        spec = self._record.spec
        with self._disk():
            assemble(
                self._objects[number],
                self._spans[number],
                self._parts_uri,
                spec.output,
                self._settings,
                processing=spec.processing,
            )

    def _disk(self) -> AbstractContextManager[None]:
        """Held while parts are read, wherever the output goes."""
        return disk_errors("parts of the job's output", parts_folder(self._parts_uri))

    def refused(self, number: int, span: int) -> None:
        """Notes that a committed part has refused records."""
        self._refused.add((number, span))

    async def finish(self) -> PenstockError | None:
        """Writes why objects have no output, and removes all parts. Idempotent.

        Returns an error where a disk or a store fails for now: then nothing is removed. Call it
        again, or `give_up`.
        """
        return await asyncio.to_thread(self._finish)

    async def give_up(self) -> None:
        """Removes all parts, even if errors were not written."""
        await asyncio.to_thread(forget, self._parts_uri)

    def _finish(self) -> PenstockError | None:
        for number in sorted({one for one, _ in self._refused} - self._in_place):
            spans = (span for one, span in self._refused if one == number)
            error = self._put_errors(number, spans)
            if error is not None and is_storage(error):
                return error
        forget(self._parts_uri)
        return None

    def _put_errors(self, number: int, spans: Iterable[int]) -> PenstockError | None:
        wanted = set(spans)
        refused = [span for span in self._spans[number] if span.number in wanted]
        spec = self._record.spec
        try:
            with self._disk():
                put_errors(
                    self._objects[number], refused, self._parts_uri, spec.output, self._settings
                )
        except PenstockError as error:
            name = self._record.name
            _log.warning("transform job %s: no errors are written: %s", name, error.message)
            return error
        return None
