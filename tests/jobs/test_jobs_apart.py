"""One bad schedule, run or job costs only itself: the others go on in the same turn, and after a
restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Table, insert, update
from tests.jobs.schedule_site import SchedulesSite, at
from tests.jobs.transform_plane import TransformDriverSite
from tests.kit.polling import until

from penstock.clock import ManualClock
from penstock.control.database.schema import transform_jobs
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.jobs.asynchronous.notifier import Notifier
from penstock.jobs.asynchronous.outcome import Commits
from penstock.jobs.asynchronous.rows import Notification, async_notifications
from penstock.jobs.schedules import records
from penstock.jobs.transform import driver as transform_driver
from penstock.jobs.transform import transactions
from penstock.jobs.transform.records import COMPLETED, IN_PROGRESS, STOPPED, JobRecord
from penstock.metrics import item_failures
from penstock.metrics.counts.work_counts import WorkCounts

DAILY = "cron(0 3 * * ? *)"
WITNESS = "witness-20260302T030000Z"


def spoil(store: Store, table: Table, column: str, text: str) -> None:
    key = "schedule_key" if "schedule_key" in table.c else "key"
    with store.begin() as db:
        db.execute(update(table).where(table.c[key] == "a-bad").values({column: text}))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SchedulesSite]:
    made = SchedulesSite(tmp_path / "state", "00:00:00")
    for name in ("a-bad", "witness"):
        made.create(name, expression=DAILY)
    yield made
    made.close()


@pytest.mark.parametrize("text", ["", "{", "[7]", "9", "null"])
@pytest.mark.parametrize("column", ["expression", "timezone", "job"])
def test_a_schedule_that_can_not_be_read_spoils_only_itself(
    site: SchedulesSite, column: str, text: str
) -> None:
    if (column, text) == ("timezone", ""):
        text = "Nowhere/Land"
    site.runner.run(site._database.call(spoil, records.schedules, column, text))
    site.restart()
    site.tick("03:00:00")
    assert site.plane.created == [WITNESS]
    told = {one.name: one.fault for one in site.runner.run(site.schedules.all())}
    assert told["witness"] == ""
    assert told["a-bad"] != ""
    site.runner.run(site.schedules.delete("a-bad"))
    assert [one.name for one in site.runner.run(site.schedules.all())] == ["witness"]


def test_a_run_whose_schedule_is_gone_leaves_the_others_theirs(site: SchedulesSite) -> None:
    site.tick("03:00:00")
    before = item_failures.counts().get("schedules", 0)
    site.runner.run(site._database.call(spoil, records.schedule_runs, "schedule_key", "nobody"))
    site.plane.status[WITNESS] = "Completed"
    site.tick("03:00:10")
    assert site.told("witness") == [f"{WITNESS} completed on-time"]
    assert item_failures.counts()["schedules"] > before
    site.tick("2026-03-03T03:00:00")
    assert site.plane.created[-1] == "witness-20260303T030000Z"


def test_a_call_that_fails_in_an_unknown_way_is_its_runs_alone(
    site: SchedulesSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = site.plane.call

    async def fails(operation: str, members: dict[str, object], *, owner: str = "") -> object:
        if "a-bad" in str(members.get("TransformJobName")):
            raise KeyError("TransformJobStatus")
        return await call(operation, members, owner=owner)

    monkeypatch.setattr(site.plane, "call", fails)
    site.tick("03:00:00")
    assert site.plane.created == [WITNESS]
    monkeypatch.undo()
    site.tick("03:00:05")
    assert site.plane.created == [WITNESS, "a-bad-20260302T030000Z"]
    assert at("03:00:00") == site.runs("a-bad")[0].due


@pytest.mark.parametrize("text", ["", "{", "[7]", "null", '{"version": 9}'])
@pytest.mark.parametrize("column", ["spec", "totals"])
async def test_a_job_that_can_not_be_read_says_so_and_the_others_go_on(
    tmp_path: Path, column: str, text: str
) -> None:
    site = TransformDriverSite(tmp_path)
    site.put("a.txt", "one")
    await site.database.open()
    for name in ("a-bad", "witness"):
        await site.database.call(
            transactions.create, site.spec(name), {}, arn=f"arn:{name}", now=1.0, tags={}
        )
    await site.database.call(spoil, transform_jobs, column, text)
    await site.driver.start()
    try:
        assert (await site.ended("witness")).status == COMPLETED
        bad = await site.record("a-bad")
        assert bad.status == IN_PROGRESS
        assert site.driver.progress(bad)["Waiting"] == "record-unreadable"
        await site.database.call(transactions.begin_stop, "a-bad", now=2.0)
        site.driver.notify("a-bad")
        assert (await site.ended("a-bad")).status == STOPPED
    finally:
        await site.close()


async def test_a_job_that_can_not_begin_waits_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingRun(transform_driver.TransformRun):
        def __init__(self, record: JobRecord, **rest: object) -> None:
            if record.name == "a-bad":
                raise ZeroDivisionError("float division by zero")
            super().__init__(record, **rest)  # type: ignore[arg-type]

    site = TransformDriverSite(tmp_path)
    site.put("a.txt", "one")
    await site.open()
    monkeypatch.setattr(transform_driver, "TransformRun", FailingRun)
    try:
        await site.create("a-bad", priority=9)
        await site.create("witness")
        assert (await site.ended("witness")).status == COMPLETED
        bad = await site.record("a-bad")
        assert site.driver.progress(bad)["Waiting"] == "start-failed"
        monkeypatch.undo()
        site.driver.notify("a-bad")
        await until(lambda: done(site, "a-bad"))
    finally:
        await site.close()


async def test_a_job_that_has_no_place_in_the_line_keeps_no_other(tmp_path: Path) -> None:
    site = TransformDriverSite(tmp_path)
    site.put("a.txt", "one")
    await site.open()
    try:
        for name, count in (("a-bad", "many"), ("witness", 1)):
            spec = site.spec(name, instance_count=count)
            await site.database.call(
                transactions.create, spec, {}, arn=f"arn:{name}", now=1.0, tags={}
            )
        site.driver.notify("witness")
        assert (await site.ended("witness")).status == COMPLETED
        assert (await site.record("a-bad")).status == IN_PROGRESS
    finally:
        await site.close()


async def done(site: TransformDriverSite, job: str) -> bool:
    return (await site.record(job)).status == COMPLETED


def test_a_notification_that_can_not_be_posted_keeps_no_other(tmp_path: Path) -> None:
    """As many as are posted together fail in a way that nobody foresaw, and come first."""
    posted: list[str] = []

    def post(url: str, told: Notification) -> int:
        if told.message_id != "witness":
            raise OverflowError("date value out of range")
        posted.append(url)
        return 200

    def put(store: Store) -> None:
        with store.begin() as db:
            for number in range(8):
                one = Notification(f"bad-{number}", "t", "{}", 1.0)
                db.execute(insert(async_notifications).values(**one._asdict(), due=1.0, tries=0))
            one = Notification("witness", "t", "{}", 2.0)
            db.execute(insert(async_notifications).values(**one._asdict(), due=2.0, tries=0))

    async def story() -> None:
        database = StoreThread(lambda: Store(tmp_path))
        await database.open()
        await database.call(put)
        clock = ManualClock(wall_s=100.0)
        notifier = Notifier(database, {"t": "http://x/"}, clock, WorkCounts(), post=post)
        notifier.start()
        await until(lambda: told(posted))
        await notifier.close()
        await database.close()

    asyncio.run(story())
    assert posted == ["http://x/"]


async def told(posted: list[str]) -> bool:
    return bool(posted)


def test_a_request_that_can_not_be_written_fails_alone() -> None:
    """Those that share its commit are written; a database that can't be written concerns all."""

    async def write(items: Sequence[int]) -> Sequence[int]:
        if 2 in items:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return items

    async def story() -> list[object]:
        commits = Commits(write)
        puts = [asyncio.create_task(commits.put(item)) for item in (1, 2, 3)]
        return await asyncio.gather(*puts, return_exceptions=True)

    one, two, three = asyncio.run(story())
    assert (one, three) == (1, 3)
    assert isinstance(two, UnicodeEncodeError)
