"""Pools of instances with real child processes: what the machine or the fleet has no room for."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.kit.control_plane import MACHINE, ControlPlaneServer, deployment, running
from tests.kit.polling import until

from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, PoolSpec
from penstock.errors import NotNowError
from penstock.fleet.base import InstanceHandle, InstanceSpec

GIB = 2**30
LARGE, SMALL = "ml.local.large", "ml.local.small"  # 4 GiB and 1 GiB, set aside whole
NINE = replace(MACHINE, memory_bytes=9 * GIB)


def pools(count: int, kinds: Iterable[str] = (LARGE, SMALL), *, other: str = "") -> DeploymentSpec:
    made = deployment("ok", count=count)
    (variant,) = made.variants
    own = ModelSource(model_name="other", uri=f"fake://{other}") if other else None
    members = tuple(
        PoolSpec(instance_type=kind, priority=at, model=own if at > 1 else None)
        for at, kind in enumerate(kinds, 1)
    )
    return replace(made, variants=(replace(variant, pools=members),))


async def create(server: ControlPlaneServer, made: DeploymentSpec) -> None:
    await server.plane.database.call(Store.create_endpoint, "shop", made, arn="shop", now=1.0)
    server.plane.notify("shop")


def kinds(server: ControlPlaneServer) -> Counter[str]:
    return Counter(one.instance_type for one in server.plane.instances("shop") if one.serves)


async def test_what_the_machine_has_no_room_for_comes_from_the_next_pool(tmp_path: Path) -> None:
    """9 GiB: two of 4 GiB, then one of 1 GiB, with its pool's model. With a lower count the pool
    that is wanted least goes first; who dies comes back where it is wanted most."""
    async with running(tmp_path / "s", machine=NINE) as server:
        await create(server, pools(3, other="ok2"))
        await server.reaches("InService")
        assert kinds(server) == {LARGE: 2, SMALL: 1}
        assert server.plane.pool_counts("shop") == {"blue": {LARGE: 2, SMALL: 1}}
        told = {one.kind for one in server.gateway.routes["shop"].variants[0].copies}
        assert told == {LARGE, SMALL}
        (small,) = [one for one in server.plane.instances("shop") if one.instance_type == SMALL]
        assert "loading fake://ok2" in small.log_path.read_text()
        what = [one.what for one in server.plane.activities("shop")]
        assert "no ml.local.large for blue generation 1 slot 2" in what
        await server.weights((None, 2))
        await server.reaches("InService")

        async def settled() -> bool:
            return kinds(server) == {LARGE: 2} and len(server.plane.instances("shop")) == 2

        await until(settled)
        killed = server.pids()[0]
        os.kill(killed, signal.SIGKILL)

        async def back() -> bool:
            return killed not in server.pids() and kinds(server) == {LARGE: 2}

        await until(back)


async def test_where_no_pool_has_room_the_creation_fails_with_what_each_lacks(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "s", machine=replace(MACHINE, memory_bytes=GIB)) as server:
        await create(server, pools(2))
        record = await server.reaches("Failed")
        assert record.failure_reason.startswith(
            "CapacityError: no instance pool of variant blue has room. ml.local.large: an"
            " instance of type ml.local.large asks for 1.00 GiB of memory; free on this"
        )
        assert "; ml.local.small: an instance of type ml.local.small" in record.failure_reason


async def test_a_fleet_that_has_none_of_a_type_is_asked_for_the_next(tmp_path: Path) -> None:
    """Its word `no-node-with-room` is about the type, not about the slot: the creation goes on."""
    async with running(tmp_path / "s", machine=NINE) as server:
        work = server.plane._reconciler.work.instances  # type: ignore[union-attr]
        fleet = work._fleet
        start = fleet.start
        asked: list[str] = []

        async def choosy(spec: InstanceSpec) -> InstanceHandle:
            asked.append(spec.instance_type.name)
            if spec.instance_type.name == LARGE:
                raise NotNowError("no-node-with-room", "no node has so much free")
            return await start(spec)

        fleet.start = choosy  # type: ignore[method-assign]
        await create(server, pools(2))
        await server.reaches("InService")
        assert kinds(server) == {SMALL: 2}
        assert asked[:2] == [LARGE, LARGE]
        assert set(asked[2:]) <= {LARGE, SMALL}


async def test_a_deployment_with_pools_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    async with running(tmp_path / "s", machine=NINE) as server:
        made = pools(1, other="ok2")
        await create(server, made)
        record = await server.record()
        assert record.shown.variants == made.variants
