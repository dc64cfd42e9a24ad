"""The spans that run in an instance: `transform` and `transform-stop`, and their progress.

A span belongs to the connection that requested it. If that breaks, nobody gets the result, so the
span ends; the client requests it again after it has reconnected. When a copy is unloaded, its spans
end first.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Any, Final

import orjson

from penstock.cleanup import shielded
from penstock.core.jobs.asynchronous_actions import bodies_at_once
from penstock.core.jobs.container import ContainerSays, completed, container_says
from penstock.core.jobs.spec import SpanDone
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.instance.connection import Connection
from penstock.instance.copy import Copy
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.loading.loaded import Loaded
from penstock.instance.settings import InstanceSettings
from penstock.instance.transform.apart import run_apart, through_copy, through_rows
from penstock.instance.transform.body_span import BodySpan
from penstock.instance.transform.call import SpanProgress, TransformCall, stopped
from penstock.instance.transform.lane_pool import LanePool
from penstock.instance.transform.rows_span import RowsSpan
from penstock.wire import frames

#: Time between two events about a span.
TELL_S: Final = 0.5

#: Number of a copy -> the copy and its loaded model; raises CallerError if it is not here.
Find = Callable[[int], tuple[Copy, Loaded]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Running:
    call: TransformCall
    connection: Connection
    progress: SpanProgress
    over: asyncio.Event


class Transforms:
    def __init__(self, settings: InstanceSettings, find: Find) -> None:
        self._settings = settings
        self._find = find
        self._running: dict[tuple[str, int, int], _Running] = {}
        self._lanes: dict[int, LanePool] = {}  #: copy -> its lanes
        #: Copy -> bound for the bodies that it has at once
        self._at_once: dict[int, asyncio.Semaphore] = {}
        self._says: dict[int, ContainerSays] = {}  #: copy -> settings that its container names

    async def transform(self, connection: Connection, call: dict[str, Any]) -> dict[str, Any]:
        """Returns a SpanDone, or that the suspects have passed. Raises PenstockError; then nothing
        of the span is left."""
        wanted = TransformCall.from_dict(call, self._settings)
        copy, loaded = self._find(wanted.copy)
        if wanted.key in self._running:
            raise NotNowError(
                "transform-span-running",
                f"span {wanted.span.number} of object {wanted.span.object} is being transformed",
                retry_after_s=1.0,
            )
        running = _Running(wanted, connection, SpanProgress(), asyncio.Event())
        self._running[wanted.key] = running
        telling = asyncio.create_task(self._tell(running))
        try:
            if loaded.rows is None:
                says = await self._container_says(wanted.copy, loaded)
                wanted = dataclasses.replace(wanted, spec=completed(wanted.spec, says))
            if wanted.apart:
                await self._run_apart(wanted, running.progress, copy, loaded)
                return {"passed": True}
            return dataclasses.asdict(await self._run(wanted, running.progress, copy, loaded))
        finally:
            telling.cancel()
            del self._running[wanted.key]
            running.over.set()

    async def _run(
        self, call: TransformCall, progress: SpanProgress, copy: Copy, loaded: Loaded
    ) -> SpanDone:
        if loaded.rows is None:
            count = _bodies_at_once(call, loaded)
            at_once = self._at_once.setdefault(call.copy, asyncio.Semaphore(count))
            span_of_bodies = BodySpan(call, copy, progress, at_once=at_once, ahead=2 * count)
            return await span_of_bodies.run()
        with closing(self._pool(call.copy, loaded).begin()) as lanes:
            span = RowsSpan(call, loaded.rows, lanes, progress)
            done = await _on_a_thread(span.run, progress)
        copy.requests += done.records - done.refused
        return done

    async def _run_apart(
        self, call: TransformCall, progress: SpanProgress, copy: Copy, loaded: Loaded
    ) -> None:
        if loaded.rows is None:
            run = through_copy(call, copy)
        else:
            run = through_rows(call, loaded.rows, self._pool(call.copy, loaded))
        await run_apart(call, progress, run)

    def _pool(self, copy: int, loaded: Loaded) -> LanePool:
        pool = self._lanes.get(copy)
        if pool is None:
            assert isinstance(loaded.threads, LaneThreads)
            pool = self._lanes[copy] = LanePool(loaded.threads, loaded.spec.lanes)
        return pool

    async def _container_says(self, copy: int, loaded: Loaded) -> ContainerSays:
        """The same for all spans of a copy, so that a repeated span has the same bodies."""
        ask = getattr(loaded.runtime, "execution_parameters", None)
        if ask is not None and copy not in self._says:
            told = await ask()
            if told is None:
                return ContainerSays()
            self._says.setdefault(copy, container_says(told))
        return self._says.get(copy, ContainerSays())

    async def _tell(self, running: _Running) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            call, progress = running.call, running.progress
            told = {
                "event": "transform-progress",
                "job": call.job,
                "object": call.span.object,
                "span": call.span.number,
                "records": progress.records,
                "refused": progress.refused,
            }
            running.connection.send(frames.encode(frames.EVENT, 0, orjson.dumps(told)))

    # Ends

    async def stop(self, call: dict[str, Any]) -> dict[str, Any]:
        """Returns the number of the job's spans, once all have ended."""
        job = call.get("job")
        if not isinstance(job, str):
            raise CallerError("bad-control-call", 'transform-stop needs "job"')
        spans = [each for each in self._running.values() if each.call.job == job]
        await _ended(spans, stopped(job))
        return {"count": len(spans)}

    def disconnected(self, connection: Connection) -> None:
        for running in self._running.values():
            if running.connection is connection:
                running.progress.end(
                    NotNowError("transform-caller-gone", "whoever asked for the span is gone")
                )

    async def unload(self, copy: int) -> None:
        """Ends the spans of a copy, before the copy itself ends."""
        await _ended([each for each in self._running.values() if each.call.copy == copy], _ending())
        self._lanes.pop(copy, None)
        self._at_once.pop(copy, None)
        self._says.pop(copy, None)

    async def close(self) -> None:
        await _ended(list(self._running.values()), _ending())


def _bodies_at_once(call: TransformCall, loaded: Loaded) -> int:
    return bodies_at_once(
        call.spec.concurrency_max,
        foreign=hasattr(loaded.runtime, "execution_parameters"),
        lanes=loaded.spec.lanes,
        rows_max=loaded.spec.rows_max,
        queue_rows_max=loaded.spec.queue_rows_max,
    )


async def _on_a_thread(run: Callable[[], SpanDone], progress: SpanProgress) -> SpanDone:
    working = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:  # the instance ends: waits for the threads to stop
        progress.end(_ending())
        with suppress(PenstockError):
            await shielded(working)
        raise


async def _ended(spans: Iterable[_Running], why: PenstockError) -> None:
    for each in spans:
        each.progress.end(why)
    for each in spans:
        await each.over.wait()


def _ending() -> NotNowError:
    return NotNowError("transform-copy-ending", "the copy that ran the span is being ended")
