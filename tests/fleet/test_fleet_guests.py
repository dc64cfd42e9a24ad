"""Guests of the local fleet: they take what others leave, and end at once."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fleet.local_site import Run, fleet_of, spec_of
from tests.kit.polling import until
from tests.kit.processes import children_of, runs

from penstock import guests
from penstock.core.machine.guest_start import GuestStartSpec
from penstock.errors import NotNowError
from penstock.fleet import child
from penstock.fleet.base import InstanceExit


def policies_below(pid: int) -> dict[int, int]:
    """Of every thread of a process and of all that it has started, by thread."""
    threads = [int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()]
    found = {thread: os.sched_getscheduler(thread) for thread in threads}
    for below in (one for thread in threads for one in children_of_thread(pid, thread)):
        found |= policies_below(below)
    return found


def children_of_thread(pid: int, thread: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]


def group_of(pid: int) -> str:
    """What its session's scheduling group weighs; "" where the kernel makes no such groups."""
    group = Path(f"/proc/{pid}/autogroup")
    return group.read_text().partition(" ")[2].strip() if group.exists() else ""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the kernel has no such policy")
def test_a_shadow_is_a_guest_where_guests_yield_at_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no process that stood ready: such a one is no guest from its start."""
    monkeypatch.setattr(guests, "yield_at_once", lambda: True)

    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            fleet.keep_warm(1, [])
            await until(lambda: any(one.ready for one in fleet.spares()), "a spare")
            (spare,) = fleet.spares()
            handle = await fleet.start(replace(spec_of(tmp_path), shadow=True))
            assert handle.pid is not None
            assert set(policies_below(handle.pid).values()) == {os.SCHED_IDLE}
            assert [one.pid for one in fleet.spares()] == [spare.pid]

    run(test)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the kernel has no such policy")
def test_a_shadow_that_is_asked_to_end_may_use_a_core_for_that(tmp_path: Path, run: Run) -> None:
    """On a full machine it could not even read what it is told."""

    async def test() -> None:
        async with fleet_of(tmp_path, "--deaf") as fleet:
            handle = await fleet.start(replace(spec_of(tmp_path), shadow=True))
            assert handle.pid is not None
            ended = asyncio.create_task(fleet.stop("one", grace_s=60.0))
            await until(lambda: set(policies_below(handle.pid or 0).values()) == {os.SCHED_OTHER})
            os.kill(handle.pid, signal.SIGKILL)
            await ended

    run(test)


@pytest.mark.parametrize("spare", [False, True])
def test_elsewhere_a_shadow_gets_a_tenth_of_a_core_that_others_want(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, *, spare: bool
) -> None:
    """All of its threads, also where its process stood ready before."""
    monkeypatch.setattr(guests, "yield_at_once", lambda: False)

    async def test() -> None:
        async with fleet_of(tmp_path, *([] if spare else ["--worker"])) as fleet:
            if spare:
                fleet.keep_warm(1, [])
                await until(lambda: any(one.ready for one in fleet.spares()), "a spare")
            handle = await fleet.start(replace(spec_of(tmp_path), shadow=True))
            assert handle.pid is not None
            threads = policies_below(handle.pid)
            assert {os.getpriority(os.PRIO_PROCESS, one) for one in threads} == {10}
            assert group_of(handle.pid) in ("", "nice 10")

    run(test)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the kernel has no such policy")
def test_a_guest_and_all_that_it_starts_take_only_what_others_leave(
    tmp_path: Path, run: Run
) -> None:
    """The kernel may make a scheduling group of each session, and SCHED_IDLE counts within one."""

    async def test() -> None:
        async with fleet_of(tmp_path, "--worker") as fleet:
            handle = await fleet.start(replace(spec_of(tmp_path), guest=True, cores_max=1))
            assert handle.pid is not None
            found = policies_below(handle.pid)
            assert len(found) >= 2  # the instance and what it has started
            assert set(found.values()) == {os.SCHED_IDLE}
            assert {len(os.sched_getaffinity(thread)) for thread in found} == {1}
            assert group_of(handle.pid) in ("", "nice 19")
            other = await fleet.start(spec_of(tmp_path, "two"))
            assert other.pid is not None
            assert set(policies_below(other.pid).values()) == {os.sched_getscheduler(0)}

    run(test)


def test_a_guest_ends_at_once_with_all_that_it_started(tmp_path: Path, run: Run) -> None:
    """Nobody waits for its end longer than the kernel needs; it may not even be told."""

    async def test() -> None:
        async with fleet_of(tmp_path, "--deaf", "--worker") as fleet:
            exits: list[InstanceExit] = []
            fleet.on_exit = lambda instance_id, how: exits.append(how)
            handle = await fleet.start(replace(spec_of(tmp_path), guest=True))
            assert handle.pid is not None
            (worker,) = children_of(handle.pid)
            await fleet.stop("one", grace_s=0.0)
            assert not runs(handle.pid)
            await until(lambda: not runs(int(worker)))
            assert exits == []

    run(test)


def test_a_guest_that_was_stopped_while_it_started_goes_on(tmp_path: Path, run: Run) -> None:
    """However long the wall's clock says that it took: here ten times its limit."""

    async def test() -> None:
        spec = GuestStartSpec(look_every_s=0.05)
        async with fleet_of(tmp_path, start_s_max=0.1, guest_start=spec) as fleet:
            start = asyncio.create_task(fleet.start(replace(spec_of(tmp_path), guest=True)))
            await until(lambda: bool(fleet._children))
            pid = fleet._children["one"].process.pid
            os.kill(pid, signal.SIGSTOP)
            done, _ = await asyncio.wait([start], timeout=1.0)
            assert not done
            os.kill(pid, signal.SIGCONT)
            assert (await start).pid == pid

    run(test)


