"""The driver of `core/capture`: takes captured calls from a gateway, writes them as objects.

Every process that serves requests has one. A record costs its request a few additions; lines are
made, and objects written, in threads. Each object has a name of its own, and there is nothing of it
until all of it is there. A try that is repeated writes the same object, so no call is written twice
by it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.control.loop import DriverLoop
from penstock.core.backoff import Backoff
from penstock.core.capture.queue import (
    Action,
    CaptureQueue,
    CaptureQueueSpec,
    DropRecords,
    FilePlace,
    WriteFile,
)
from penstock.errors import InternalError, PenstockError
from penstock.gateway.dispatch.capture import Captures
from penstock.gateway.dispatch.capture_records import CaptureRecord
from penstock.jobs.asynchronous.objects import Objects
from penstock.jobs.capture.redaction import redaction
from penstock.metrics.counts.recorder import (
    CAPTURE_DROPPED,
    CAPTURE_TAKEN,
    CAPTURE_WRITE_FAILED,
    CAPTURE_WRITTEN_BYTES,
    VariantRecorder,
)
from penstock.metrics.item_failures import note
from penstock.wire.capture_lines import CapturedCall, line, object_name
from penstock.wire.frames import decode_reply_meta, decode_request_meta

_log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/x-ndjson"
#: Soon enough for somebody who looks, and some 8,600 objects a day of a busy variant.
FILE_WAIT_S: Final = 10.0
_FILE_BYTES_MAX: Final = 4 << 20
_FILE_RECORDS_MAX: Final = 4096
_THREADS: Final = 4
Redaction = Callable[[bytes], bytes]
#: A file is given up after some two minutes. Its memory is needed for calls that come later, and
#: a store that is away for longer is away for hours.
_TRIES_MAX: Final = 8
_BACKOFF: Final = Backoff(pause_s_first=1.0, pause_s_max=60.0)
#: s for the last files when the process stops; a fraction of the time that requests have.
_STOP_S_MAX: Final = 5.0
_IDLE_S: Final = 3600.0
#: What a record takes besides its bytes, as seen in CPython 3.11.
_RECORD_BYTES: Final = 512
_FAILING_MAX: Final = 1000

#: A reason to drop, beside those of the queue.
_UNREADABLE: Final = "unreadable"

#: (recorder, what, reason) -> times
_Counts = Counter[tuple[VariantRecorder, str, str]]
_Held = tuple[CaptureRecord, float]  #: with the wall time at which the call ended


def queue_spec(limits: LimitConfig) -> CaptureQueueSpec:
    """The bounds of one process."""
    return CaptureQueueSpec(
        bytes_max=limits.capture_bytes_max,
        endpoint_bytes_max=limits.capture_bytes_max // 2,
        file_bytes_max=_FILE_BYTES_MAX,
        file_records_max=_FILE_RECORDS_MAX,
        file_wait_s=FILE_WAIT_S,
        tries_max=_TRIES_MAX,
        writes_max=_THREADS,
        backoff=_BACKOFF,
    )


class CaptureDriver:
    """The `CaptureSink` of one process. `start`, then `close` once its requests are answered."""

    def __init__(
        self,
        spec: CaptureQueueSpec,
        objects: Objects,
        clock: Clock,
        redact: Iterable[str] = (),
    ) -> None:
        """`redact`: regular expressions of what is not written; see `redaction`."""
        self._redact = redaction(redact)
        self._queue = CaptureQueue(spec)
        self._wait_s = spec.file_wait_s
        self._objects = objects
        self._clock = clock
        self._ident = uuid.uuid4()  #: of this process, for names of files
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-capture")
        self._writes: set[asyncio.Task[None]] = set()
        self._until: float | None = None  #: when the loop wakes by itself, monotonic s
        #: (destination, endpoint) -> the error of its last try
        self._failing: dict[tuple[str, str], PenstockError] = {}
        self._loop = DriverLoop("capture", self._turn, fault="data capture", retry_s=1.0)
        self._over = False

    @classmethod
    def of_process(
        cls, limits: LimitConfig, settings: ArtifactSettings, clock: Clock
    ) -> CaptureDriver:
        """The driver of a process with these limits."""
        objects = Objects(settings, free_bytes_min=limits.capture_free_bytes_min)
        return cls(queue_spec(limits), objects, clock, limits.capture_redact)

    def captures(self) -> Captures:
        """What a dispatcher needs."""
        return Captures(self, random.Random())

    def start(self) -> None:
        """Writes from now on what is put."""
        self._loop.start()

    async def close(self) -> None:
        """Writes what is held, as far as there is time. Idempotent."""
        if self._over:
            return
        self._carry_out(self._queue.stop(now=self._clock.monotonic()))
        try:
            async with asyncio.timeout(_STOP_S_MAX):
                while self._writes:
                    await asyncio.wait(self._writes)
        except TimeoutError:
            _log.warning("data capture: the last files could not be written in time")
        self._over = True
        self._carry_out(self._queue.abandon())
        await self._loop.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: captured calls that are not written yet, and what fails."""
        failing = [
            {"endpoint": endpoint, "destination": destination, "error": error.to_dict()}
            for (destination, endpoint), error in self._failing.items()
        ]
        return self._queue.snapshot() | {"failing": failing}

    # CaptureSink

    def put(self, record: CaptureRecord) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        spec = record.spec
        place = FilePlace(spec.destination_uri, record.endpoint, record.variant, int(wall // 3600))
        record.recorder.captured(CAPTURE_TAKEN)
        held: _Held = (record, wall)
        self._carry_out(self._queue.add(place, held, record.size + _RECORD_BYTES, now=now))
        if self._until is None or now + self._wait_s < self._until:
            self._loop.wake()

    def reserve(self, size: int) -> bool:
        return self._queue.reserve(size)

    def release(self, size: int) -> None:
        self._queue.release(size)

    # The loop and the writes

    async def _turn(self) -> float:
        now = self._clock.monotonic()
        due = self._queue.next_deadline()
        if due is not None and now >= due:
            self._carry_out(self._queue.on_timer(now=now))
            due = self._queue.next_deadline()
        self._until = due
        return _IDLE_S if due is None else max(0.0, due - now)

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, DropRecords):
                for record, _ in action.records:
                    record.recorder.captured(CAPTURE_DROPPED, action.reason)
            else:
                task = asyncio.get_running_loop().create_task(self._write(action))
                self._writes.add(task)
                task.add_done_callback(self._writes.discard)

    async def _write(self, action: WriteFile) -> None:
        loop = asyncio.get_running_loop()
        error = None
        try:
            counts = await loop.run_in_executor(self._threads, self._store, action)
        except PenstockError as raised:
            error = raised
        except Exception as raised:
            _log.exception("captured calls of endpoint %s", action.place.endpoint)
            error = InternalError("internal", f"writing captured calls failed: {raised}")
        if self._over:
            return
        now = self._clock.monotonic()
        if error is None:
            for (recorder, what, reason), times in counts.items():
                recorder.captured(what, reason, times)
            self._well(action.place)
            self._carry_out(self._queue.written(action.number, now=now))
        else:
            action.records[0][0].recorder.captured(CAPTURE_WRITE_FAILED, error.code)
            self._ill(action.place, error)
            self._carry_out(self._queue.failed(action.number, now=now))
        self._loop.wake()

    def _store(self, action: WriteFile) -> _Counts:
        """In a thread, so that what is to be counted is returned."""
        ident = uuid.uuid5(self._ident, str(action.number))
        place, begun = action.place, action.records[0][1]
        name = object_name(place.endpoint, place.variant, begun, str(ident))
        lines, counts = [], _Counts()
        for record, ended in action.records:
            try:
                lines.append(_line(record, ended, self._redact))
            except Exception as error:  # a meta from an instance that can't be read
                note("capture", place.endpoint, error)
                counts[record.recorder, CAPTURE_DROPPED, _UNREADABLE] += 1
            else:
                counts[record.recorder, CAPTURE_WRITTEN_BYTES, ""] += len(lines[-1])
        if lines:
            self._objects.write(
                f"{place.destination_uri.rstrip('/')}/{name}",
                b"".join(lines),
                draft="capture",
                content_type=CONTENT_TYPE,
            )
        return counts

    def _ill(self, place: FilePlace, error: PenstockError) -> None:
        """Says so once, until it is well again."""
        key = place[:2]
        if key not in self._failing:
            _log.warning(
                "captured calls of endpoint %s can't be written; it is tried again for a while,"
                " and calls are answered as before: %s: %s %s",
                *(place.endpoint, error.code, error.message, error.hint),
            )
            if len(self._failing) >= _FAILING_MAX:
                self._failing.clear()
        self._failing[key] = error

    def _well(self, place: FilePlace) -> None:
        if self._failing.pop(place[:2], None) is not None:
            _log.info("captured calls of endpoint %s are written again", place.endpoint)


def _line(record: CaptureRecord, ended: float, redact: Redaction | None = None) -> bytes:
    spec = record.spec
    request, reply = decode_request_meta(record.request_meta), decode_reply_meta(record.reply_meta)
    custom = request.custom_attributes
    if custom is not None and redact is not None:
        custom = redact(custom.encode()).decode("utf-8", "replace")
    call = CapturedCall(
        ended,
        _without(record.request, redact),
        None if record.answer is None else _without(b"".join(record.answer), redact),
        request.content_type,
        reply.content_type,
        request.inference_id,
        custom,
    )
    types = {"csv_types": spec.csv_types, "json_types": spec.json_types}
    return line(call, str(uuid.uuid4()), **types)


def _without(data: bytes | None, redact: Redaction | None) -> bytes | None:
    return data if data is None or redact is None else redact(data)
