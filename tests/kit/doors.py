"""A whole gateway with its doors in front of one fake instance, for tests of front doors."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit.gateway import PREFIX, FakeInstance, routes
from tests.kit.http_clients import RawClient

from penstock.api.oip.grpc import OipGrpc
from penstock.api.oip.http import INTEREST as OIP_INTEREST
from penstock.api.oip.http import PREFIX as OIP_PREFIX
from penstock.api.oip.http import OipDoor, body_limit
from penstock.api.oip.models import OipModels
from penstock.api.openai.door import INTEREST as OPENAI_INTEREST
from penstock.api.openai.door import PREFIXES as OPENAI_PREFIXES
from penstock.api.openai.door import OpenAiDoor
from penstock.api.runtime.door import INTEREST as RUNTIME_INTEREST
from penstock.api.runtime.door import PREFIX as RUNTIME_PREFIX
from penstock.api.runtime.door import RuntimeDoor
from penstock.clock import SystemClock
from penstock.config import LimitConfig, ListenConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.forwarded_headers import HeaderForwarding
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.http_server.server import GatewayServer
from penstock.gateway.request_id import RequestIds
from penstock.gateway.timers import LoopTimers
from penstock.gateway.traffic_loads import TrafficLoads
from penstock.metrics.counts.registry import MetricRegistry

MODEL: dict[str, object] = {
    "runtime": "onnxruntime",
    "platform": "onnxruntime_onnx",
    "versions": ["1", "3"],
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1, 1]}],
    "rows_max": 8,
    "lanes": 2,
    "batching": {"rows_preferred": [4], "wait_s_max": 0.002},
}


async def no_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class DoorSite:
    def __init__(
        self, server: GatewayServer, dispatcher: Dispatcher, instance: FakeInstance
    ) -> None:
        self.server = server
        self.dispatcher = dispatcher
        self.instance = instance
        self.registry = MetricRegistry()
        self.bodies = BodyBudget(0)
        self.grpc_port = 0

    async def client(self) -> RawClient:
        return await RawClient.to(self.server.port)


@asynccontextmanager
async def door_site(
    *,
    grant_of: Any = None,
    authenticator: Any = None,
    outstanding_max: int = 100,
    model: dict[str, object] | None = None,
    drain_s_max: float = 2.0,
    asynchronous: Any = None,
    find_session: Any = None,
    regions: Any = None,
    origins: tuple[str, ...] = (),
    forward_headers: tuple[str, ...] = (),
    grpc_tls: tuple[Path, Path] | None = None,
    **limits: Any,
) -> AsyncIterator[DoorSite]:
    clock = SystemClock()
    limit_config = LimitConfig(drain_s_max=drain_s_max, **limits)
    registry = MetricRegistry()
    dispatcher = Dispatcher(
        clock=clock,
        timers=LoopTimers(asyncio.get_running_loop(), clock),
        rng=random.Random(1),
        limits=limit_config,
        recorders=registry,
        ids=RequestIds(PREFIX),
    )
    models = OipModels(dispatcher, registry, regions=regions)
    openai = OpenAiDoor(dispatcher, origins)
    forwarding = HeaderForwarding(forward_headers)
    bodies = BodyBudget(limit_config.bodies_bytes_max)
    server = GatewayServer(
        ListenConfig(port=0, origins=origins),
        limit_config,
        dispatcher,
        [
            (
                RUNTIME_PREFIX,
                RuntimeDoor(
                    dispatcher,
                    account_id="123456789012",
                    region="us-east-1",
                    openai=openai,
                    asynchronous=asynchronous,
                    find_session=find_session,
                    room=TrafficLoads(dispatcher, limit_config).room,
                ),
            ),
            *((prefix, openai) for prefix in OPENAI_PREFIXES),
            (OIP_PREFIX, OipDoor(dispatcher, models, limit_config, bodies, forwarding)),
        ],
        no_app,
        authenticator,
        bodies=bodies,
        body_limits=((OIP_PREFIX, body_limit(limit_config)),),
        interest=(*RUNTIME_INTEREST, *OIP_INTEREST, *OPENAI_INTEREST),
    )
    grpc_server = OipGrpc(
        dispatcher,
        models,
        limit_config,
        budget=bodies,
        grant_of=grant_of,
        forwarding=forwarding,
    )
    with tempfile.TemporaryDirectory() as folder:
        instance = FakeInstance(f"{folder}/i1")
        await instance.start()
        await dispatcher.connect("i1", instance.address)
        dispatcher.publish(routes(1, outstanding_max=outstanding_max, model=model or MODEL))
        await server.start()
        served = DoorSite(server, dispatcher, instance)
        served.registry = registry
        served.bodies = bodies
        cert, key = grpc_tls or (None, None)
        served.grpc_port = await grpc_server.start("127.0.0.1", 0, tls_cert=cert, tls_key=key)
        try:
            yield served
        finally:
            await grpc_server.stop(0.5)
            await server.stop()
            await instance.stop()
