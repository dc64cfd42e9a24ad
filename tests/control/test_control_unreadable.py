"""An endpoint whose record is damaged serves on as it is, can be deleted, and costs no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update
from tests.kit.control_plane import ControlPlaneServer, running
from tests.kit.polling import until
from tests.kit.processes import alive

from penstock.control.database import schema
from penstock.control.store.records import ListQuery
from penstock.control.store.store import Store
from penstock.metrics import item_failures

pytestmark = pytest.mark.usefixtures("on_each_database")


def spoil(store: Store) -> None:
    with store.begin() as db:
        table = schema.deployments
        db.execute(update(table).where(table.c.endpoint_key == "shop").values(spec="{"))


async def test_it_serves_on_and_its_deletion_ends_its_instances(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        for name in ("shop", "witness"):
            await server.create(name)
            await server.reaches("InService", name)
        (pid,) = server.pids()
        before = item_failures.counts().get("endpoints", 0)
        await server.plane.database.call(spoil)
        server.plane.notify("shop")

        async def noted() -> bool:
            return item_failures.counts().get("endpoints", 0) > before

        await until(noted)
        await server.delete("witness")
        await until(lambda: gone(server, "witness"))
        assert server.pids() == [pid]
        await server.delete("shop")
        await until(lambda: gone(server, "shop"))
        assert not alive(pid)


async def test_a_deletion_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        await server.create("shop")
        await server.reaches("InService", "shop")
    async with running(tmp_path / "s") as server:
        await server.reaches("InService", "shop")
        await server.plane.database.call(spoil)
        await server.plane.database.call(Store.begin_delete, "shop", now=4.0)
    async with running(tmp_path / "s") as server:
        await until(lambda: gone(server, "shop"))


async def gone(server: ControlPlaneServer, name: str) -> bool:
    page = await server.plane.database.call(Store.list_endpoints, ListQuery())
    return name not in [one.name for one in page.items]
