"""Who gets the machine's memory: real child processes, on a machine that is only told of.

The fake instances say what their models need and take; `core/machine/room.py` has the rules.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit.control_plane import MACHINE, ControlPlaneServer, deployment, gone, run, running
from tests.kit.polling import until
from tests.kit.processes import alive

from penstock.config import ControlConfig
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec

GIB = 2**30
KIND = "ml.m5.xlarge"  #: 16 GiB by name, on a machine of 8 GiB


def model(
    need_mib: int = 100,
    own_mib: int | Path = 50,
    *,
    kind: str = KIND,
    count: int = 1,
    gate: Path | None = None,
) -> DeploymentSpec:
    spec = deployment("slow" if gate else "ok", kind=kind, count=count, gate=gate)
    variant = spec.variants[0]
    more = (("NEED_MIB", str(need_mib)), ("OWN_MIB", str(own_mib)))
    source = replace(variant.model, environment=variant.model.environment + more)
    return replace(spec, variants=(replace(variant, model=source),))


async def create(server: ControlPlaneServer, name: str, spec: DeploymentSpec) -> None:
    await server.plane.database.call(Store.create_endpoint, name, spec, arn=name, now=1.0)
    server.plane.notify(name)


async def update(server: ControlPlaneServer, name: str, spec: DeploymentSpec) -> None:
    await server.plane.database.call(Store.begin_update, name, spec, now=2.0)
    server.plane.notify(name)


async def refused(server: ControlPlaneServer, name: str) -> str:
    return (await server.reaches("Failed", name)).failure_reason


async def told(server: ControlPlaneServer, name: str, what: str) -> str:
    """Waits until the endpoint's history has it; its reason."""

    def found() -> list[str]:
        return [one.reason for one in server.plane.activities(name) if one.what == what]

    async def there() -> bool:
        return bool(found())

    await until(there, lambda: str(server.plane.activities(name)))
    return found()[-1]


async def test_a_name_of_aws_is_a_bound_and_no_reservation(tmp_path: Path) -> None:
    """Three endpoints of ml.m5.xlarge on a laptop: the third one was Failed."""
    async with running(tmp_path / "s") as server:
        for name in ("first", "second", "third", "shop"):
            await create(server, name, model())
            await server.reaches("InService", name)
        view = server.plane.instances("shop")[0]
        assert view.resources.memory_bytes == 8 * GIB
        assert [(one.what, one.reason) for one in server.plane.activities("shop")] == [
            ("start ml.m5.xlarge for blue generation 1 slot 0", "new-generation"),
            ("load copy", "instance-running"),
            ("room for the model", "fits"),
            ("copy loaded", "load-done"),
            ("publish routes", "generation-ready"),
            ("status InService", "generation-ready"),
        ]


async def test_reserved_as_named_two_of_them_fill_a_laptop(tmp_path: Path) -> None:
    server = ControlPlaneServer(tmp_path / "s")
    control = ControlConfig(capacity="strict")
    server.plane = type(server.plane)(
        replace(server.plane._config, control=control),
        server.plane._fleet,
        server.gateway,
        machine=MACHINE,
    )
    await server.plane.start()
    try:
        for name in ("first", "second"):
            await create(server, name, model())
            await server.reaches("InService", name)
        await create(server, "third", model())
        reason = await refused(server, "third")
        assert reason.startswith(
            "CapacityError: an instance of type ml.m5.xlarge asks for 4.00 GiB of memory; free"
            " on this machine: 0.00 GiB of 8.00 GiB, first-blue-1-0-1 holds 4.00 GiB,"
            " second-blue-1-0-2 holds 4.00 GiB."
        )
    finally:
        await server.plane.close()


async def test_a_promise_is_kept_from_models_that_would_fit_beside_what_is_used(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "s") as server:
        await create(server, "local", model(kind="ml.local.large"))
        await server.reaches("InService", "local")
        await create(server, "second", model(need_mib=5000))
        assert (await refused(server, "second")).startswith(
            "CapacityError: a model on an instance of type ml.m5.xlarge needs 4.88 GiB"
            " (estimated from its files) of memory; free on this machine: 4.00 GiB of 8.00 GiB,"
            " local-blue-1-0-1 holds 4.00 GiB."
        )
        await create(server, "shop", model(need_mib=4000))
        await server.reaches("InService")


