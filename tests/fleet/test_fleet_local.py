"""`fleet/local.py` with real child processes: they start, they end, none is ever left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fleet.local_site import PROGRAM, Run, fleet_of, spec_of
from tests.kit.polling import until
from tests.kit.processes import children_of, runs

from penstock.errors import InternalError, NotNowError
from penstock.fleet.base import InstanceExit
from penstock.fleet.local import LocalFleet, runtime_dir_for


def test_an_instance_is_given_its_settings_and_accepts_connections_once_start_returns(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            handle = await fleet.start(spec_of(tmp_path, artifact={"s3_endpoint": "x"}))
            assert handle.instance_id == "one"
            assert handle.address.startswith("unix:")
            _, writer = await asyncio.open_unix_connection(handle.address.removeprefix("unix:"))
            writer.close()
            line = next(
                line
                for line in (tmp_path / "logs" / "one.log").read_text().splitlines()
                if line.startswith("settings ")
            )
            assert json.loads(line.removeprefix("settings ")) == {
                "instance_id": "one",
                "address": handle.address,
                "cores": 1.0,
                "memory_bytes": 2**30,
                "accelerators": 0,
                "cache_dir": str(tmp_path / "cache"),
                "artifact": {"s3_endpoint": "x"},
            }

    run(test)


def test_each_instance_has_accelerators_of_its_own(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")

    def given(instance_id: str) -> list[str]:
        text = (tmp_path / "logs" / f"{instance_id}.log").read_text()
        lines = [line for line in text.splitlines() if line.startswith("settings ")]
        found: list[str] = json.loads(lines[-1].removeprefix("settings "))["devices"]
        return found

    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            for instance_id, count in (("one", 1), ("two", 2)):
                await fleet.start(spec_of(tmp_path, instance_id, accelerators=count))
            assert (given("one"), given("two")) == (["4"], ["5", "7"])
            await fleet.stop("one", grace_s=1.0)
            await fleet.start(spec_of(tmp_path, "three", accelerators=1))
            assert given("three") == ["4"], "it is free again"

    run(test)


def test_logs_and_sockets_are_private(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            handle = await fleet.start(spec_of(tmp_path))
            log = tmp_path / "logs" / "one.log"
            assert log.stat().st_mode & 0o777 == 0o600
            assert log.parent.stat().st_mode & 0o777 == 0o700
            assert Path(handle.address.removeprefix("unix:")).parent.stat().st_mode & 0o777 == 0o700
            assert "hello from the model's code" in log.read_text()

    run(test)


def test_stop_ends_the_process_without_reporting_an_exit(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            exits: list[InstanceExit] = []
            fleet.on_exit = lambda instance_id, how: exits.append(how)
            handle = await fleet.start(spec_of(tmp_path))
            assert handle.pid is not None
            await fleet.stop("one", grace_s=10.0)
            assert not runs(handle.pid)
            await fleet.stop("one", grace_s=10.0)  # once more: nothing to do
            await fleet.stop("never-started", grace_s=10.0)
            assert exits == []

    run(test)


def test_an_instance_that_ignores_sigterm_is_killed_after_the_grace(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path, "--deaf") as fleet:
            handle = await fleet.start(spec_of(tmp_path))
            assert handle.pid is not None
            await fleet.stop("one", grace_s=0.1)
            assert not runs(handle.pid)

    run(test)


def test_a_death_is_reported_once_with_its_cause(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            exits: list[tuple[str, InstanceExit]] = []
            fleet.on_exit = lambda instance_id, how: exits.append((instance_id, how))
            handle = await fleet.start(spec_of(tmp_path))
            assert handle.pid is not None
            os.kill(handle.pid, signal.SIGKILL)
            await until(lambda: bool(exits))
            (instance_id, how) = exits[0]
            assert (instance_id, how.code) == ("one", -signal.SIGKILL)
            assert "signal 9 (SIGKILL)" in how.story
            again = await fleet.start(spec_of(tmp_path))  # its name is free again
            assert again.pid != handle.pid
            assert len(exits) == 1

    run(test)


def test_an_instance_that_was_stopped_is_ended_as_if_it_had_died(tmp_path: Path, run: Run) -> None:
    """SIGSTOP: its connections stand, and nobody answers any more."""

    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            exits: list[InstanceExit] = []
            fleet.on_exit = lambda instance_id, how: exits.append(how)
            handle = await fleet.start(spec_of(tmp_path))
            assert handle.pid is not None
            os.kill(handle.pid, signal.SIGSTOP)
            await until(lambda: bool(exits))
            assert exits[0].code == -signal.SIGKILL
            assert "stopped by a signal" in (tmp_path / "logs" / "one.log").read_text()

    run(test)


def test_a_death_is_seen_although_a_worker_still_holds_the_output_open(
    tmp_path: Path, run: Run
) -> None:
    """The instance's worker is ended with it: an orphan would keep the memory and the cores."""

    async def test() -> None:
        async with fleet_of(tmp_path, "--worker") as fleet:
            exits: list[InstanceExit] = []
            fleet.on_exit = lambda instance_id, how: exits.append(how)
            handle = await fleet.start(spec_of(tmp_path))
            assert handle.pid is not None
            children = children_of(handle.pid)
            os.kill(handle.pid, signal.SIGKILL)
            await until(lambda: bool(exits))
            await until(lambda: not any(runs(int(child)) for child in children))
            assert len(children) == 1

    run(test)


def test_an_instance_that_ends_before_it_is_ready_says_its_last_words(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path, "--exit") as fleet:
            with pytest.raises(NotNowError) as raised:
                await fleet.start(spec_of(tmp_path))
            assert raised.value.code == "instance-died"
            assert "exit code 3" in raised.value.message
            assert "ImportError: no such thing" in raised.value.message

    run(test)


