"""One bad alarm costs only itself: the others are looked at in the same second, and act."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.control.test_alarms_driver import alarm, site_of

from penstock.control.alarms import rows
from penstock.control.alarms.datapoints import Watched
from penstock.control.alarms.driver import explained
from penstock.control.alarms.records import AlarmRecord
from penstock.control.database import schema
from penstock.control.database.mapping import to_json
from penstock.control.store.store import Store
from penstock.core.alarms.spec import MetricQuery
from penstock.metrics import item_failures

pytestmark = pytest.mark.usefixtures("on_each_database")


def watching(name: str, *formulas: str) -> AlarmRecord:
    """An alarm over formulas `e0`, `e1`, …, of which the last is evaluated."""
    record = alarm(name)
    last = len(formulas) - 1
    queries = tuple(
        MetricQuery(id=f"e{number}", expression=text, period_s=10, return_data=number == last)
        for number, text in enumerate(formulas)
    )
    return replace(record, spec=replace(record.spec, queries=queries))


BAD = {
    "overflow": watching("a-bad", "SEARCH('{Shop} Queue', 'Sum', 10)"),
    "deep": watching("a-bad", "1" + "^1" * 900),
    "itself": watching("a-bad", "e0 + 1"),
    "circle": watching("a-bad", "e1", "e0"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_an_alarm_that_can_not_be_computed_says_so_and_the_others_go_on(
    tmp_path: Path, bad: AlarmRecord
) -> None:
    async with site_of(tmp_path) as site:
        await site.put(bad)
        await site.put(alarm("witness"))
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(25)
        assert await site.state("witness") == ("ALARM", 22.0)
        await site.stop()
        await site.start()
        for at in (20, 30):
            site.sample(1.0, at)
        await site.until(45)
        assert await site.state("witness") == ("OK", 32.0)
        shown, _ = explained(site.driver.seen())
        assert (shown["alarm"], shown["state"]) == ("a-bad", "INSUFFICIENT_DATA")
        assert shown["reason"] == "not-computable"
        assert shown["state_reason"].startswith("The alarm can't be evaluated: ")


async def test_a_look_that_fails_takes_no_other_change_of_that_second_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`a-bad` comes first; whatever its look raises, the witness enters its state on time."""
    read = Watched.datapoints

    async def fails(watched: Watched, *args: object, **kwargs: object) -> object:
        if watched._spec.name == "a-bad":
            raise OverflowError("intermediate overflow in fsum")
        return await read(watched, *args, **kwargs)  # type: ignore[arg-type]

    async with site_of(tmp_path) as site:
        before = item_failures.counts().get("alarms", 0)
        await site.put(alarm("a-bad", metric="Others"))
        await site.put(alarm("witness"))
        for at in (0, 10):
            site.sample(9.0, at)
        monkeypatch.setattr(Watched, "datapoints", fails)
        await site.until(25)
        assert await site.state("witness") == ("ALARM", 22.0)
        assert [name for _, name, _ in site.fired] == ["ALARM"]
        shown, _ = explained(site.driver.seen())
        assert shown["state_reason"] == "The alarm can't be evaluated: an internal error occurred."
        assert item_failures.counts()["alarms"] > before
        monkeypatch.undo()
        await site.until(35)  # there is nothing of the last seconds: that is all there is to say
        shown, _ = explained(site.driver.seen())
        assert shown["state_reason"].startswith("Insufficient Data: ")
        for at in (30, 40):
            site.sample(9.0, at, metric="Others")
        await site.until(55)  # as soon as it can be looked at it is an alarm like others
        assert (await site.state("a-bad"))[0] == "ALARM"


async def test_data_that_overflow_later_leave_the_alarm_without_data(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        record = alarm("a-bad")
        stat = record.spec.queries[0].stat
        queries = (
            MetricQuery(id="m1", stat=stat, return_data=False),
            MetricQuery(id="e1", expression="SUM([m1 * 1e150 * 1e50, m1 * 1e150 * 1e50])"),
        )
        await site.put(replace(record, spec=replace(record.spec, queries=queries)))
        await site.put(alarm("witness"))
        for at in (0, 10):
            site.sample(1e108, at)
        await site.until(25)
        assert await site.state("witness") == ("ALARM", 22.0)
        assert (await site.state("a-bad"))[0] == "INSUFFICIENT_DATA"


NO_SPECS = [
    to_json(replace(alarm("a-bad").spec, **{member: value}))
    for member, value in (("period_s", 0), ("period_s", "x"), ("evaluation_periods", None))
]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        *itertools.product(("spec", "actions"), ("", "{", "[]", '{"version": 9}')),
        *(("spec", text) for text in NO_SPECS),
    ],
)
async def test_a_row_that_can_not_be_read_spoils_only_itself(
    tmp_path: Path, column: str, text: str
) -> None:
    async with site_of(tmp_path) as site:
        await site.put(alarm("a-bad"))
        await site.put(alarm("witness"))
        await site.database.call(spoil, column, text)
        await site.stop()
        await site.start()
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(25)
        assert await site.state("witness") == ("ALARM", 22.0)
        shown, _ = explained(site.driver.seen())
        assert shown["state"] == "INSUFFICIENT_DATA"
        assert shown["state_reason"].startswith("The record of this alarm can't be read")
        await site.database.call(deleted)
        await site.until(26)
        assert [row["alarm"] for row in explained(site.driver.seen())] == ["witness"]


def spoil(store: Store, column: str, text: str) -> None:
    with store.begin() as db:
        db.execute(
            update(schema.alarms).where(schema.alarms.c.name == "a-bad").values({column: text})
        )


def deleted(store: Store) -> None:
    """Its actions are switched off and on before: what is kept of it is not written over."""
    with store.begin() as db:
        before = db.execute(schema.alarms.select().where(schema.alarms.c.name == "a-bad")).one()
        for enabled in (False, True):
            rows.enable_actions(db, ["a-bad"], enabled=enabled, now=1.0)
        after = db.execute(schema.alarms.select().where(schema.alarms.c.name == "a-bad")).one()
        assert (after.spec, after.actions) == (before.spec, before.actions)
        assert rows.remove(db, ["a-bad"], now=1.0) == ["a-bad"]
