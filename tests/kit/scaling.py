"""Application Auto Scaling and CloudWatch over a real database, metrics and drivers, with boto3 on
them and a clock that the test moves. Instances are there as soon as they are wished."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.kit.alarms import ACCOUNT, T0
from tests.kit.boto3_clients import client_of

from penstock.api.autoscaling.context import Scaling
from penstock.api.autoscaling.operations import OPERATIONS
from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.clock import ManualClock
from penstock.config import ScalingConfig, ServerConfig
from penstock.control.alarms.driver import AlarmsDriver
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec
from penstock.core.deployment.endpoint_state import UPDATING
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.series.store import MetricStore
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH

__all__ = ["ACCOUNT", "T0", "VARIANT", "ScalingSite"]

VARIANT: dict[str, str] = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/chat/variant/all",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


class ScalingPlane:
    """What scaling asks the control plane for."""

    def __init__(self, site: ScalingSite) -> None:
        self._site = site
        self.database = site.database

    def notify(self, endpoint: str) -> None:
        self._site.notified.append(endpoint)

    def current_counts(self, endpoint: str) -> dict[str, int]:
        return dict(self._site.ready.get(endpoint, {}))

    def copy_counts(self, endpoint: str) -> dict[str, int]:
        return {}

    def start_s(self, endpoint: str, variant: str, component: str) -> float | None:
        return None


class ScalingSite:
    def __init__(self, state_dir: Path, **settings: Any) -> None:
        self.clock = ManualClock(wall_s=float(T0))
        self.metrics = MetricStore()
        self.registry = MetricRegistry(self.metrics)
        self.notified: list[str] = []
        self.ready: dict[str, dict[str, int]] = {}
        self.ready_max = 1_000  #: instances that the machine has room for
        self.database = StoreThread(lambda: Store(state_dir))
        config = ServerConfig(scaling=ScalingConfig(**settings))
        plane: Any = ScalingPlane(self)
        self.scaling = Scaling(config, plane, self.registry, self.clock)
        self.driver = self.scaling.driver
        self.alarms = AlarmsDriver(self.database, self.metrics, self.clock, self.driver.on_alarm)
        services = (
            AwsService(AUTOSCALING, OPERATIONS, self.scaling.context),
            AwsService(CLOUDWATCH, CLOUDWATCH_OPERATIONS, self._cloudwatch),
        )
        self.door = AwsFrontDoor(services, region_default="us-east-1")
        self.run(self._open())

    def _cloudwatch(self, region: str) -> Any:
        return SimpleNamespace(
            store=self.metrics, database=self.database, alarms=self.alarms, clock=self.clock,
            region=region, account_id=ACCOUNT,
        )  # fmt: skip

    async def _open(self) -> None:
        await self.database.open()
        await self.alarms.tick()
        await self.driver.tick()

    @staticmethod
    def run(steps: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(steps)

    def close(self) -> None:
        self.run(self.database.close())

    def call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """One method of the store."""
        return self.run(self.database.call(method, *args, **kwargs))

    def endpoint(self, name: str = "chat", count: int = 1) -> None:
        """One in service, with a variant `all`."""
        variant = VariantSpec(
            name="all",
            model=ModelSource(model_name="m"),
            instance_type="ml.local.small",
            instance_count=count,
        )
        deployment = DeploymentSpec(
            endpoint=name, generation=1, config_name="c", variants=(variant,)
        )
        self.call(Store.create_endpoint, name, deployment, arn=name, now=1.0)
        self.call(Store.set_status, name, "InService", now=2.0, active_generation=1)
        self.ready[name] = {"all": count}
        self.recorder = self.registry.recorder(name, "all")

    def count(self, name: str = "chat") -> int:
        """The recorded count of its variant."""
        active = self.call(Store.describe_endpoint, name).active
        return int(active.variants[0].instance_count)

    async def _reconcile(self) -> None:
        for record in await self.database.call(Store.all_endpoints):
            count = record.active.variants[0].instance_count if record.active else 0
            if record.status != UPDATING or record.target is not None:
                continue
            fits = count <= self.ready_max
            await self.database.call(
                Store.set_status,
                record.name,
                "InService",
                now=self.clock.wall(),
                failure_reason="" if fits else "CapacityError: the machine is full",
                active_generation=1,
                restore_previous=not fits,
            )
            if fits:
                self.ready[record.name] = {"all": count}

    def until(self, second: float) -> None:
        """The server's seconds up to T0 + `second`."""

        async def seconds() -> None:
            while self.clock.wall() < T0 + second:
                self.clock.advance(1.0)
                self.registry.collect(self.clock.wall())
                for name, counts in self.ready.items():
                    self.registry.set_instance_count(name, "all", max(1, counts["all"]))
                await self._reconcile()
                await self.driver.tick()
                await self.alarms.tick()

        self.run(seconds())

    def client(self, service: str = "application-autoscaling", *, checks: bool = True) -> Any:
        """An unmodified boto3 that talks to the door. Without `checks` it sends all it gets."""
        return client_of(
            service, lambda http: self.run(self.door.handle(http, "id")), checks=checks
        )