def test_a_guest_may_be_held_still_for_longer_than_what_answers_requests(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            ended: list[str] = []
            fleet.on_exit = lambda instance_id, how: ended.append(instance_id)
            guest = await fleet.start(replace(spec_of(tmp_path), instance_id="guest", guest=True))
            other = await fleet.start(spec_of(tmp_path))
            assert guest.pid is not None
            assert other.pid is not None
            os.kill(guest.pid, signal.SIGSTOP)
            os.kill(other.pid, signal.SIGSTOP)
            await until(lambda: bool(ended))
            assert ended == ["one"]
            assert runs(guest.pid)

    run(test)


def test_the_end_of_a_guest_that_was_stopped_is_said_to_be_that(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it starts it has an error of its own: who stopped it may do so again and again, and the
    job can do nothing about it."""
    monkeypatch.setattr(child, "GUEST_LOOKS_MAX", 2)

    async def test() -> None:
        async with fleet_of(tmp_path, "--mute") as fleet:
            start = asyncio.create_task(fleet.start(replace(spec_of(tmp_path), guest=True)))
            await until(lambda: bool(fleet._children))
            os.kill(fleet._children["one"].process.pid, signal.SIGSTOP)
            with pytest.raises(NotNowError) as raised:
                await start
            assert raised.value.code == "instance-start-still"
            assert "it was stopped by a signal (SIGSTOP) and did not go on" in raised.value.message
            assert "memory" not in raised.value.message
        async with fleet_of(tmp_path) as fleet:
            exits: list[InstanceExit] = []
            fleet.on_exit = lambda instance_id, how: exits.append(how)
            guest = await fleet.start(replace(spec_of(tmp_path), guest=True))
            assert guest.pid is not None
            os.kill(guest.pid, signal.SIGSTOP)
            await until(lambda: bool(exits))
            assert exits[0].stood_still
            assert "it was stopped by a signal (SIGSTOP) and did not go on" in exits[0].story

    run(test)


def test_a_guest_that_stands_still_is_ended(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        spec = GuestStartSpec(look_every_s=0.05, still_s_max=0.5)
        async with fleet_of(tmp_path, "--mute", guest_start=spec) as fleet:
            with pytest.raises(NotNowError) as raised:
                await fleet.start(replace(spec_of(tmp_path), guest=True))
            assert raised.value.code == "instance-start-still"
            assert "instance one had no processor time for 0.5 s" in raised.value.message
            assert fleet._children == {}

    run(test)
