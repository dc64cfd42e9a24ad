"""Spare instances: they stand ready, each becomes one instance, and none is ever left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.fleet.local_site import fleet_of, spec_of
from tests.kit.polling import until
from tests.kit.processes import runs

from penstock.fleet.local import LocalFleet


async def stand_ready(fleet: LocalFleet, count: int = 1) -> list[int]:
    """Their pids, oldest first, once there are that many."""
    await until(lambda: [one.ready for one in fleet.spares()] == [True] * count)
    assert all(one.memory_bytes > 2**20 for one in fleet.spares())
    return [one.pid for one in fleet.spares()]


async def test_a_spare_becomes_the_next_instance_and_is_replaced(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet:
        fleet.keep_warm(1, ["json"])
        (spare,) = await stand_ready(fleet)
        assert (await fleet.start(spec_of(tmp_path))).pid == spare
        assert await stand_ready(fleet) != [spare]
        await fleet.stop("one", grace_s=5.0)
        assert not runs(spare)


async def test_no_spare_is_given_to_two(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet:
        fleet.keep_warm(1, [])
        (spare,) = await stand_ready(fleet)
        starts = [fleet.start(spec_of(tmp_path, name)) for name in ("a", "b", "c")]
        pids = [handle.pid for handle in await asyncio.gather(*starts)]
        assert pids.count(spare) == 1
        assert len(set(pids)) == 3


async def test_a_spare_that_is_killed_is_replaced_and_tells_nobody(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet:
        ended: list[str] = []
        fleet.on_exit = lambda instance_id, what: ended.append(instance_id)
        fleet.keep_warm(1, [])
        (spare,) = await stand_ready(fleet)
        os.kill(spare, signal.SIGKILL)
        await until(lambda: [one.pid for one in fleet.spares()] not in ([spare], []))
        await stand_ready(fleet)
        assert ended == []


async def test_what_an_instance_that_was_a_spare_writes_is_in_its_own_log(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet:
        fleet.keep_warm(1, [])
        await stand_ready(fleet)
        spec = spec_of(tmp_path)
        handle = await fleet.start(spec)
        assert handle.pid is not None
        os.kill(handle.pid, signal.SIGKILL)
        await until(lambda: "the instance ended: signal 9" in spec.log_path.read_text())
        assert not list((tmp_path / "s").rglob("spare-1.log"))


async def test_fewer_are_kept_when_fewer_are_wished_and_none_outlives_its_fleet(
    tmp_path: Path,
) -> None:
    async with fleet_of(tmp_path) as fleet:
        fleet.keep_warm(2, [])
        pids = await stand_ready(fleet, 2)
        fleet.keep_warm(1, [])
        await until(lambda: sum(map(runs, pids)) == 1)
        await stand_ready(fleet)
    assert not any(map(runs, pids))
