"""The whole platform in one process: gateway, control plane and metrics, put together.

Nothing is decided here. Instances are child processes of the local fleet; when this process dies, by
whatever means, they end too, and the next start brings everything back from the record.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.api import access
from penstock.api.admin.app import AdminServices
from penstock.api.app import build_app
from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.runtime.door import PREFIX as RUNTIME_PREFIX
from penstock.api.runtime.door import RuntimeDoor
from penstock.api.runtime.request import INTEREST as RUNTIME_INTEREST
from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.clock import Clock, SystemClock
from penstock.config import ServerConfig
from penstock.control.plane import ControlPlane
from penstock.errors import CallerError
from penstock.fleet.local import LocalFleet, runtime_dir_for
from penstock.gateway.asgi import AsgiDoor
from penstock.gateway.dispatcher import Dispatcher
from penstock.gateway.listener import HttpListener
from penstock.gateway.timers import LoopTimers
from penstock.metrics.driver import MetricsDriver
from penstock.metrics.prometheus import PrometheusPage
from penstock.metrics.registry import MetricRegistry
from penstock.metrics.store import MetricStore
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import CLOUDWATCH, SAGEMAKER


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients connect, with the ports that were really taken."""

    http: str  #: base URL
    grpc: str  #: host:port


@dataclass(frozen=True, slots=True)
class CloudWatchCall:
    """One CloudWatch call's surroundings."""

    store: MetricStore
    clock: Clock
    region: str
    account_id: str


class Platform:
    """One server. `start`, then `stop`, each once."""

    def __init__(self, config: ServerConfig, clock: Clock | None = None) -> None:
        """Raises CallerError if strangers could come in (`credentials-required`)."""
        access.check_binding(config.listen)
        self._config = config
        self._clock = clock or SystemClock()
        self._store = MetricStore()
        self._registry = MetricRegistry(self._store)
        self.addresses = Addresses(http="", grpc="")

    async def start(self) -> Addresses:
        """Returns once clients can connect; endpoints on record are being brought back then.

        Raises what the parts raise: `state-dir-in-use`, `port-in-use`, ...
        """
        config, clock = self._config, self._clock
        self._dispatcher = Dispatcher(
            clock=clock,
            timers=LoopTimers(asyncio.get_running_loop(), clock),
            rng=random.Random(),
            limits=config.limits,
            recorders=self._registry,
        )
        self._plane = ControlPlane(
            config,
            lambda: LocalFleet(runtime_dir_for(config.state_dir)),
            self._dispatcher,
            clock,
        )
        await self._plane.start()
        try:
            self._aws = AwsFrontDoor(self._services(), region_default=config.control.region)
            await self._listen()
        except BaseException:
            await self._plane.close()
            raise
        return self.addresses

    def _services(self) -> Sequence[AwsService]:
        account_id = self._config.control.account_id
        return (
            AwsService(
                SAGEMAKER,
                SAGEMAKER_OPERATIONS,
                lambda region: SagemakerContext(
                    self._plane.database, self._plane, self._clock, region, account_id
                ),
            ),
            AwsService(
                CLOUDWATCH,
                CLOUDWATCH_OPERATIONS,
                lambda region: CloudWatchCall(self._store, self._clock, region, account_id),
            ),
        )

    async def _listen(self) -> None:
        config = self._config
        admin = AdminServices(self._plane, self._dispatcher.explain, self._dispatcher.snapshot)
        app = build_app(self._aws, admin, PrometheusPage(self._registry, self._store))
        runtime = RuntimeDoor(
            self._dispatcher, account_id=config.control.account_id, region=config.control.region
        )
        self._listener = HttpListener(
            limits=config.limits,
            clock=self._clock,
            ids=self._dispatcher.ids,
            doors=((RUNTIME_PREFIX, runtime),),
            fallback=AsgiDoor(app),
            interest=RUNTIME_INTEREST,
        )
        port = await self._listener.start(config.listen.host, config.listen.port)
        self.addresses = Addresses(http=f"http://{config.listen.host}:{port}", grpc="")

    async def stop(self) -> None:
        await self._listener.stop(self._config.limits.drain_s_max)
        await self._plane.close()

    async def sagemaker(self, operation: str, members: dict[str, Any]) -> dict[str, Any]:
        """One call of the control plane from inside; raises CallerError as a client would see it."""
        headers = {
            "x-amz-target": f"SageMaker.{operation}",
            "content-type": "application/x-amz-json-1.1",
        }
        http = HttpRequest("POST", "/", "", headers, orjson.dumps(members))
        answer = await self._aws.handle(http, self._dispatcher.ids.text(0))
        fields: dict[str, Any] = orjson.loads(answer.body or b"{}")
        if answer.status >= 300:
            raise CallerError(fields.get("__type", "unknown"), fields.get("message", ""))
        return fields

    def model_of(self, endpoint: str) -> dict[str, Any]:
        """The description of an endpoint's model, as its first copy gave it; {} while there is none."""
        routes = self._dispatcher.routes(endpoint)
        return dict(routes.variants[0].model) if routes is not None and routes.variants else {}
