"""A start that is cancelled at any moment, and again while it cleans up, leaves nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fleet.local_site import Run, fleet_of, spec_of
from tests.kit.cancelling import cancelled_after, cancelled_on_and_on
from tests.kit.polling import until
from tests.kit.processes import alive

#: Turns of the loop after which a start waits for the instance's word and for nothing else.
_TURNS = 6
_STOP_S = 20.0


def test_a_start_that_is_cancelled_twice_leaves_nothing_to_stop(tmp_path: Path, run: Run) -> None:
    """A transform job stood still for ever: its guest's start ran into one limit and, while it was
    cleaned up, into the other. The instance stayed in the fleet, and nobody was to tell its end."""

    async def test() -> None:
        async with fleet_of(tmp_path, "--mute") as fleet:
            start = asyncio.create_task(fleet.start(spec_of(tmp_path)))
            await until(lambda: bool(fleet._children))
            pid = fleet._children["one"].process.pid
            await cancelled_on_and_on(start)
            assert start.cancelled()
            assert not alive(pid)
            await asyncio.wait_for(fleet.stop("one", grace_s=0.0), _STOP_S)
            assert fleet._children == {}

    run(test)


def test_wherever_a_start_is_cancelled_for_good_it_leaves_nothing(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path, "--mute") as fleet:
            for turns in range(_TURNS):
                assert await cancelled_after(turns, fleet.start(spec_of(tmp_path, f"t{turns}")))
                assert fleet._children == {}
            await asyncio.wait_for(fleet.close(grace_s=0.0), _STOP_S)

    run(test)


def test_a_cancel_while_a_child_that_closed_its_output_ends_takes_its_end_from_nobody(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path, "--silent") as fleet:
            start = asyncio.create_task(fleet.start(spec_of(tmp_path)))
            await until(lambda: bool(fleet._children))
            child = fleet._children["one"]
            await until(child.output.at_eof)
            await cancelled_on_and_on(start)
            assert child.ended.done()
            assert not child.ended.cancelled()
            await asyncio.wait_for(fleet.stop("one", grace_s=0.0), _STOP_S)

    run(test)


def test_a_stop_that_is_cancelled_is_finished_by_the_next_one(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path, "--deaf") as fleet:
            handle = await fleet.start(spec_of(tmp_path))
            for turns in range(_TURNS):
                assert await cancelled_after(turns, fleet.stop("one", grace_s=60.0))
            await asyncio.wait_for(fleet.stop("one", grace_s=0.0), _STOP_S)
            assert handle.pid is not None
            assert not alive(handle.pid)
            assert fleet._children == {}

    run(test)


def test_a_fleet_of_spares_closes_whenever_it_is_asked_to(tmp_path: Path, run: Run) -> None:
    """One that was ending a spare when it was asked to close took the cancel for that spare's end,
    and went on keeping spares: its end was waited for in vain."""

    async def test() -> None:
        for turns in range(0, 40, 4):
            async with fleet_of(tmp_path / str(turns), "--exit") as fleet:
                fleet.keep_warm(1, [])
                for _ in range(turns):
                    await asyncio.sleep(0.005)
                await asyncio.wait_for(fleet.close(grace_s=0.0), _STOP_S)
                assert fleet.spares() == []

    run(test)
