"""Instances that follow the copies on them, all real: they come, are consolidated, and go idle.

The endpoint is recorded with a cooldown of a moment, where SageMaker's shortest is five minutes.
Traffic never pauses, and no request of it may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.fakes import model_files

from penstock.clock import SystemClock
from penstock.config import LimitConfig, ServerConfig
from penstock.control.plane import ControlPlane
from penstock.control.store.components import ComponentChange, NewComponent
from penstock.control.store.store import Store
from penstock.core.backoff import Backoff
from penstock.core.deployment.capacity_spec import BINPACK, CopySpec
from penstock.core.deployment.component_spec import ComponentRevision
from penstock.core.deployment.deployment import (
    CONSOLIDATION,
    DeploymentSpec,
    ManagedScaling,
    ModelSource,
    VariantSpec,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.resources import ComputeResources
from penstock.errors import PenstockError
from penstock.fleet.local import LocalFleet, runtime_dir_for
from penstock.gateway.dispatch.awaited import AwaitedReply
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.timers import LoopTimers
from penstock.wire import frames

DEADLINE_S = 90.0
#: Two of them fit on an instance of `ml.local.small`.
HALF = CopySpec(resources=ComputeResources(memory_bytes=400 * 2**20, cores=0.25))
MODEL = """
def model_fn(model_dir): return None
def predict_fn(data, model): return data
"""


class Site:
    """A server with an endpoint whose instances are managed."""

    def __init__(self, folder: Path) -> None:
        self._model = model_files.code(folder / "model", MODEL)
        clock = SystemClock()
        self.gateway = Dispatcher(
            clock=clock,
            timers=LoopTimers(asyncio.get_running_loop(), clock),
            rng=random.Random(1),
            limits=LimitConfig(),
        )
        config = ServerConfig(state_dir=folder / "s")
        self.plane = ControlPlane(
            config,
            lambda: LocalFleet(runtime_dir_for(config.state_dir)),
            self.gateway,
            clock,
            machine=ComputeResources(cores=2.0, memory_bytes=8 * 2**30),
            spec=ReconcileSpec(backoff=Backoff(0.05, 30.0), drain_s_max=10.0),
        )

    async def create(self, managed: ManagedScaling) -> None:
        variant = VariantSpec(
            name="all", model=None, instance_type="ml.local.small", instance_count=1,
            managed=managed,
        )  # fmt: skip
        spec = DeploymentSpec(endpoint="", generation=0, config_name="c", variants=(variant,))
        await self.plane.database.call(Store.create_endpoint, "shop", spec, arn="shop", now=1.0)
        self.plane.notify("shop")

    async def component(self, name: str, copies: int) -> None:
        model = ModelSource(model_name=name, uri=self._model.as_uri())
        revision = ComponentRevision(number=1, model=model, need=HALF, strategy=BINPACK)
        wanted = NewComponent(
            endpoint="shop", variant="all", copies=copies, revision=revision, request={}
        )
        await self.plane.database.call(Store.create_component, name, wanted, arn=name, now=2.0)
        self.plane.notify("shop")
        await self.settled(name, copies)

    async def set_copies(self, name: str, copies: int) -> None:
        change = ComponentChange(copies=copies)
        await self.plane.database.call(Store.update_component, name, change, now=3.0)
        self.plane.notify("shop")
        await self.settled(name, copies)

    async def settled(self, name: str, copies: int) -> None:
        await self.until(lambda: self.plane.copy_counts("shop").get(name) == copies)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            record = await self.plane.database.call(Store.describe_component, name)
            if record.desired.status == "InService":
                return
            assert record.desired.status != "Failed", record.failure_reason
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    def instances(self) -> Counter[int]:
        """How many instances there are with so many copies."""
        return Counter(len(one.copies) for one in self.plane.instances("shop"))

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, self.plane.activities("shop")
            await asyncio.sleep(0.01)

    async def ask(self, component: str, data: object) -> Any:
        """One request through the gateway. Raises what it is refused with."""
        responder = AwaitedReply(self.gateway)
        invocation = Invocation(
            "shop",
            frames.encode_request_meta(frames.RequestMeta(content_type="application/json")),
            json.dumps(data).encode(),
            responder,
            received=time.monotonic(),
            deadline=None,
        )
        invocation.affinity = Affinity(component=component)
        reply = await responder.get(invocation)
        self.gateway.written(invocation)
        return json.loads(reply.body)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Site]:
    site = Site(folder)
    await site.plane.start()
    try:
        yield site
    finally:
        await site.plane.close()
        await site.gateway.close()


@contextlib.asynccontextmanager
async def traffic(site: Site, component: str) -> AsyncIterator[Counter[str]]:
    """Three callers that never pause; every answer is the one to its question."""
    counts: Counter[str] = Counter()

    async def call(caller: int) -> None:
        while True:
            counts["asked"] += 1
            try:
                assert await site.ask(component, [caller, counts["asked"]]) is not None
            except PenstockError as error:
                counts[error.code] += 1
                return
            counts["answered"] += 1

    tasks = [asyncio.create_task(call(caller)) for caller in range(3)]
    try:
        yield counts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_instances_come_with_copies_are_consolidated_without_loss_and_go_when_idle(
    tmp_path: Path,
) -> None:
    managed = ManagedScaling(
        instances_min=0, instances_max=3, strategy=CONSOLIDATION, step_max=1, cooldown_s=0.5
    )

    async def test() -> None:
        async with running(tmp_path) as site:
            await site.create(managed)
            await site.component("x", 2)
            await site.component("y", 2)
            await site.until(lambda: site.instances() == Counter({2: 2}))
            async with traffic(site, "x") as x, traffic(site, "y") as y:
                # One copy of each is left: they go together, and one instance is enough.
                await site.set_copies("x", 1)
                await site.set_copies("y", 1)
                await site.until(lambda: site.instances() == Counter({2: 1}))
                low = x["answered"], y["answered"]
                await site.until(
                    lambda: x["answered"] > low[0] + 20 and y["answered"] > low[1] + 20
                )
                assert set(x) == set(y) == {"asked", "answered"}
            await site.set_copies("x", 0)
            await site.set_copies("y", 0)
            await site.until(lambda: site.instances() == Counter())
            told = [(one.what, one.reason) for one in site.plane.activities("shop")]
            assert ("stop instance", "idle-release") in told
            # And out again, from none.
            await site.set_copies("x", 1)
            assert await site.ask("x", [7]) == [7]

    asyncio.run(test())
