"""The whole platform in one process: gateway, control plane and metrics, put together.

Nothing is decided here. Instances are child processes of the local fleet; when this process dies,
by whatever means, they end too, and the next start brings everything back from the record.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.api.access import Authenticator, check_binding
from penstock.api.admin.app import AdminServices
from penstock.api.app import build_app, build_refusal
from penstock.api.autoscaling.operations import OPERATIONS as AUTOSCALING_OPERATIONS
from penstock.api.autoscaling.parts import Scaling
from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.observation import Observation
from penstock.api.oip.grpc import OipGrpc
from penstock.api.oip.http import INTEREST as OIP_INTEREST
from penstock.api.oip.http import PREFIX as OIP_PREFIX
from penstock.api.oip.http import OipDoor
from penstock.api.oip.models import OipModels
from penstock.api.oip.targets import OipTargets
from penstock.api.openai.door import INTEREST as OPENAI_INTEREST
from penstock.api.openai.door import PREFIX as OPENAI_PREFIX
from penstock.api.openai.door import OpenAiDoor
from penstock.api.runtime.door import PREFIX as RUNTIME_PREFIX
from penstock.api.runtime.door import RuntimeDoor
from penstock.api.runtime.request import INTEREST as RUNTIME_INTEREST
from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.artifacts.source import ArtifactSettings
from penstock.clock import Clock, SystemClock
from penstock.config import ServerConfig
from penstock.control.alarms.driver import AlarmsDriver
from penstock.control.alarms.explain import explained
from penstock.control.plane import ControlPlane
from penstock.control.store_thread import StoreThread
from penstock.control.target_models import TargetModels
from penstock.core.body_budget import BodyBudget
from penstock.errors import CallerError
from penstock.fleet.base import PlatformAccess
from penstock.fleet.local import LocalFleet, runtime_dir_for
from penstock.gateway.dispatcher import Dispatcher
from penstock.gateway.server import GatewayServer, tls_context
from penstock.gateway.timers import LoopTimers
from penstock.metrics.driver import MetricsDriver
from penstock.metrics.prometheus import PrometheusPage
from penstock.metrics.registry import MetricRegistry
from penstock.metrics.store import MetricStore
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, SAGEMAKER, service_model

#: A request makes no cycles, so young objects are looked at less often than CPython's default.
GC_THRESHOLDS: Final = (20_000, 50, 50)
log = logging.getLogger(__name__)

#: Requests have drained when the gRPC server is stopped; only their last bytes are still to go.
GRPC_STOP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients connect, with the ports that were really taken."""

    http: str  #: base URL
    grpc: str  #: host:port


@dataclass(frozen=True, slots=True)
class CloudWatchCall:
    """One CloudWatch call's surroundings."""

    store: MetricStore
    database: StoreThread
    alarms: AlarmsDriver
    clock: Clock
    region: str
    account_id: str


