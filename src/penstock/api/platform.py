"""The whole platform: one process, or a control side with separate gateway processes.

It makes no decisions. A single process is gateway and control plane together. With several
gateways it has no port: they share the ports, route by themselves, and forward paths without a door
to this process's Unix socket (`composition/gateways.py`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.api.access import KeyAuthenticator, check_binding
from penstock.api.app import build_refusal
from penstock.api.composition.control_side import ControlSide
from penstock.api.composition.front import Addresses, Front, addresses_of, freeze_memory
from penstock.api.composition.gateways import Gateways
from penstock.api.fleets import ServerFleet
from penstock.api.telemetry import Telemetry
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.cleanup import ShieldedExitStack
from penstock.clock import Clock, SystemClock
from penstock.config import ServerConfig
from penstock.control.database.leader_table import Term
from penstock.core.request.body_budget import BodyBudget
from penstock.core.servers.server_size import gateways_for
from penstock.fleet.base import Fleet, PlatformAccess
from penstock.fleet.local import runtime_dir_for
from penstock.fleet.machine import this_machine
from penstock.gateway.dispatch.link import FrameLink
from penstock.gateway.http.shared_port import SharedPort
from penstock.gateway.http_server.server import tls_context
from penstock.gateway.timers import LoopTimers
from penstock.jobs.capture.driver import CaptureDriver
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.pages import MetricPages
from penstock.metrics.page.prometheus import PenstockCollector, PrometheusPage
from penstock.metrics.series.store import MetricStore
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, RUNTIME, SAGEMAKER, service_model

__all__ = ["Addresses", "Platform", "settle_memory"]

log = logging.getLogger(__name__)


def settle_memory() -> None:
    """Loads the service models now, and excludes all long-lived objects from garbage collection.

    SageMaker's model alone is some 100,000 objects. Read on the first call it would stall that call
    for a quarter of a second, and every full collection afterwards for a tenth.
    """
    for name in (SAGEMAKER, CLOUDWATCH, AUTOSCALING, RUNTIME):
        service_model(name)
    freeze_memory()


class Platform:
    """One server. Call `start`, then `stop`, each once."""

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock | None = None,
        *,
        term: Term | None = None,
        port: SharedPort | None = None,
        beat_age_s: Callable[[], float] | None = None,
    ) -> None:
        """`term`: for a server that leads others on one database. `beat_age_s`: s since its last
        heartbeat there. `port`: the port to listen on, held by an owner that outlives the platform.

        Raises CallerError: `credentials-required` for a public address without keys,
        `tls-unusable`, `telemetry-not-installed`.
        """
        check_binding(config.listen)
        tls_context(config.listen)
        self._config = config
        self._term = term
        self._held_port = port
        self._beat_age_s = beat_age_s
        self._clock = clock or SystemClock()
        count = gateways_for(this_machine().cores, config.listen.gateways)
        self._gateways = Gateways(config, count, self._clock, port) if count > 1 else None
        self._fleet = ServerFleet(config, self._clock)
        self._process = "control" if count > 1 else "gateway"
        self._telemetry = Telemetry(config.telemetry, self._clock, process=self._process)
        self._stack = ShieldedExitStack()
        self._own_key = secrets.token_urlsafe(32) if config.listen.auth else ""
        self._listening = asyncio.Event()
        self._port = 0
        self.addresses = Addresses(http="", grpc="")

    async def start(self) -> Addresses:
        """Returns once clients can connect; the restoring of stored endpoints has begun then.

        Raises what the parts raise (`state-dir-in-use`, `port-in-use`, ...) and undoes the rest.
        """
        config, clock, gateways = self._config, self._clock, self._gateways
        store = MetricStore()
        registry = MetricRegistry(
            store, lag_s=gateways.metrics_lag_s if gateways else 0.0, process=self._process
        )
        capture = CaptureDriver.of_process(
            config.limits, ArtifactSettings.from_config(config), clock
        )
        self._dispatcher = dispatcher = self._telemetry.dispatcher(
            clock=clock,
            timers=LoopTimers(asyncio.get_running_loop(), clock),
            rng=random.Random(),
            limits=config.limits,
            recorders=registry,
            link_factory=partial(FrameLink, tls=self._fleet.tls),
            on_waiting=self._capacity_wanted,
            ready_in_s=self._ready_in_s,
            shared=gateways is not None,
            captures=capture.captures(),
        )
        if gateways is not None:
            gateways.attach(dispatcher, registry)
        self._control = control = ControlSide(
            config,
            clock,
            dispatcher=dispatcher,
            publisher=gateways.group if gateways is not None else dispatcher,
            fleet=self._make_fleet,
            machine=self._fleet.machine,
            elsewhere=self._fleet.elsewhere,
            store=store,
            registry=registry,
            access=self._access,
            gateway_pids=gateways.group.pids if gateways is not None else None,
            term=self._term,
            beat_age_s=self._beat_age_s,
        )
        async with ShieldedExitStack() as stack:
            stack.push_async_callback(self._fleet.close)
            stack.push_async_callback(self._telemetry.close)
            await control.start(stack)
            stack.push_async_callback(capture.close)
            capture.start()
            await self._fleet.open()
            self._telemetry.push_metrics(PenstockCollector(registry, store))
            await self._listen(stack)
            settle_memory()
            self._stack = stack.pop_all()
        if config.listen.auth and not len(control.plane.key_ring):
            log.warning("nobody can come in yet: make a key with 'penstock keys create'")
        return self.addresses

    async def stop(self) -> None:
        """Refuses new requests, answers those in flight, ends the instances. Idempotent."""
        await self._stack.aclose()

    def _make_fleet(self) -> Fleet:
        self._runtime_dir = runtime_dir_for(self._config.state_dir)
        return self._fleet.make(self._runtime_dir)

    def _capacity_wanted(self, endpoint: str, variant: str, component: str, count: int) -> None:
        if self._gateways is not None:
            self._gateways.waiting.told("", endpoint, variant, component, count)
        else:
            self._control.capacity_wanted(endpoint, variant, component, count)

    def _ready_in_s(self, endpoint: str, variant: str, component: str) -> float | None:
        return self._control.ready_in_s(endpoint, variant, component)

    async def _listen(self, stack: ShieldedExitStack) -> None:
        """Opens the ports; the part that is pushed last stops first."""
        config, control, gateways = self._config, self._control, self._gateways
        ring = control.plane.key_ring
        authenticator = (
            KeyAuthenticator(
                ring, self._clock, own_key=self._own_key, served=self._dispatcher.served
            )
            if config.listen.auth
            else None
        )
        bodies = BodyBudget(config.limits.bodies_bytes_max)
        front = Front(
            listen=config.listen,
            limits=config.limits,
            account_id=config.control.account_id,
            region=config.control.region,
            dispatcher=self._dispatcher,
            models=control.models,
            authenticator=authenticator,
            app=control.app(
                self._explain,
                self._dispatcher.snapshot,
                gateways.group.seen if gateways else list,
                self._pages,
                gateways.waiting.of if gateways else lambda _: 0,
            ),
            refusal=build_refusal(control.aws),
            asynchronous=control.async_door(),
            held=self._held_port.sockets if self._held_port is not None else (),
        )
        if gateways is None:
            grpc_port = await front.open_grpc(stack, bodies)
            server = front.http_server(bodies)
            port = await server.start()
            stack.push_async_callback(server.stop)
        else:
            inner = str(self._runtime_dir / "control.sock")
            server = front.http_server(bodies, inner=inner)
            await server.start()
            stack.push_async_callback(server.stop)
            port, grpc_port = await gateways.start(stack, control, inner, self._own_key)
        self.addresses = addresses_of(config.listen, port, grpc_port)
        self._port = port
        self._listening.set()

    def _pages(self, page: PrometheusPage) -> MetricPages:
        gateways = self._gateways
        if gateways is None:
            return MetricPages(page, self._process)
        names, others = gateways.group.names, gateways.metrics_page
        return MetricPages(page, self._process, names=names, others=others)

    async def _explain(self, request_id: str) -> dict[str, Any] | None:
        story = self._dispatcher.explain(request_id)
        if story is None and self._gateways is not None:
            return await self._gateways.explain(request_id)
        return story

    async def _access(self) -> PlatformAccess:
        """Where this server's instances reach it, and with which key."""
        await self._listening.wait()
        listen = self._config.listen
        own = self._fleet.own_host
        everywhere = {"0.0.0.0": own or "127.0.0.1", "": own or "127.0.0.1", "::": own or "::1"}
        return PlatformAccess(
            url=listen.url(everywhere.get(listen.host, listen.host), self._port),
            key=self._own_key,
            certificate="" if listen.tls_cert is None else str(listen.tls_cert.resolve()),
        )

    async def sagemaker(self, operation: str, members: dict[str, Any]) -> dict[str, Any]:
        """One internal control plane call; raises CallerError as a client would see it."""
        return await self._control.sagemaker(operation, members)

    async def deploying(self, endpoint: str) -> dict[str, Any]:
        """How far an endpoint is (`api/admin/deploying`). Raises CallerError."""
        return await self._control.deploying(endpoint)

    def model_of(self, endpoint: str) -> dict[str, Any]:
        """An endpoint's model as its first copy described it; {} before there is one."""
        routes = self._dispatcher.routes(endpoint)
        return dict(routes.variants[0].model) if routes is not None and routes.variants else {}
