"""A control plane with real child processes that speak the real protocol, and a gateway that writes
down what it is told.

Instances are `fake_instance.py`. Which database they use says `databases.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from tests.kit import databases
from tests.kit.polling import until

from penstock.config import ListenConfig, ServerConfig
from penstock.control.plane import ControlPlane
from penstock.control.state_dir import make_state_dir
from penstock.control.store.records import EndpointRecord, NotFound
from penstock.control.store.store import Store
from penstock.core.backoff import Backoff
from penstock.core.deployment.deployment import (
    DeploymentSpec,
    EndpointRoutes,
    ModelSource,
    VariantSpec,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.resources import ComputeResources
from penstock.fleet.local import LocalFleet, runtime_dir_for

PROGRAM = Path(__file__).with_name("fake_instance.py")
MACHINE = ComputeResources(cores=2.0, memory_bytes=8 * 2**30)
#: As always, only faster.
SPEC = ReconcileSpec(backoff=Backoff(0.05, 30.0), gone_s_max=1.0, drain_s_max=5.0)


class Gateway:
    """A `RoutePublisher` that writes down what it is told, in order."""

    def __init__(self) -> None:
        self.connected: dict[str, str] = {}
        self.routes: dict[str, EndpointRoutes] = {}
        self.requests: dict[int, int] = {}  #: copy -> requests in flight on it
        self.story: list[str] = []
        self.busy = asyncio.Event()  #: cleared: copies that drain have requests in flight
        self.busy.set()

    async def connect(self, instance_id: str, address: str) -> None:
        self.connected[instance_id] = address

    async def disconnect(self, instance_id: str) -> None:
        self.connected.pop(instance_id, None)

    def publish(self, routes: EndpointRoutes) -> None:
        for variant in routes.variants:
            for copy in variant.copies:
                assert copy.instance_id in self.connected, "routed to where no request can go"
        self.routes[routes.endpoint] = routes
        self.story.append(f"publish {self.copies(routes.endpoint)}")

    def withdraw(self, endpoint: str) -> None:
        self.routes.pop(endpoint, None)
        self.story.append("withdraw")

    def outstanding(self, copy: int) -> int:
        return self.requests.get(copy, 0)

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        self.story.append(f"drain {list(copies)}")
        try:
            async with asyncio.timeout(timeout_s):
                await self.busy.wait()
        except TimeoutError:
            return False
        return True

    def copies(self, endpoint: str = "shop") -> list[int]:
        routes = self.routes.get(endpoint)
        if routes is None:
            return []
        return [route.copy for variant in routes.variants for route in variant.copies]


class ControlPlaneServer:
    """One life of a server: a plane, its gateway and its fleet."""

    def __init__(self, state_dir: Path, machine: ComputeResources = MACHINE, **listen: Any) -> None:
        self.gateway = Gateway()
        if databases.term() is not None:  # whoever leads has taken it
            make_state_dir(state_dir)
        config = ServerConfig(
            state_dir=state_dir,
            listen=ListenConfig(**listen),
            control=databases.control_config(),
        )
        self.plane = ControlPlane(
            config,
            lambda: LocalFleet(runtime_dir_for(state_dir), command=(sys.executable, str(PROGRAM))),
            self.gateway,
            machine=machine,
            spec=SPEC,
            term=databases.term(),
        )

    async def create(self, name: str = "shop", how: str = "ok", **options: Any) -> None:
        await self.plane.database.call(
            Store.create_endpoint, name, deployment(how, **options), arn=name, now=1.0
        )
        self.plane.notify(name)

    async def update(self, name: str = "shop", how: str = "ok", **options: Any) -> None:
        await self.plane.database.call(
            Store.begin_update, name, deployment(how, **options), now=2.0
        )
        self.plane.notify(name)

    async def weights(self, change: tuple[float | None, int | None]) -> None:
        await self.plane.database.call(Store.update_weights, "shop", {"blue": change}, now=3.0)
        self.plane.notify("shop")

    async def delete(self, name: str = "shop") -> None:
        await self.plane.database.call(Store.begin_delete, name, now=4.0)
        self.plane.notify(name)

    async def record(self, name: str = "shop") -> EndpointRecord:
        return await self.plane.database.call(Store.describe_endpoint, name)

    async def reaches(self, status: str, name: str = "shop") -> EndpointRecord:
        async def there() -> bool:
            return (await self.record(name)).status == status

        await until(there, lambda: f"not {status}: {self.plane.activities(name)}")
        return await self.record(name)

    def pids(self) -> list[int]:
        return [one.pid for one in self.plane.instances("shop") if one.pid is not None]

    def states(self, name: str = "shop") -> list[str]:
        """Of every copy; of an instance that has none yet."""
        return [state for one in self.plane.instances(name) for state in one.states]

    async def settled(self, count: int, name: str = "shop") -> None:
        """Exactly `count` instances, all of them serving."""

        async def there() -> bool:
            serve = self.states(name) == ["ready"] * count
            return serve and len(self.gateway.copies(name)) == count

        await until(there, lambda: f"{self.plane.instances(name)} {self.plane.activities(name)}")


def deployment(
    how: str = "ok", *, count: int = 1, kind: str = "ml.local.small", gate: Path | None = None
) -> DeploymentSpec:
    environment = (("GATE", str(gate)),) if gate is not None else ()
    source = ModelSource(model_name="intent", uri=f"fake://{how}", environment=environment)
    variant = VariantSpec(
        name="blue",
        model=source,
        instance_type=kind,
        instance_count=count,
        download_timeout_s=20.0,
        startup_timeout_s=20.0,
    )
    return DeploymentSpec(endpoint="", generation=0, config_name=how, variants=(variant,))


@contextlib.asynccontextmanager
async def running(state_dir: Path, **options: Any) -> AsyncIterator[ControlPlaneServer]:
    server = ControlPlaneServer(state_dir, **options)
    await server.plane.start()
    try:
        yield server
    finally:
        await server.plane.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def gone(server: ControlPlaneServer, name: str = "shop") -> None:
    async def there() -> bool:
        try:
            await server.record(name)
        except NotFound:
            return True
        return False

    await until(there)
