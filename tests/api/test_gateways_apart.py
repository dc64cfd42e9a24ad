"""One endpoint that can't be told of to gateways, or measured, costs only itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
from tests.api.test_observation import VIEW
from tests.kit.gateway import routes

from penstock.api.composition.gateway import GatewayProcess
from penstock.api.composition.gateways import Gateways
from penstock.api.observation import Observation
from penstock.clock import ManualClock
from penstock.config import ServerConfig
from penstock.control.reconcile.views import InstanceView
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.jobs.transform.driver import JobUsage
from penstock.metrics import item_failures
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.series.store import MetricStore

CLOCK = ManualClock(monotonic_s=100.0, wall_s=1_700_000_000.0)
NAMES = ("a-bad", "witness")
STATUS = {"cpu_s": 1.0, "memory_bytes": 250, "copies": []}


def named(endpoint: str) -> EndpointRoutes:
    return replace(routes(), endpoint=endpoint)


def test_a_gateway_takes_the_routes_that_it_can() -> None:
    published: list[str] = []
    gateway = GatewayProcess()
    gateway._dispatcher = SimpleNamespace(  # type: ignore[assignment]
        publish=lambda one: published.append(one.endpoint)
    )
    before = item_failures.counts().get("gateways", 0)
    bad, witness = (orjson.loads(orjson.dumps(named(name))) for name in NAMES)
    gateway.told("publish", {"routes": bad | {"of_a_newer_server": 1}}, b"")
    gateway.told("publish", {"routes": witness}, b"")
    assert published == ["witness"]
    assert item_failures.counts()["gateways"] == before + 1


def test_gateways_hear_when_other_endpoints_may_be_ready(tmp_path: Path) -> None:
    def ready_in_s(endpoint: str, variant: str, component: str) -> float:
        if endpoint == "a-bad":
            raise ZeroDivisionError("float division by zero")
        return 3.0

    told: list[tuple[str, Any]] = []
    dispatcher: Any = SimpleNamespace(published=lambda: [named(name) for name in NAMES])
    gateways = Gateways(ServerConfig(state_dir=tmp_path), 1, CLOCK)
    gateways.attach(dispatcher, MetricRegistry())
    gateways.group = SimpleNamespace(  # type: ignore[assignment]
        share=lambda op, fields: told.append((op, fields))
    )
    gateways._control = SimpleNamespace(ready_in_s=ready_in_s)  # type: ignore[assignment]
    gateways._share_ready()
    assert [(op, [pool[0] for pool in fields["pools"]]) for op, fields in told] == [
        ("ready-in", ["witness"])
    ]


class ApartPlane:
    """One instance each; what the odd one says of itself can't be understood, or can't be had."""

    def __init__(self, odd: object) -> None:
        self._odd = odd

    def instances(self, endpoint: str) -> list[InstanceView]:
        return [replace(VIEW, instance_id=f"i-{endpoint}")]

    async def instance_status(self, instance_id: str) -> Any:
        if "a-bad" not in instance_id:
            return STATUS
        if isinstance(self._odd, Exception):
            raise self._odd
        return self._odd


ODD = ({"copies": 7}, {"copies": [{"workers": None}]}, ["?"], OSError("no descriptor is left"))


def test_other_instances_are_measured() -> None:
    for odd in ODD:
        plane: Any = ApartPlane(odd)
        observation = Observation(plane, lambda: [named(name) for name in NAMES], CLOCK)
        (sample,) = asyncio.run(observation.samples())
        assert sample.instance_id == "i-witness", odd


def test_instances_of_other_jobs_are_measured() -> None:
    for odd in ODD:
        plane: Any = ApartPlane(odd)
        store = MetricStore()
        usage = JobUsage(plane, store, CLOCK)
        before = item_failures.counts().get("transform-usage", 0)
        asyncio.run(usage.sample(NAMES))
        hosts = {dict(one.key.dimensions)["Host"].partition("/")[0] for one in store.series()}
        assert hosts == {"witness"}, odd
        assert item_failures.counts()["transform-usage"] == before + 1