@pytest.mark.parametrize(("kept_mib", "outcome"), [(1000, "InService"), (5000, "Failed")])
async def test_of_two_loads_that_may_not_fit_together_one_waits_for_the_other(
    tmp_path: Path, kept_mib: int, outcome: str
) -> None:
    async with running(tmp_path / "s") as server:
        gate = tmp_path / "gate"
        await create(server, "first", model(5000, kept_mib, gate=gate))
        assert await told(server, "first", "room for the model") == "fits"
        await create(server, "shop", model(5000, 4000))
        assert await told(server, "shop", "wait for room") == "loads-under-way"
        assert (await server.record()).status == "Creating"
        gate.touch()
        await server.reaches("InService", "first")
        reason = (await server.reaches(outcome)).failure_reason
        assert ("first-blue-1-0-1 holds 5.49 GiB" in reason) == (outcome == "Failed")


async def test_a_load_that_waits_for_room_can_be_deleted_and_holds_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        gate = tmp_path / "gate"
        await create(server, "first", model(5000, gate=gate))
        await told(server, "first", "room for the model")
        await create(server, "shop", model(5000))
        await told(server, "shop", "wait for room")
        await server.delete()
        await gone(server)
        await create(server, "third", model(2000))
        await server.reaches("InService", "third")


async def test_an_update_on_a_nearly_full_laptop_finds_room_for_what_it_really_needs(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "s") as server:
        await create(server, "other", model(4000, 3500))
        await server.reaches("InService", "other")
        await create(server, "shop", model(1500, 1400))
        await server.reaches("InService")
        await update(server, "shop", model(1500, 1400))
        record = await server.reaches("InService")
        assert (record.failure_reason, server.gateway.copies()) == ("", [3])
        await server.settled(1)
        # There is none for one that is larger, beside the old generation.
        await update(server, "shop", model(4000, 1400))
        record = await server.reaches("InService")
        assert record.failure_reason.startswith("CapacityError: a model on an instance of type")
        assert server.gateway.copies() == [3]


async def test_what_others_take_of_the_machine_is_not_given_away(tmp_path: Path) -> None:
    """By account there are 8 GiB; the operating system has half a GiB free."""
    server = ControlPlaneServer(tmp_path / "s")
    free = GIB // 2
    server.plane._available_bytes = lambda: free
    await server.plane.start()
    try:
        await create(server, "shop", model(1000))
        assert "(the operating system has 0.50 GiB available)" in await refused(server, "shop")
        await create(server, "local", model(1000, kind="ml.local.large"))
        assert "(the operating system has 0.50 GiB available)" in await refused(server, "local")
        await create(server, "small", model(200))
        await server.reaches("InService", "small")
    finally:
        await server.plane.close()


def test_instances_that_grow_past_the_machine_serve_on_and_nothing_is_added(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path / "s") as server:
            sizes = [tmp_path / "first", tmp_path / "shop"]
            for size in sizes:
                size.write_text("1000")
                await create(server, size.name, model(1000, size))
                await server.reaches("InService", size.name)
            pids = server.pids()
            for size in sizes:
                size.write_text("4500")

            async def measured() -> bool:
                assert server.plane._reconciler is not None
                server.plane._reconciler.work.status.ask()
                held = list(server.plane._reconciler._held())
                return all(one.own_bytes == 4500 * 2**20 for one, _ in held)

            await until(measured)
            await create(server, "third", model(100))
            assert "(what runs has outgrown it, and is left alone)" in await refused(
                server, "third"
            )
            assert (await server.record()).status == "InService"
            assert all(alive(pid) for pid in pids)
            sizes[0].write_text("1000")
            await until(lambda: shrunk(server))
            await create(server, "fourth", model(100))
            await server.reaches("InService", "fourth")

    async def shrunk(server: ControlPlaneServer) -> bool:
        assert server.plane._reconciler is not None
        server.plane._reconciler.work.status.ask()
        return any(one.own_bytes == 1000 * 2**20 for one, _ in server.plane._reconciler._held())

    run(test)


async def test_an_old_figure_refuses_nobody(tmp_path: Path) -> None:
    """An instance that gave memory back is asked before there is said to be no room."""
    async with running(tmp_path / "s") as server:
        size = tmp_path / "size"
        size.write_text("6000")
        await create(server, "first", model(6000, size))
        await server.reaches("InService", "first")
        size.write_text("1000")
        await create(server, "shop", model(5000))
        await server.reaches("InService")
