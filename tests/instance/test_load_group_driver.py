"""Groups of loads on a host: when they are measured, and whose word a measure is."""

from __future__ import annotations

import asyncio

import pytest

from penstock.clock import SystemClock
from penstock.core.residency import Footprint
from penstock.instance.models import memory
from penstock.instance.models.loader import LoadGroupDriver


def test_the_end_of_another_group_says_nothing_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's group is ended by whoever is measured first; by the time that the model is, the
    next one may have begun and be quiet again."""
    monkeypatch.setattr(memory, "footprint", lambda: Footprint(host_bytes=100))

    async def play() -> None:
        driver = LoadGroupDriver(SystemClock())
        await driver.begins()  # the load
        await driver.begins()  # the end of another model
        driver.group.loaded("a", 10)
        driver.group.ended("b", 10)
        first = await driver.over()
        assert (set(first.taken), first.was_one) == ({"a"}, False)
        await driver.begins()  # a load that fails
        driver.group.failed()
        late = await driver.over("a")
        assert (late.taken, late.was_one) == ({}, False)

    asyncio.run(play())


def test_a_model_that_was_loaded_alone_took_what_came_on_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = iter([100, 130])
    monkeypatch.setattr(memory, "footprint", lambda: Footprint(host_bytes=next(seen)))

    async def play() -> None:
        driver = LoadGroupDriver(SystemClock())
        await driver.begins()
        driver.group.loaded("a", 10)
        over = await driver.over("a")
        assert (over.taken, over.was_one) == ({"a": Footprint(host_bytes=30)}, True)

    asyncio.run(play())
