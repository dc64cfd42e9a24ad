"""One odd target model costs only itself: what a host looks at again and again goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from penstock.clock import ManualClock
from penstock.core.models.idle_warm_up import LaneShape
from penstock.core.residency import NOTHING, Footprint
from penstock.instance.models.idle_warm_up import IdleWarmUpDriver
from penstock.instance.models.target import HostedTarget
from penstock.instance.models.watch import Watch
from penstock.metrics import item_failures

TAKEN = Footprint(host_bytes=7)


class Runtime:
    """Of one model; an odd one raises whatever it is asked."""

    def __init__(self, *, odd: bool) -> None:
        self.odd = odd
        self.released = 0

    def release_memory(self) -> None:
        if self.odd:
            raise RuntimeError("its compiler is gone")
        self.released += 1

    def pids(self) -> list[int]:
        if self.odd:
            raise ProcessLookupError("its process is gone")
        return [1]


class Loader:
    """Measures whatever it is given, and runs every shape but an odd model's."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[int]]] = []
        self.ran: list[tuple[str, LaneShape]] = []

    async def measured(self) -> Footprint:
        return NOTHING

    async def by_model(self, loaded: Any, pids: Mapping[str, list[int]]) -> dict[str, Footprint]:
        self.asked.append(dict(pids))
        assert set(loaded) == set(pids)
        return dict.fromkeys(pids, TAKEN)

    async def run_shape(self, warms: Any, shape: LaneShape) -> None:
        if warms.odd:
            raise RuntimeError("its lane is gone")
        self.ran.append((warms.name, shape))


def target(name: str, *, odd: bool) -> HostedTarget:
    found = HostedTarget(name=name, number=1, rested=False)
    runtime = Runtime(odd=odd)
    shapes = [LaneShape(0, 1, 8), LaneShape(0, 1, 16)]
    warms = SimpleNamespace(name=name, odd=odd, shapes=shapes)
    loaded: Any = SimpleNamespace(runtime=runtime, pids=runtime.pids, warms=warms)
    found.loaded = loaded
    found.copy = SimpleNamespace(unanswered=0, run_us=0)  # type: ignore[assignment]
    found.brought = SimpleNamespace(model=SimpleNamespace())  # type: ignore[assignment]
    return found


TARGETS = {"a-bad": True, "witness": False}


def targets() -> dict[str, HostedTarget]:
    return {name: target(name, odd=odd) for name, odd in TARGETS.items()}


def watch(found: Mapping[str, HostedTarget], loader: Any, told: list[Any]) -> Watch:
    return Watch(
        found,
        loader,
        prefix=None,  # type: ignore[arg-type]
        clock=ManualClock(monotonic_s=100.0),
        on_memory=lambda used, by_model: told.append(dict(by_model)),
        on_counts=told.append,
        on_replaced=told.append,
    )


async def test_others_rest_and_are_measured() -> None:
    found, loader, told = targets(), Loader(), list[Any]()
    before = item_failures.counts().get("target-models", 0)
    measuring = asyncio.create_task(watch(found, loader, told).measure_on())
    async with asyncio.timeout(10):
        while not told:  # noqa: ASYNC110 - what it tells comes once a second
            await asyncio.sleep(0.01)
    measuring.cancel()
    assert loader.asked[0] == {"witness": [1]}
    assert told[0] == {"witness": TAKEN}
    assert found["witness"].loaded.runtime.released == 1  # type: ignore[union-attr]
    assert item_failures.counts()["target-models"] == before + 2


def test_others_tell_their_counts() -> None:
    found, told = targets(), list[Any]()
    found["a-bad"].counts = None  # type: ignore[assignment]
    found["witness"].counts.hits += 1
    watch(found, Loader(), told).tell_counts(found.values(), use=True)
    assert [list(models) for models in told] == [["witness"]]


async def test_others_are_warmed_up() -> None:
    found, loader = targets(), Loader()
    driver = IdleWarmUpDriver(
        found,
        loader,  # type: ignore[arg-type]
        clock=ManualClock(monotonic_s=100.0),
        quiet_since=lambda: 0.0,
        free_share=lambda: 1.0,
    )
    for one in ("witness", "a-bad"):  # the one that was called last goes first
        driver.loaded(found[one])
    warming = asyncio.create_task(driver.run_on())
    async with asyncio.timeout(10):
        while driver.snapshot()["shapes_left"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    warming.cancel()
    assert loader.ran == [("witness", LaneShape(0, 1, 8)), ("witness", LaneShape(0, 1, 16))]
