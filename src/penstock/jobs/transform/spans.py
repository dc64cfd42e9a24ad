"""Sends spans to the copies of one job, over the control connections of their instances."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import msgspec

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.control.plane import ControlPlane
from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.deployment.endpoint_state import STOPPING, SlotFailure
from penstock.core.jobs.job_actions import CRASH, TAKEN, NotDone
from penstock.core.jobs.spec import InputObject, Span, SpanDone
from penstock.errors import PenstockError
from penstock.jobs.transform.outcomes import kind_of_span, reason_of
from penstock.jobs.transform.records import JobRecord
from penstock.records.at_work import forget_at_work, take_at_work

#: The limit of a span, which takes as long as its model does. An instance ends a span that hangs;
#: the control plane ends an instance that hangs, and its connection with it.
_SPAN_S_MAX: Final = 7 * 86_400.0
_STOP_S_MAX: Final = 60.0
#: A fleet reports why a process ended at about the time when its connection breaks.
_STORY_S_MAX: Final = 2.0
_LOOK_S: Final = 0.02
#: Reasons why instances end by themselves.
EXITED: Final = "instance-exit"
#: A signal stopped it for too long: not the fault of a record
STOOD_STILL: Final = "instance-stood-still"


class SpanCalls:
    """The span calls of one job."""

    def __init__(
        self,
        plane: ControlPlane,
        record: JobRecord,
        objects: Mapping[int, InputObject],
        parts_uri: str,
        settings: ArtifactSettings,
        *,
        began: float,
        hosted: str,
    ) -> None:
        """`began`: of the job, as it is on record; `hosted`: the name of its deployment."""
        self._plane = plane
        self._job = record.name
        self._objects = objects
        self._parts_uri = parts_uri
        self._hosted = hosted
        self._call: dict[str, Any] = {
            "op": "transform",
            "job": record.name,
            "spec": asdict(record.spec),
            "parts_uri": parts_uri,
            "began": began,
            "settings": settings.to_dict(),
        }
        self.copies: dict[int, str] = {}  #: copy -> its instance; only copies that answer

    async def run(
        self, copy: int, span: Span, case: CrashCase | None = None
    ) -> SpanDone | NotDone | None:
        """The outcome; None: the suspected records were run apart.

        Args:
            case: what is known of the span, where instances have ended while it ran.
        """
        instance_id = self.copies.get(copy, "")
        begun = bool(instance_id) and self._plane.answers(instance_id)
        call = self._call | {
            "copy": copy,
            "object": asdict(self._objects[span.object]),
            "span": asdict(span),
        }
        if case is not None:
            await asyncio.to_thread(forget_at_work, self._parts_uri, span)
            call |= {"noted": True, "apart": case.parts(), "refused": case.refused}
        try:
            reply = await self._plane.call_instance(instance_id, call, timeout_s=_SPAN_S_MAX)
        except PenstockError as error:
            stopped = self._plane.instance_phase(instance_id) == STOPPING
            kind = kind_of_span(error, begun=begun, stopped=stopped)
            if kind != CRASH:
                return NotDone(kind, reason_of(error))
            end = await self._end_of(instance_id)
            if end is not None and end.reason == STOOD_STILL:
                return NotDone(TAKEN, end.message)
            story = reason_of(error) if end is None else end.message
            noted = await asyncio.to_thread(take_at_work, self._parts_uri, span)
            return NotDone(kind, story, noted if case is not None else None)
        return None if "passed" in reply else msgspec.convert(reply, SpanDone)

    async def _end_of(self, instance_id: str) -> SlotFailure | None:
        """How an instance ended whose connection broke, once it is known."""
        left = round(_STORY_S_MAX / _LOOK_S)
        while left and self._plane.instance_phase(instance_id):
            await asyncio.sleep(_LOOK_S)
            left -= 1
        seen = self._plane.hosted(self._hosted)
        failures = seen.failures if seen else ()
        ends = [one for one in failures if one.reason in (EXITED, STOOD_STILL)]
        return max(ends, key=lambda one: one.at, default=None)

    async def stop(self) -> None:
        """Ends the job's spans on every instance, and so the calls for them."""
        stops = [self._stop(instance_id) for instance_id in dict.fromkeys(self.copies.values())]
        await asyncio.gather(*stops)

    async def _stop(self, instance_id: str) -> None:
        call = {"op": "transform-stop", "job": self._job}
        with contextlib.suppress(PenstockError):  # an instance that has ended needs no stop
            await self._plane.call_instance(instance_id, call, timeout_s=_STOP_S_MAX)
