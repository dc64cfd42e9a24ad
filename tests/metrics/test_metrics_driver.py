"""The driver of metrics: from what is observed of instances to the store, without a request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.core.resources import ComputeResources
from penstock.metrics import driver as driver_module
from penstock.metrics import item_failures
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.driver import MetricsDriver, VariantObserved
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.cost import InstanceHeld
from penstock.metrics.utilization.energy import EnergyMeter, EnergyRead
from penstock.metrics.utilization.instances import InstanceSample

INSTANCE = InstanceHeld(
    endpoint="shop",
    variant="main",
    instance_id="i-1",
    cores=2.0,
    watts=16.0,
    price_per_hour=36.0,
    load_s=5.0,
)
SHOP = VariantObserved(
    endpoint="shop",
    variant="main",
    copies={"ready": 1},
    serving_count=1,
    instances=(INSTANCE,),
)


class Fixed:
    """One instance that has loaded, and that answers no status call."""

    def variants(self) -> Sequence[VariantObserved]:
        return (SHOP,)

    async def samples(self) -> Sequence[InstanceSample]:
        return ()


class Hanging(EnergyMeter):
    """Its first reading hangs until it is let go; later ones are counted."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.readings = 0

    def read(self, now: float) -> EnergyRead:
        self.readings += 1
        self.let_go.wait(30)
        return EnergyRead(100.0 * self.readings, None)


async def test_a_counter_that_hangs_is_no_reading_and_its_late_answer_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "READ_S_MAX", 0.01)
    driver = metrics_driver(MetricRegistry(), tmp_path)
    meter = Hanging()
    assert await driver._read(meter, 1.0) == EnergyRead(None, None)
    assert await driver._read(meter, 2.0) == EnergyRead(None, None)
    assert meter.readings == 1
    meter.let_go.set()
    assert driver._reading is not None
    await driver._reading
    monkeypatch.setattr(driver_module, "READ_S_MAX", 30.0)
    assert await driver._read(meter, 3.0) == EnergyRead(200.0, None)


def metrics_driver(registry: MetricRegistry, tmp_path: Path) -> MetricsDriver:
    return MetricsDriver(
        registry,
        MetricStore(),
        ManualClock(),
        Fixed(),
        tmp_path / "metrics.jsonl",
        machine=ComputeResources(cores=4.0, memory_bytes=2**30),
        meter=EnergyMeter(tmp_path / "no-counters"),
    )


def test_an_instance_is_charged_from_its_cold_start_though_it_answers_nothing(
    tmp_path: Path,
) -> None:
    registry = MetricRegistry(MetricStore())

    async def scenario() -> None:
        driver = metrics_driver(registry, tmp_path)
        driver.start()
        async with asyncio.timeout(30):
            while not any(one["joules"] for one in registry.costs()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await driver.stop()

    asyncio.run(scenario())
    [cost] = registry.costs()
    assert (cost["dollars"], cost["joules"]) == (0.05, {"estimated": 80.0})


class TwoOfThem(Fixed):
    """`a-bad` counts copies that are no counts."""

    def variants(self) -> Sequence[VariantObserved]:
        bad = replace(SHOP, endpoint="a-bad", ready_s=None, instances=())  # type: ignore[arg-type]
        return (bad, SHOP)


async def test_a_variant_that_can_not_be_counted_spoils_only_itself(tmp_path: Path) -> None:
    registry = MetricRegistry()
    driver = metrics_driver(registry, tmp_path)
    driver._observed = TwoOfThem()
    before = item_failures.counts().get("metrics", 0)
    await driver._round(None, saves=False)
    page = PrometheusPage(registry).render()[0].decode()
    assert 'penstock_copies{endpoint="shop",state="ready",variant="main"} 1.0' in page
    assert f'penstock_item_failures_total{{loop="metrics"}} {before + 1.0}' in page
