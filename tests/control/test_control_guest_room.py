"""A guest's room is everybody's: real child processes, on a machine that is only told of."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.test_control_room import create, model, told
from tests.kit.control_plane import ControlPlaneServer, gone, running
from tests.kit.polling import until

from penstock.core.deployment.deployment import DeploymentSpec

JOB = "transform-job/nightly"


def job(need_mib: int, *, count: int = 1) -> DeploymentSpec:
    """What offline work hosts: a guest, and no endpoint."""
    spec = model(need_mib, need_mib, count=count)
    variant = replace(spec.variants[0], guest=True)
    return replace(spec, endpoint=JOB, generation=1, variants=(variant,))


def host(server: ControlPlaneServer, spec: DeploymentSpec) -> None:
    server.plane.host(spec, lambda: None, lambda event: None)


async def works(server: ControlPlaneServer, count: int = 1) -> list[str]:
    """Waits until so many copies of the guest answer; their instances."""

    async def there() -> bool:
        seen = server.plane.hosted(JOB)
        return seen is not None and len(seen.copies) == count

    await until(there, lambda: str(server.plane.activities(JOB)))
    seen = server.plane.hosted(JOB)
    assert seen is not None
    return [copy.instance_id for copy in seen.copies]


def happened(server: ControlPlaneServer, name: str) -> list[tuple[str, str]]:
    return [(one.what, one.reason) for one in server.plane.activities(name)]


async def test_an_endpoint_takes_a_guests_room_and_the_guest_comes_again(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        host(server, job(5000))
        (first,) = await works(server)
        await create(server, "shop", model(5000, 4000))
        await server.reaches("InService")
        assert ("wait for room", "guests-give-room") in happened(server, "shop")
        assert ("stop instance", "guests-give-room") in happened(server, JOB)
        # It is there again as far as there is room: its model is not.
        assert await told(server, JOB, "wait for room") == "guest-waits"
        assert server.states() == ["ready"]
        await server.delete()
        await gone(server)
        (second,) = await works(server)
        assert second != first
        assert not any("failed" in what for what, _ in happened(server, JOB))


async def test_the_start_of_a_promise_takes_a_guests_room(tmp_path: Path) -> None:
    """What `ml.local.*` says is set aside whole, before its model is known."""
    async with running(tmp_path / "s") as server:
        host(server, job(5000))
        await works(server)
        await create(server, "shop", model(kind="ml.local.large"))
        await server.reaches("InService")
        assert ("stop instance", "guests-give-room") in happened(server, JOB)


async def test_of_several_guests_only_as_many_are_ended_as_it_takes(tmp_path: Path) -> None:
    async with running(tmp_path / "s") as server:
        host(server, job(2500, count=2))
        before = await works(server, 2)
        await create(server, "shop", model(3000, 3000))
        await server.reaches("InService")
        after = await works(server)
        assert len(set(before) & set(after)) == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the kernel has no such policy")
async def test_a_guests_processes_take_only_what_others_leave(tmp_path: Path) -> None:
    """From the variant of the deployment down to the kernel."""
    async with running(tmp_path / "s") as server:
        spec = job(100)
        host(server, replace(spec, variants=(replace(spec.variants[0], cores_max=1),)))
        await works(server)
        await create(server, "shop", model(100))
        await server.reaches("InService")
        (pid,) = [one.pid for one in server.plane.instances(JOB)]
        assert pid is not None
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        assert len(os.sched_getaffinity(pid)) == 1
        (other,) = server.pids()
        assert os.sched_getscheduler(other) == os.SCHED_OTHER