def settle_memory() -> None:
    """Loads the service models now and keeps all that lives for ever out of garbage collection.

    SageMaker's model alone is some 100,000 objects. Read on the first call it would stall that call
    for a quarter of a second, and every full collection afterwards for a tenth.
    """
    for name in (SAGEMAKER, CLOUDWATCH, AUTOSCALING):
        service_model(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class Platform:
    """One server. `start`, then `stop`, each once."""

    def __init__(self, config: ServerConfig, clock: Clock | None = None) -> None:
        """Raises CallerError: `credentials-required` if strangers could come in, `tls-unusable`."""
        check_binding(config.listen)
        tls_context(config.listen)
        self._config = config
        self._clock = clock or SystemClock()
        self._store = MetricStore()
        self._registry = MetricRegistry(self._store)
        self._stack = AsyncExitStack()
        self._own_key = secrets.token_urlsafe(32) if config.listen.auth else ""
        self._listening = asyncio.Event()
        self.addresses = Addresses(http="", grpc="")

    async def start(self) -> Addresses:
        """Returns once clients can connect; endpoints on record are being brought back then.

        Raises what the parts raise (`state-dir-in-use`, `port-in-use`, ...); the rest is undone.
        """
        config, clock = self._config, self._clock
        self._dispatcher = Dispatcher(
            clock=clock,
            timers=LoopTimers(asyncio.get_running_loop(), clock),
            rng=random.Random(),
            limits=config.limits,
            recorders=self._registry,
            on_waiting=self._capacity_wanted,
            ready_in_s=self._ready_in_s,
        )
        self._plane = ControlPlane(
            config,
            lambda: LocalFleet(runtime_dir_for(config.state_dir)),
            self._dispatcher,
            clock,
            access=self._access,
            model_counted=self._model_counted,
        )
        self._target_models = TargetModels(
            self._plane, self._dispatcher.hosts_for, ArtifactSettings.from_config(config.control)
        )
        self._scaling = Scaling(config, self._plane, self._registry, clock)
        act = self._scaling.driver.on_alarm
        self._alarms = AlarmsDriver(self._plane.database, self._store, clock, act)
        self._aws = AwsFrontDoor(self._services(), region_default=config.control.region)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._plane.close)
            await self._plane.start()
            metrics = MetricsDriver(
                self._registry,
                self._store,
                clock,
                Observation(self._plane, self._dispatcher.published, clock),
                config.state_dir / "metrics.jsonl",
            )
            stack.push_async_callback(metrics.stop)
            metrics.start()
            stack.push_async_callback(self._scaling.driver.close)
            await self._scaling.driver.start()
            stack.push_async_callback(self._alarms.stop)
            self._alarms.start()
            await self._listen(stack)
            settle_memory()
            self._stack = stack.pop_all()
        if config.listen.auth and not len(self._plane.key_ring):
            log.warning("nobody can come in yet: make a key with 'penstock keys create'")
        return self.addresses

    def _model_counted(
        self, endpoint: str, variant: str, instance_id: str, told: dict[str, Any]
    ) -> None:
        self._registry.add_models(endpoint, variant, instance_id, told, self._clock.wall())

    def _capacity_wanted(self, endpoint: str, variant: str, component: str, count: int) -> None:
        self._plane.capacity_wanted(endpoint, variant, component, count)
        self._scaling.driver.capacity_wanted(endpoint, variant, component, count)

    def _ready_in_s(self, endpoint: str, variant: str, component: str) -> float | None:
        return self._plane.ready_in_s(endpoint, variant, component)

    async def stop(self) -> None:
        """Refuses what is new, answers what is in flight, ends the instances. Idempotent."""
        await self._stack.aclose()

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
                lambda region: CloudWatchCall(
                    self._store, self._plane.database, self._alarms, self._clock, region, account_id
                ),
            ),
            AwsService(AUTOSCALING, AUTOSCALING_OPERATIONS, self._scaling.context),
        )

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Opens both ports; what is pushed last is stopped first."""
        listen, limits, control = self._config.listen, self._config.limits, self._config.control
        dispatcher = self._dispatcher
        ring = self._plane.key_ring
        authenticator = (
            Authenticator(ring, self._clock, own_key=self._own_key) if listen.auth else None
        )
        bodies = BodyBudget(limits.bodies_bytes_max)
        models = OipModels(dispatcher, self._registry, OipTargets(dispatcher, self._target_models))
        grpc = OipGrpc(
            dispatcher,
            models,
            limits,
            grant_of=authenticator.bearer_grant if authenticator else None,
            budget=bodies,
        )
        stack.push_async_callback(grpc.stop, GRPC_STOP_S)
        grpc_port = await grpc.start(
            listen.host, listen.grpc_port, tls_cert=listen.tls_cert, tls_key=listen.tls_key
        )
        openai = OpenAiDoor(dispatcher)
        runtime = RuntimeDoor(
            dispatcher, account_id=control.account_id, region=control.region, openai=openai
        )
        admin = AdminServices(
            self._plane,
            self._target_models,
            dispatcher.explain,
            dispatcher.snapshot,
            self._registry.costs,
            self._registry.models.usage.rows,
            lambda: explained(self._alarms.seen()),
            self._scaling.explain,
        )
        server = GatewayServer(
            listen,
            limits,
            dispatcher,
            (
                (RUNTIME_PREFIX, runtime),
                (OIP_PREFIX, OipDoor(dispatcher, models, limits)),
                (OPENAI_PREFIX, openai),
            ),
            build_app(self._aws, admin, PrometheusPage(self._registry, self._store)),
            authenticator,
            interest=(*RUNTIME_INTEREST, *OIP_INTEREST, *OPENAI_INTEREST),
            refusal=build_refusal(self._aws),
            bodies=bodies,
        )
        port = await server.start()
        stack.push_async_callback(server.stop)
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        scheme = "https" if listen.tls_cert is not None else "http"
        self.addresses = Addresses(http=f"{scheme}://{host}:{port}", grpc=f"{host}:{grpc_port}")
        self._port = port
        self._listening.set()

    async def _access(self) -> PlatformAccess:
        """How this server's instances reach it: they are on this machine."""
        await self._listening.wait()
        listen = self._config.listen
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)
        scheme = "https" if listen.tls_cert is not None else "http"
        return PlatformAccess(
            url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._port}",
            key=self._own_key,
            certificate="" if listen.tls_cert is None else str(listen.tls_cert.resolve()),
        )

    async def sagemaker(self, operation: str, members: dict[str, Any]) -> dict[str, Any]:
        """One control plane call from inside; raises CallerError as a client would see it."""
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
        """An endpoint's model as its first copy described it; {} while it has none."""
        routes = self._dispatcher.routes(endpoint)
        return dict(routes.variants[0].model) if routes is not None and routes.variants else {}
