"""Alarms as they are kept: what a caller writes, what a transaction holds, what history tells."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.control.alarms import history, rows
from penstock.control.alarms.records import (
    AlarmActions,
    AlarmQuery,
    AlarmRecord,
    HistoryQuery,
)
from penstock.control.store.store import Store
from penstock.core.alarms.spec import AlarmSpec, MetricQuery, MetricStat

POLICY = "arn:aws:autoscaling:eu-1:000000000000:scalingPolicy:1:resource/sagemaker/x:policyName/p"
STAT = MetricStat(
    namespace="Shop", name="Queue", dimensions=(("Host", "a"), ("Zone", "1")), period_s=10,
    stat="Average", unit="Count",
)  # fmt: skip


def record(name: str = "busy", *, threshold: float = 5.0, owner: str = "") -> AlarmRecord:
    spec = AlarmSpec(
        name=name,
        queries=(MetricQuery(id="", stat=STAT),),
        period_s=10,
        evaluation_periods=3,
        datapoints_to_alarm=2,
        threshold=threshold,
        comparison="GreaterThanThreshold",
        description="too many wait",
    )
    return AlarmRecord(
        spec=spec,
        arn=f"arn:aws:cloudwatch:eu-1:000000000000:alarm:{name}",
        actions=AlarmActions(alarm=(POLICY,), ok=("https://example.org/hook",)),
        owner=owner,
        omitted=("TreatMissingData",),
    )


def kinds(store: Store, alarm: str = "") -> list[str]:
    with store.read() as db:
        found = history.listed(db, HistoryQuery(alarm=alarm, newest_first=False))
    return [f"{item.at:.0f} {item.summary}" for item in found]


def test_a_new_alarm_has_insufficient_data_and_is_found_as_it_was_written(store: Store) -> None:
    with store.begin() as db:
        kept = rows.put(db, record(), now=100.0)
    assert kept == replace(record(), state_updated=100.0, configuration_updated=100.0, revision=1)
    with store.read() as db:
        assert rows.get(db, "busy") == kept
        assert rows.get(db, "BUSY") is None  # names have case
        assert rows.find(db, ["other", "busy", "busy"]) == [kept]


def test_math_survives_the_way_through_a_row(store: Store) -> None:
    queries = (
        MetricQuery(id="m1", stat=replace(STAT, unit=None), return_data=False),
        MetricQuery(id="e1", expression="m1 / 2", label="half", period_s=10),
    )
    made = record()
    made = replace(made, spec=replace(made.spec, queries=queries, low_samples="ignore"))
    with store.begin() as db:
        rows.put(db, made, now=1.0)
    with store.read() as db:
        found = rows.get(db, "busy")
    assert found is not None
    assert found.spec == made.spec


def test_an_update_keeps_the_state_and_replaces_the_rest(store: Store) -> None:
    with store.begin() as db:
        kept = rows.put(db, record(), now=100.0)
        alarming = replace(kept, state="ALARM", state_reason="why", state_updated=110.0)
        rows.set_state(db, alarming, [history.state_changed(alarming, kept, now=110.0)])
        rows.put(db, replace(record(threshold=9.0), omitted=()), now=120.0)
        found = rows.get(db, "busy")
    assert found is not None
    assert (found.state, found.state_reason, found.state_updated) == ("ALARM", "why", 110.0)
    assert (found.spec.threshold, found.omitted, found.configuration_updated) == (9.0, (), 120.0)
    assert kinds(store) == [
        '100 Alarm "busy" created',
        "110 Alarm updated from INSUFFICIENT_DATA to ALARM",
        '120 Alarm "busy" updated',
    ]


def test_a_transaction_that_fails_leaves_neither_alarm_nor_history(store: Store) -> None:
    def put_and_fail() -> None:
        with store.begin() as db:
            rows.put(db, record(), now=100.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        put_and_fail()
    with store.read() as db:
        assert rows.get(db, "busy") is None
    assert kinds(store) == []


def test_a_state_that_was_decided_on_an_older_configuration_is_not_written(store: Store) -> None:
    with store.begin() as db:
        kept = rows.put(db, record(), now=100.0)
        rows.put(db, record(threshold=9.0), now=101.0)
        with pytest.raises(rows.AlarmChanged):
            rows.set_state(db, replace(kept, state="ALARM"), [])
    with store.begin() as db:
        current = rows.get(db, "busy")
        assert current is not None
        rows.remove(db, ["busy"], now=102.0)
        with pytest.raises(rows.AlarmChanged):
            rows.set_state(db, replace(current, state="ALARM"), [])


def test_removing_keeps_the_history_and_passes_over_unknown_names(store: Store) -> None:
    with store.begin() as db:
        rows.put(db, record(), now=100.0)
        rows.put(db, record("idle"), now=100.0)
        assert rows.remove(db, ["busy", "unheard"], now=105.0) == ["busy"]
    assert kinds(store, "busy") == ['100 Alarm "busy" created', '105 Alarm "busy" deleted']
    with store.read() as db:
        assert [one.name for one in rows.listed(db, AlarmQuery())] == ["idle"]


def test_one_number_tells_of_every_change(store: Store) -> None:
    """Also of one that deletes the newest alarm and makes another."""
    with store.begin() as db:
        assert rows.revision(db) == 0
        rows.put(db, record("a"), now=1.0)
        rows.put(db, record("b"), now=1.0)
    with store.read() as db:
        seen = rows.revision(db)
        assert rows.changed_since(db, seen) == ([], {"a", "b"})
    with store.begin() as db:
        rows.remove(db, ["b"], now=2.0)
        rows.put(db, record("c"), now=2.0)
    with store.read() as db:
        assert rows.revision(db) > seen
        changed, names = rows.changed_since(db, seen)
    assert ([one.name for one in changed], names) == (["c"], {"a", "c"})


def test_actions_are_switched_and_unknown_names_passed_over(store: Store) -> None:
    with store.begin() as db:
        rows.put(db, record(), now=1.0)
        rows.enable_actions(db, ["busy", "unheard"], enabled=False, now=2.0)
        rows.enable_actions(db, ["busy"], enabled=False, now=3.0)  # nothing changes
        found = rows.get(db, "busy")
    assert found is not None
    assert (found.actions_enabled, found.configuration_updated) == (False, 2.0)
    assert kinds(store) == ['1 Alarm "busy" created', '2 Alarm "busy" updated']


def test_lists_by_prefix_state_action_and_owner(store: Store) -> None:
    with store.begin() as db:
        rows.put(db, record("api-high", owner=POLICY), now=1.0)
        rows.put(db, record("api-low", owner=POLICY), now=1.0)
        quiet = replace(record("API-quiet"), actions=AlarmActions())
        kept = rows.put(db, quiet, now=1.0)
        rows.set_state(db, replace(kept, state="OK"), [])

    def names(query: AlarmQuery) -> list[str]:
        with store.read() as db:
            return [one.name for one in rows.listed(db, query)]

    assert names(AlarmQuery()) == ["API-quiet", "api-high", "api-low"]
    assert names(AlarmQuery(prefix="api-")) == ["api-high", "api-low"]
    assert names(AlarmQuery(state="OK")) == ["API-quiet"]
    assert names(AlarmQuery(action_prefix="arn:aws:autoscaling")) == ["api-high", "api-low"]
    assert names(AlarmQuery(names=("api-low", "x"))) == ["api-low"]
    assert names(AlarmQuery(after="API-quiet", limit=1)) == ["api-high"]
    with store.read() as db:
        assert [one.name for one in rows.find_owned(db, POLICY)] == ["api-high", "api-low"]


def test_history_goes_both_ways_in_pages_and_within_times(store: Store) -> None:
    with store.begin() as db:
        for number in range(4):
            rows.put(db, record(f"a{number}"), now=10.0 + number // 2)
    with store.read() as db:
        first = history.listed(db, HistoryQuery(limit=3))
        rest = history.listed(db, HistoryQuery(after=(first[-1].at, first[-1].id)))
        old = history.listed(db, HistoryQuery(newest_first=False, until=10.0))
    assert [one.alarm for one in (*first, *rest)] == ["a3", "a2", "a1", "a0"]
    assert [one.alarm for one in old] == ["a0", "a1"]
    assert json.loads(first[0].data)["createdAlarm"]["metricName"] == "Queue"


def test_old_history_and_too_much_of_it_goes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ITEMS_MAX", 3)
    with store.begin() as db:
        rows.put(db, record("old"), now=0.0)
        for number in range(5):
            rows.put(db, record("busy", threshold=number), now=history.KEPT_S + number)
        history.prune(db, now=history.KEPT_S + 1.0)
    assert kinds(store) == [
        f'{history.KEPT_S + number:.0f} Alarm "busy" updated' for number in (2, 3, 4)
    ]


def test_a_summary_is_at_most_as_long_as_clients_expect(store: Store) -> None:
    with store.begin() as db:
        rows.put(db, record("a" * 255), now=1.0)
        (item,) = history.listed(db, HistoryQuery())
    assert item.summary == 'Alarm "' + "a" * 248
    assert item.alarm == "a" * 255


def test_an_older_database_gets_the_tables(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    with sqlite3.connect(state_dir / "penstock.db") as database:
        database.executescript(Path(__file__).with_name("schema_1.sql").read_text())
    database.close()
    store = Store(state_dir)
    with store.begin() as db:
        rows.put(db, record(), now=1.0)
    assert kinds(store) == ['1 Alarm "busy" created']
    store.close()