def test_an_instance_that_never_gets_ready_is_ended(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path, "--mute", start_s_max=1.0) as fleet:
            with pytest.raises(NotNowError) as raised:
                await fleet.start(spec_of(tmp_path))
            assert raised.value.code == "instance-start-timeout"
            assert fleet._children == {}

    run(test)


def test_a_cancelled_start_leaves_no_process(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path, "--mute") as fleet:
            start = asyncio.create_task(fleet.start(spec_of(tmp_path)))
            await until(lambda: bool(fleet._children))
            pid = fleet._children["one"].process.pid
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            assert not runs(pid)

    run(test)


def test_the_numbers_of_files_that_an_ended_child_had_are_closed_once(
    tmp_path: Path, run: Run
) -> None:
    """Closed once more when its objects are collected, they are somebody else's by then."""

    async def test() -> None:
        async with fleet_of(tmp_path, "--mute") as fleet:
            children = []
            for turns in range(1, 6):  # at each place where a start waits
                start = asyncio.create_task(fleet.start(spec_of(tmp_path, f"t{turns}")))
                for _ in range(turns):
                    await asyncio.sleep(0)
                children.append(fleet._children[f"t{turns}"])
                start.cancel()
                await asyncio.wait([start])
            assert not fleet._children
        theirs = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]
        del start
        children.clear()
        gc.collect()
        for number in theirs:
            os.close(number)  # raises where it was closed already

    run(test)


def test_a_program_that_can_not_be_started_is_an_error_of_ours_to_tell(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        fleet = LocalFleet(runtime_dir_for(tmp_path / "s"), command=("/nowhere/penstock",))
        with pytest.raises(NotNowError) as raised:
            await fleet.start(spec_of(tmp_path))
        assert raised.value.code == "instance-not-started"
        await fleet.close()

    run(test)


def test_one_name_can_not_run_twice_and_a_closed_fleet_starts_nothing(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        async with fleet_of(tmp_path) as fleet:
            handle = await fleet.start(spec_of(tmp_path))
            with pytest.raises(InternalError):
                await fleet.start(spec_of(tmp_path))
            await fleet.close(grace_s=5.0)
            assert handle.pid is not None
            assert not runs(handle.pid)
            with pytest.raises(NotNowError):
                await fleet.start(spec_of(tmp_path, "two"))

    run(test)


PARENT = """
import asyncio, sys
from pathlib import Path
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceSpec, InstanceType
from penstock.fleet.local import LocalFleet, runtime_dir_for

async def main():
    root = Path(sys.argv[1])
    fleet = LocalFleet(runtime_dir_for(root), command=(sys.executable, sys.argv[2]))
    given = ComputeResources(cores=1.0, memory_bytes=2**30)
    kind = InstanceType(name="ml.local.small", resources=given)
    for name in ("one", "two"):
        spec = InstanceSpec(instance_id=name, instance_type=kind, log_path=root / f"{name}.log",
                            cache_dir=root)
        print((await fleet.start(spec)).pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_server_takes_its_instances_with_it(tmp_path: Path, run: Run) -> None:
    """SIGKILL gives the server no chance to say goodbye: the end of their standard input does."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), PROGRAM[1]], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    assert all(runs(pid) for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    run(lambda: until(lambda: not any(runs(pid) for pid in pids)))


def test_sockets_lie_below_the_state_directory_unless_its_path_is_too_long(tmp_path: Path) -> None:
    short = runtime_dir_for(tmp_path / "s")
    assert short == tmp_path / "s" / "run"
    (short / "i7.sock").touch()  # a killed server's
    assert list(runtime_dir_for(tmp_path / "s").iterdir()) == []
    deep = runtime_dir_for(tmp_path / ("x" * 100))
    assert len(os.fsencode(deep)) < 80
    assert deep.stat().st_mode & 0o777 == 0o700
    deep.rmdir()


def test_a_log_that_has_grown_large_is_put_aside_at_the_next_start(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        log = tmp_path / "logs" / "one.log"
        log.parent.mkdir()
        with log.open("wb") as file:
            file.truncate(64 * 2**20 + 1)
        async with fleet_of(tmp_path) as fleet:
            await fleet.start(spec_of(tmp_path))
            assert log.stat().st_size < 10_000
            assert log.with_name("one.log.1").stat().st_size == 64 * 2**20 + 1

    run(test)


def test_a_log_that_grows_large_under_a_running_instance_is_put_aside(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        log = tmp_path / "logs" / "one.log"
        aside = log.with_name("one.log.1")
        async with fleet_of(tmp_path, log_look_every_s=0.01) as fleet:
            await fleet.start(spec_of(tmp_path))
            with log.open("ab") as file:
                file.truncate(64 * 2**20 + 1)
            await until(lambda: aside.exists() and log.stat().st_size == 0)
            assert aside.stat().st_size == 64 * 2**20 + 1

    run(test)


def test_a_log_that_can_not_be_put_aside_leaves_the_others_bounded(
    tmp_path: Path, run: Run
) -> None:
    async def test() -> None:
        logs = tmp_path / "logs"
        async with fleet_of(tmp_path, log_look_every_s=0.01) as fleet:
            for name in ("a-bad", "witness"):
                await fleet.start(spec_of(tmp_path, name))
            (logs / "a-bad.log.1").mkdir()
            for name in ("a-bad", "witness"):
                with (logs / f"{name}.log").open("ab") as file:
                    file.truncate(64 * 2**20 + 1)
            await until((logs / "witness.log.1").exists)
            await until(lambda: (logs / "witness.log").stat().st_size == 0)

    run(test)
