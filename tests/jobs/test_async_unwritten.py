"""Outcomes whose place takes nothing for a while: none is lost, each is written once it does."""

from __future__ import annotations

import errno

import orjson
import pytest
from tests.jobs.test_async_driver import AsyncDriverSite, site
from tests.kit.crash_disk import FailingDisk
from tests.kit.gateway import echo, fail_with, run
from tests.kit.object_server import ObjectServer
from tests.kit.polling import until

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.asynchronous_actions import QueueSpec
from penstock.errors import ModelError, NotNowError
from penstock.jobs.asynchronous.objects import Objects

pytestmark = pytest.mark.loop(by=run)

REQUESTS = 12


async def unwritten(served: AsyncDriverSite, count: int) -> None:
    """Until so many have an outcome that can't be written."""

    def known() -> int:
        assert served.driver is not None
        [queue] = served.driver.snapshot()
        return int(queue["unwritten"] + queue["put-off"])

    await until(lambda: known() >= count, "outcomes that can't be written")


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EIO", "EROFS", "ESTALE"])
async def test_answers_and_failures_wait_for_the_disk_and_outlive_the_driver(name: str) -> None:
    """Every third request fails; the driver ends and begins anew while nothing can be written."""
    async with site() as served:
        breaks = fail_with(ModelError("crash", "It broke."))
        served.instance.on_invoke = lambda connection, ident, invoke: (
            breaks if int(invoke.body) % 3 == 0 else echo
        )(connection, ident, invoke)
        error = getattr(errno, name)
        for folder in ("out", "bad"):
            (served.folder / folder).mkdir()
        with (
            FailingDisk(served.folder / "out", error=error) as out,
            FailingDisk(served.folder / "bad", error=error) as bad,
        ):
            for number in range(REQUESTS):
                await served.ask(number, str(number).encode())
            await unwritten(served, 4)
            assert served.driver is not None
            await served.driver.close()
            assert await served.on_record() == REQUESTS
            await served.start()
            await unwritten(served, 4)
            out.failing = bad.failing = False
            await served.settled()
        outputs = served.outputs()
        failures = sorted(one.name for one in (served.folder / "bad").iterdir())
        numbers = [str(number) for number in range(REQUESTS)]
        assert sorted([*outputs, *failures]) == sorted(numbers)
        assert sorted(failures) == sorted(numbers[::3])
        assert len(served.posts) == REQUESTS


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_store_that_is_away_is_waited_for(s3: ObjectServer, status: int) -> None:
    async with site(settings=ArtifactSettings(s3_endpoint=s3.url)) as served:
        s3.status = status
        for number in range(3):
            place = f"s3://bucket/{number}"
            await served.ask(number, output_uri=f"{place}.out", failure_uri=f"{place}.bad")
        await unwritten(served, 1)
        s3.status = 200
        await served.settled()
        assert sorted(s3.objects) == [f"/bucket/{number}.out" for number in range(3)]


async def test_answers_that_are_kept_leave_most_of_the_room_to_others() -> None:
    """One that would not fit is computed again instead."""
    async with site() as served:
        served.work.room.bytes_max = 100
        (served.folder / "out").mkdir()
        with FailingDisk(served.folder / "out", error=errno.ENOSPC) as out:
            await served.ask(1, b"x" * 20)
            await served.ask(2, b"y" * 20)
            await unwritten(served, 2)
            assert served.work.room.bytes_used == 20
            out.failing = False
            await served.settled()
        assert sorted(served.outputs()) == ["1", "2"]
        assert served.work.room.bytes_used == 0


def test_an_outcome_is_given_up_only_a_week_after_its_time_and_told_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with site(copies=()) as served:
            (served.folder / "bad").mkdir()
            with FailingDisk(served.folder / "bad", error=errno.ENOSPC):
                now = served.clock.wall()
                await served.ask(1, expires=now - 1.0)
                await unwritten(served, 1)
                await served.ask(2, expires=now - QueueSpec(concurrency_max=1).outcome_s_max)
                await until(lambda: bool(served.posts), "one that is given up")
                assert await served.on_record() == 1
            [told] = [orjson.loads(one.message) for one in served.posts]
            assert (told["inferenceId"], told["invocationStatus"]) == ("r2", "Failed")

    run(main)
    assert "r2 of later is given up" in caplog.text


@pytest.mark.parametrize("status", [400, 403])
async def test_a_store_that_refuses_for_good_is_told_in_the_failure(
    s3: ObjectServer, status: int
) -> None:
    async with site(settings=ArtifactSettings(s3_endpoint=s3.url)) as served:
        s3.status = status
        await served.ask(1, output_uri="s3://bucket/1.out")
        await served.settled()
        assert served.failure(1)["ErrorCode"] == "output-unwritable"


@pytest.mark.parametrize("status", [429, 503])
def test_inputs_and_checks_say_that_a_store_may_come_back(s3: ObjectServer, status: int) -> None:
    objects = Objects(ArtifactSettings(s3_endpoint=s3.url))
    s3.status = status
    with pytest.raises(NotNowError) as raised:
        objects.read("s3://bucket/in", bytes_max=10)
    assert raised.value.code == "input-unreachable"
    with pytest.raises(NotNowError) as raised:
        objects.check_writable("s3://bucket/out")
    assert raised.value.code == "output-unreachable"
