"""A server without doors: control plane, gateway, fleet, instances and workers, all real."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

from tests.kit.polling import until

from penstock.clock import SystemClock
from penstock.config import LimitConfig, ServerConfig
from penstock.control.plane import ControlPlane
from penstock.control.store.store import Store
from penstock.core.backoff import Backoff
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.resources import ComputeResources
from penstock.fleet.local import LocalFleet, runtime_dir_for
from penstock.gateway.dispatch.awaited import AwaitedReply
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.timers import LoopTimers
from penstock.wire import frames


class LivePlane:
    """With the endpoint `shop`. Made on the loop that it runs on."""

    def __init__(self, folder: Path) -> None:
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

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[Self]:
        await self.plane.start()
        try:
            yield self
        finally:
            await self.plane.close()
            await self.gateway.close()

    async def change(self, method: Any, *args: Any, **kwargs: Any) -> None:
        """One change of the store, which is then looked at."""
        await self.plane.database.call(method, *args, **kwargs)
        self.plane.notify("shop")

    async def create_shop(self, variant: VariantSpec) -> None:
        spec = DeploymentSpec(endpoint="", generation=0, config_name="c", variants=(variant,))
        await self.change(Store.create_endpoint, "shop", spec, arn="shop", now=1.0)

    async def until(self, condition: Callable[[], Any]) -> None:
        await until(condition, lambda: self.plane.activities("shop"), 90.0)

    async def ask(self, data: object, endpoint: str = "shop", *, component: str = "") -> Any:
        """One request through the gateway. Raises what it is refused with."""
        responder = AwaitedReply(self.gateway)
        invocation = Invocation(
            endpoint,
            frames.encode_request_meta(frames.RequestMeta(content_type="application/json")),
            json.dumps(data).encode(),
            responder,
            received=time.monotonic(),
            deadline=None,
        )
        if component:
            invocation.affinity = Affinity(component=component)
        reply = await responder.get(invocation)
        self.gateway.written(invocation)
        return json.loads(reply.body)
