"""Prepares and loads all containers of a model. Either all of them serve, or nothing is left.

They share what the instance has: each may use all of its cores, memory and accelerators.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.artifacts.description.description import Batching
from penstock.cleanup import shielded
from penstock.clock import Clock, SystemClock
from penstock.core.batching.batcher import BatchSpec
from penstock.errors import ModelError, PenstockError
from penstock.instance.engines.lane_threads import LaneEvents
from penstock.instance.loading.load import LoadCall, Prepared, prepared
from penstock.instance.loading.loaded import Loaded
from penstock.instance.multi_container.work import Container, ContainersWork
from penstock.instance.settings import InstanceSettings
from penstock.instance.warm_up import load
from penstock.runtimes.base import LaneListener

#: How many containers load at once: each has its peak of memory.
_LOADS_MAX: Final = 4
_COUNT_EVERY_S: Final = 1.0  #: as target models are
#: (hostname -> its `ContainerDelta`): sends the counts to the process that adds them up.
OnCounts = Callable[[dict[str, Any]], None]
#: A reply names its lane in one byte.
_LANES_MAX: Final = 255


async def prepared_containers(
    call: LoadCall, settings: InstanceSettings, *, phase: Callable[[str], None]
) -> Prepared:
    """Fetches all artifacts within the time of one. Raises a PenstockError that names the
    container."""
    loop = asyncio.get_running_loop()
    until = loop.time() + call.download_timeout_s
    models: list[Prepared] = []
    try:
        for one in call.containers:
            part = dataclasses.replace(
                call,
                source=one.source,
                environment=one.environment,
                hostname=one.hostname,
                containers=(),
                download_timeout_s=max(0.001, until - loop.time()),
            )
            try:
                models.append(await prepared(part, settings, phase=phase))
            except PenstockError as error:
                raise _of(one.hostname, error) from None
    except BaseException:
        for model in models:
            model.environments.close()
        raise
    digests = "\n".join(model.digest for model in models)
    return Prepared(
        context=models[0].context,
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        containers=tuple(models),
        direct=call.direct,
    )


def _of(hostname: str, error: PenstockError) -> PenstockError:
    error.message = f"container {hostname}: {error.message}"
    return error


async def load_containers(model: Prepared, listener: LaneListener) -> Loaded:
    """Starts all containers. Raises a PenstockError that names the container; then nothing of them
    is left."""
    running = Containers(listener)
    try:
        await running.begin(model.containers)
    except BaseException:
        await shielded(running.close())
        raise
    containers = running.containers
    spec = _spec(containers, direct=model.direct)
    return Loaded(
        runtime=running,
        work=ContainersWork(containers, direct=model.direct),
        spec=spec,
        described=_described(containers, spec, direct=model.direct),
        warm_up_s=sum(each.loaded.warm_up_s for each in containers),
    )


class Containers:
    """The running containers of a model; to its copy, they are its runtime.

    If one of them loses its workers for a while, the whole copy is lost, as an instance of
    SageMaker is; one that will not come back ends the copy.
    """

    def __init__(self, listener: LaneListener, clock: Clock | None = None) -> None:
        self._listener = listener
        self._clock = clock or SystemClock()
        self._running: dict[int, Container] = {}  #: by their places in the model
        self._lost: set[str] = set()  #: hostnames of those without workers now
        self._counting: asyncio.Task[None] | None = None

    @property
    def containers(self) -> list[Container]:
        return [self._running[at] for at in sorted(self._running)]

    async def begin(self, models: tuple[Prepared, ...]) -> None:
        """Raises PenstockError; then the caller must call `close`."""
        turns = asyncio.Semaphore(_LOADS_MAX)

        async def begin(at: int, model: Prepared) -> None:
            async with turns:
                self._running[at] = await self._begin(model)

        tasks = [asyncio.create_task(begin(at, model)) for at, model in enumerate(models)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await shielded(asyncio.gather(*tasks, return_exceptions=True))

    async def _begin(self, model: Prepared) -> Container:
        hostname = model.context.hostname
        lanes = LaneEvents()
        try:
            loaded = await load(model, lanes)
        except PenstockError as error:
            raise _of(hostname, error) from None
        container = Container(
            hostname,
            loaded,
            model.context.environment,
            clock=self._clock,
            on_state=partial(self._on_state, hostname),
        )
        lanes.attach(container.copy)
        return container

    def _on_state(self, hostname: str, event: str, error: PenstockError | None) -> None:
        lost = error or ModelError("worker-died", f"the container {hostname} has no worker")
        if event == "copy-failed":
            self._listener.lane_failed(0, lost)
        elif event == "copy-lost":
            if not self._lost:
                self._listener.lane_lost(0, lost)
            self._lost.add(hostname)
        elif event == "copy-ready" and hostname in self._lost:
            self._lost.discard(hostname)
            if not self._lost:
                self._listener.lane_ready(0)

    def count_on(self, tell: OnCounts) -> None:
        """Reports from now on what each container did, until `close`."""

        async def count() -> None:
            while True:
                await asyncio.sleep(_COUNT_EVERY_S)
                told = {each.hostname: each.take_counts() for each in self.containers}
                if counted := {name: delta for name, delta in told.items() if delta is not None}:
                    tell(counted)

        self._counting = asyncio.create_task(count())

    @property
    def pids(self) -> list[int]:
        return [pid for each in self.containers for pid in each.loaded.pids()]

    def kill(self) -> None:
        for each in self.containers:
            each.loaded.kill()

    async def close(self) -> None:
        """Idempotent."""
        if self._counting is not None:
            self._counting.cancel()
        containers, self._running = self.containers, {}
        for each in containers:
            each.copy.close()
        await asyncio.gather(*(each.loaded.close() for each in containers))


def _spec(containers: list[Container], *, direct: bool) -> BatchSpec:
    """As many requests at once as the containers take: each has a queue of its own."""
    room = [each.loaded.described["outstanding_max"] for each in containers]
    lanes = sum(room) if direct else min(room)
    return BatchSpec(
        lanes=max(1, min(lanes, _LANES_MAX)),
        queue_rows_max=Batching().queue_rows_max,
        priorities=max(each.loaded.spec.priorities for each in containers),
    )


def _described(containers: list[Container], spec: BatchSpec, *, direct: bool) -> dict[str, Any]:
    kind = "containers"
    return {
        "runtime": kind,
        "task": kind,
        "platform": kind,
        "name": "",
        "versions": ["1"],
        "inputs": [],
        "outputs": [],
        "labels": [],
        "rows_max": 0,
        "lanes": spec.lanes,
        "lane_rows_max": 1,
        "outstanding_max": spec.queue_rows_max + spec.lanes,
        "batching": dataclasses.asdict(Batching()),
        "config": {},
        "why": f"the model has {len(containers)} containers",
        "sample": containers[0].loaded.described.get("sample"),
        "direct": direct,
        "containers": [{"hostname": each.hostname} | each.loaded.described for each in containers],
    }
