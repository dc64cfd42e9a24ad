"""The metrics of a server go on behind a fault, and its history is not thrown away."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.core.resources import ComputeResources
from penstock.metrics import driver
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.driver import MetricsDriver, VariantObserved
from penstock.metrics.series.series import MetricKey
from penstock.metrics.series.snapshot import Snapshot, load
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.energy import EnergyMeter
from penstock.metrics.utilization.instances import InstanceSample


class WithoutDescriptors:
    """What reconciles, which fails `times` times as it does where no descriptor is left."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked = 0

    def variants(self) -> Sequence[VariantObserved]:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return ()

    async def samples(self) -> Sequence[InstanceSample]:
        return ()


def driver_of(store: MetricStore, observed: WithoutDescriptors, path: Path) -> MetricsDriver:
    return MetricsDriver(
        MetricRegistry(store),
        store,
        ManualClock(),
        observed,
        path,
        machine=ComputeResources(cores=1.0, memory_bytes=2**30),
        meter=EnergyMeter(path.with_name("no-counters")),
    )


def test_a_second_that_fails_costs_that_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "COLLECT_EVERY_S", 0.001)
    observed = WithoutDescriptors(times=3)

    async def scenario() -> None:
        metrics = driver_of(MetricStore(), observed, tmp_path / "metrics.jsonl")
        metrics.start()
        async with asyncio.timeout(30):
            while observed.asked < 6:  # noqa: ASYNC110 - nothing tells of a second
                await asyncio.sleep(0.001)
        await metrics.stop()

    asyncio.run(scenario())
    assert (tmp_path / "metrics.jsonl").exists(), "and the last state is written"


@pytest.mark.parametrize("spoilt", ["another version", "no permission"])
def test_history_that_can_not_be_read_is_kept_aside(
    tmp_path: Path, spoilt: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer version wrote it, or this once it could not be opened: it is not replaced."""
    path = tmp_path / "metrics.jsonl"
    store = MetricStore()
    one = StatisticSet.from_values(1.0, 7.0, 7.0, 7.0)
    store.put(MetricKey("N", "A", (), "None"), 60.0, one, now=60.0)
    Snapshot.take(store).write(path)
    if spoilt == "another version":
        path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":9'))
    else:
        real = Path.read_bytes

        def read_bytes(self: Path) -> bytes:
            if self == path:
                raise OSError(errno.EMFILE, "Too many open files")
            return real(self)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
    before = path.read_text()

    async def scenario() -> None:
        metrics = driver_of(MetricStore(), WithoutDescriptors(times=0), path)
        metrics.start()
        await metrics.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    monkeypatch.undo()
    aside = path.with_name("metrics.jsonl.unreadable")
    assert aside.read_text() == before
    assert str(aside) in caplog.text
    assert load(path, MetricStore(), now=61.0) == 0
