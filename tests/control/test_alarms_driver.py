"""Alarms in time: a real store of metrics, a real database, a clock that the test moves."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit import databases
from tests.kit.polling import until

from penstock.clock import ManualClock
from penstock.control.alarms import history, rows
from penstock.control.alarms.driver import AlarmsDriver, explained
from penstock.control.alarms.records import AlarmActions, AlarmRecord, HistoryQuery
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.alarms.spec import AlarmFired, AlarmSpec, MetricQuery, MetricStat
from penstock.errors import CallerError, NotNowError
from penstock.metrics.series.series import MetricKey
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore

pytestmark = pytest.mark.usefixtures("on_each_database")


T0 = 1_700_000_040  # a full minute
POLICY = "arn:aws:autoscaling:eu-1:000000000000:scalingPolicy:1:resource/sagemaker/x:policyName/p"
TOPIC = "arn:aws:sns:eu-1:000000000000:on-call"


def alarm(
    name: str = "busy",
    *,
    period_s: int = 10,
    n: int = 2,
    metric: str = "Queue",
    rule: str = "missing",
    actions: AlarmActions | None = None,
) -> AlarmRecord:
    stat = MetricStat(
        namespace="Shop", name=metric, dimensions=(), period_s=period_s, stat="Average"
    )
    spec = AlarmSpec(
        name=name,
        queries=(MetricQuery(id="", stat=stat),),
        period_s=period_s,
        evaluation_periods=n,
        datapoints_to_alarm=n,
        threshold=5.0,
        comparison="GreaterThanThreshold",
        treat_missing_data=rule,
    )
    return AlarmRecord(
        spec=spec,
        arn=f"arn:aws:cloudwatch:eu-1:000000000000:alarm:{name}",
        actions=actions or AlarmActions(alarm=(POLICY,)),
    )


#: By dialect; the words are what each database says of a full disk.
FULL_DISK = {
    "sqlite": (
        "CREATE TRIGGER no_room BEFORE INSERT ON alarm_history"
        " BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'could not extend file: no space left on device'; END $$",
        "CREATE TRIGGER no_room BEFORE INSERT ON alarm_history"
        " FOR EACH ROW EXECUTE FUNCTION no_room()",
    ),
}
ROOM_AGAIN = {
    "sqlite": ("DROP TRIGGER no_room",),
    "postgresql": ("DROP TRIGGER no_room ON alarm_history", "DROP FUNCTION no_room()"),
}


class AlarmDriverSite:
    """One server's alarms: its state is on disk, its metrics and its clock are the test's."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self.clock = ManualClock(wall_s=float(T0))
        self.metrics = MetricStore()
        self.fired: list[tuple[float, str, tuple[float, ...]]] = []
        self.on_action: Callable[[AlarmFired], Awaitable[None]] = self._note

    async def start(self) -> None:
        self.database = StoreThread(lambda: databases.opened(self._state_dir))
        await self.database.open()
        self.driver = AlarmsDriver(self.database, self.metrics, self.clock, self._act)
        await self.driver.tick()

    async def stop(self) -> None:
        await self.driver.stop()
        await self.database.close()

    async def _act(self, fired: AlarmFired) -> None:
        await self.on_action(fired)

    async def _note(self, fired: AlarmFired) -> None:
        assert (fired.action, fired.arn.rpartition(":")[2]) == (POLICY, fired.alarm.name)
        self.fired.append((fired.at - T0, fired.state, fired.values))

    async def put(self, record: AlarmRecord) -> None:
        def write(store: Store) -> None:
            with store.begin() as db:
                rows.put(db, record, now=self.clock.wall())

        await self.database.call(write)

    async def run(self, statements: Mapping[str, Sequence[str]]) -> None:
        """Those of the database that there is, by its dialect."""

        def write(store: Store) -> None:
            with store.begin() as db:
                for statement in statements[db.dialect.name]:
                    db.exec_driver_sql(statement)

        await self.database.call(write)

    async def until(self, second: int) -> None:
        """The driver's seconds up to T0 + `second`."""
        while self.clock.wall() < T0 + second:
            self.clock.advance(1.0)
            await self.driver.tick()

    def sample(self, value: float, at: int, metric: str = "Queue") -> None:
        self.metrics.put(
            MetricKey("Shop", metric, (), "None"),
            T0 + at,
            StatisticSet.of(value),
            now=self.clock.wall(),
            high_resolution=True,
        )

    async def state(self, name: str = "busy") -> tuple[str, float]:
        def read(store: Store) -> AlarmRecord | None:
            with store.read() as db:
                return rows.get(db, name)

        found = await self.database.call(read)
        assert found is not None
        return found.state, found.state_updated - T0

    async def history(self, kind: str = "") -> list[tuple[float, str]]:
        def read(store: Store) -> list[tuple[float, str]]:
            with store.read() as db:
                query = HistoryQuery(kind=kind, newest_first=False)
                return [(item.at - T0, item.summary) for item in history.listed(db, query)]

        return await self.database.call(read)


@contextlib.asynccontextmanager
async def site_of(folder: Path) -> AsyncIterator[AlarmDriverSite]:
    site = AlarmDriverSite(folder / "state")
    await site.start()
    try:
        yield site
    finally:
        await site.stop()


async def test_an_alarm_enters_its_states_and_acts_as_long_as_one_lasts(tmp_path: Path) -> None:
    """Windows of ten seconds; each is looked at two seconds after its end."""
    async with site_of(tmp_path) as site:
        await site.put(alarm(actions=AlarmActions(alarm=(POLICY,), ok=(POLICY, TOPIC))))
        for at, value in ((0, 1.0), (10, 1.0), (20, 9.0), (30, 9.0), (40, 9.0), (50, 1.0)):
            site.sample(value, at)
        await site.until(70)
        assert await site.history("StateUpdate") == [
            (12.0, "Alarm updated from INSUFFICIENT_DATA to OK"),
            (42.0, "Alarm updated from OK to ALARM"),
            (62.0, "Alarm updated from ALARM to OK"),
        ]
        assert site.fired == [
            (12.0, "OK", (1.0,)),
            (22.0, "OK", (1.0, 1.0)),  # a policy's action goes on each period
            (32.0, "OK", (1.0, 9.0)),
            (42.0, "ALARM", (9.0, 9.0)),
            (52.0, "ALARM", (9.0, 9.0)),
            (62.0, "OK", (9.0, 1.0)),
        ]
        assert await site.history("Action") == [
            (12.0, f"Successfully executed action {POLICY}"),
            (12.0, f"Failed to execute action {TOPIC}. Error: This server has no target for such"
                   " an action."),
            (42.0, f"Successfully executed action {POLICY}"),
            (62.0, f"Successfully executed action {POLICY}"),
            (62.0, f"Failed to execute action {TOPIC}. Error: This server has no target for such"
                   " an action."),
        ]  # fmt: skip


async def test_a_state_survives_a_kill_and_is_not_entered_again(tmp_path: Path) -> None:
    """The metrics of before are lost. The alarm stays what it was until datapoints decide, and its
    policy is told again only after a period."""
    async with site_of(tmp_path) as site:
        await site.put(alarm())
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(25)
        assert site.fired == [(22.0, "ALARM", (9.0, 9.0))]
        await site.stop()  # nothing is written at the end that was not written before
        site.metrics = MetricStore()
        site.clock.advance(1.0)
        await site.start()
        await site.until(44)
        assert await site.state() == ("ALARM", 22.0)
        assert site.fired[1:] == [(42.0, "ALARM", ())]
        for at in (40, 50):
            site.sample(1.0, at)
        await site.until(64)
        assert await site.history() == [
            (0.0, 'Alarm "busy" created'),
            (22.0, "Alarm updated from INSUFFICIENT_DATA to ALARM"),
            (22.0, f"Successfully executed action {POLICY}"),
            (52.0, "Alarm updated from ALARM to OK"),
        ]


async def test_after_enough_periods_the_silence_is_the_metrics_own(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.put(alarm())
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(25)
        await site.stop()
        site.metrics = MetricStore()
        await site.start()
        await site.until(200)
        assert await site.history("StateUpdate") == [
            (22.0, "Alarm updated from INSUFFICIENT_DATA to ALARM"),
            (72.0, "Alarm updated from ALARM to INSUFFICIENT_DATA"),  # four periods from 30 on
        ]


async def test_a_state_that_was_set_lasts_until_the_next_look_and_acts(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.put(alarm())
        for at in range(0, 60, 10):
            site.sample(1.0, at)
        await site.until(24)
        assert await site.driver.set_state("busy", "ALARM", "a drill", '{"why":"drill"}')
        assert await site.state() == ("ALARM", 24.0)
        assert site.fired == [(24.0, "ALARM", (1.0, 1.0))]
        await site.until(33)
        assert await site.state() == ("OK", 32.0)
        assert site.fired[1:] == []
        # To the state that it has: nothing happened.
        assert await site.driver.set_state("busy", "OK", "still", "")
        assert [summary for _, summary in await site.history("StateUpdate")] == [
            "Alarm updated from INSUFFICIENT_DATA to OK",
            "Alarm updated from OK to ALARM",
            "Alarm updated from ALARM to OK",
        ]
        assert not await site.driver.set_state("unheard", "OK", "?", "")


async def test_without_actions_enabled_states_move_and_nothing_runs(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.put(replace(alarm(), actions_enabled=False))
        for at in range(0, 40, 10):
            site.sample(9.0, at)
        await site.until(35)
        assert await site.state() == ("ALARM", 22.0)
        assert (site.fired, await site.history("Action")) == ([], [])
        await site.put(alarm())  # enabled while it lasts: from the next look on
        await site.until(45)
        assert [at for at, *_ in site.fired] == [42.0]


async def test_changes_of_others_count_within_a_second(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.put(alarm())
        for at in range(0, 60, 10):
            site.sample(6.0, at)
        await site.until(25)
        assert (await site.state())[0] == "ALARM"
        higher = alarm()
        await site.put(replace(higher, spec=replace(higher.spec, threshold=7.0)))
        await site.until(26)
        assert await site.state() == ("OK", 26.0)

        def remove(store: Store) -> None:
            with store.begin() as db:
                rows.remove(db, ["busy"], now=site.clock.wall())

        await site.database.call(remove)
        await site.until(27)
        assert site.driver.seen() == []


async def test_a_policy_that_fails_is_history_and_the_state_stands(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:

        async def refuse(fired: AlarmFired) -> None:
            raise CallerError("policy-unknown", f"No scaling policy has the ARN {fired.action}.")

        async def crash(fired: AlarmFired) -> None:
            raise ZeroDivisionError

        for name, act, told in (
            ("refused", refuse, f"No scaling policy has the ARN {POLICY}."),
            ("broken", crash, "An internal error occurred."),
        ):
            site.on_action = act
            await site.put(alarm(name, metric=name))
            start = int(site.clock.wall() - T0)
            for at in (start, start + 10):
                site.sample(9.0, at, metric=name)
            await site.until(start + 40)
            assert (await site.state(name))[0] == "ALARM"
            assert f"Failed to execute action {POLICY}. Error: {told}" in [
                summary for _, summary in await site.history("Action")
            ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("missing", []),
        ("ignore", []),
        ("breaching", ["Alarm updated from INSUFFICIENT_DATA to ALARM"]),
        ("notBreaching", ["Alarm updated from INSUFFICIENT_DATA to OK"]),
    ],
)
async def test_an_alarm_on_a_metric_that_never_arrives(
    tmp_path: Path, rule: str, expected: list[str]
) -> None:
    async with site_of(tmp_path) as site:
        await site.put(alarm(rule=rule))
        await site.until(60)
        assert [summary for _, summary in await site.history("StateUpdate")] == expected


async def test_math_over_two_metrics(tmp_path: Path) -> None:
    """Requests waiting per copy; a minute without copies is no datapoint."""
    async with site_of(tmp_path) as site:
        stats = {
            key: MetricStat(namespace="Shop", name=name, dimensions=(), period_s=60, stat="Sum")
            for key, name in (("m1", "Waiting"), ("m2", "Copies"))
        }
        queries = (
            *(MetricQuery(id=key, stat=stat, return_data=False) for key, stat in stats.items()),
            MetricQuery(id="e1", expression="m1 / m2", label="per copy"),
        )
        made = alarm(period_s=60, n=2)
        await site.put(replace(made, spec=replace(made.spec, queries=queries)))
        for minute, (waiting, copies) in enumerate(((1, 1), (12, 2), (5, 0), (14, 2))):
            site.clock.advance(1.0)
            site.sample(waiting, 60 * minute, metric="Waiting")
            site.sample(copies, 60 * minute, metric="Copies")
        await site.until(250)
        assert await site.history("StateUpdate") == [
            (62.0, "Alarm updated from INSUFFICIENT_DATA to OK"),
            (242.0, "Alarm updated from OK to ALARM"),
        ]
        assert site.fired == [(242.0, "ALARM", (6.0, 7.0))]
        state = site.driver.seen()[0].record
        assert json.loads(state.state_reason_data)["recentDatapoints"] == [6.0, 7.0]


async def test_math_that_can_never_be_computed_leaves_the_others_alone(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        broken = alarm("broken")
        queries = (MetricQuery(id="e1", expression="m9 * 2"),)
        await site.put(replace(broken, spec=replace(broken.spec, queries=queries)))
        await site.put(alarm())
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(25)
        assert (await site.state())[0] == "ALARM"
        assert await site.state("broken") == ("INSUFFICIENT_DATA", 0.0)


async def test_how_an_alarm_came_to_its_state_can_be_asked(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.put(replace(alarm(), owner=POLICY))
        await site.until(1)
        (before,) = explained(site.driver.seen())
        assert (before["reason"], before["looked_at"]) == ("no-data", T0 + 1.0)
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(25)
        (row,) = explained(site.driver.seen())
        assert row.pop("state_reason").startswith("Threshold Crossed: 2 out of the last 2")
        assert row == {
            "alarm": "busy",
            "owner": POLICY,
            "state": "ALARM",
            "state_since": T0 + 22.0,
            "rule": "2 of 2 x 10 s GreaterThanThreshold 5.0, missing data: missing",
            "reason": "threshold-crossed",
            "looked_at": T0 + 22.0,
            "look_at": T0 + 32.0,
            "datapoints": [
                {"at": T0 - 20, "value": None},
                {"at": T0 - 10, "value": None},
                {"at": T0, "value": 9.0},
                {"at": T0 + 10, "value": 9.0},
            ],
        }
        broken = replace(alarm("broken"), spec=replace(alarm("broken").spec, queries=(
            MetricQuery(id="e1", expression="m9 * 2"),
        )))  # fmt: skip
        await site.put(broken)
        await site.until(26)
        assert explained(site.driver.seen())[0]["reason"] == "not-computable"


async def test_a_clock_that_is_set_back_does_not_stop_alarms(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.put(alarm())
        await site.until(25)
        site.clock._wall_s -= 86_400
        day_before = -86_400
        for at in (0, 10):
            site.sample(9.0, day_before + 20 + at)
        await site.until(day_before + 45)
        assert (await site.state())[0] == "ALARM"


async def test_what_could_not_be_written_did_not_happen_yet(tmp_path: Path) -> None:
    """The state is entered, and acted on, at the next look that can be written."""
    async with site_of(tmp_path) as site:
        await site.put(alarm())
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(21)
        await site.run(FULL_DISK)
        site.clock.advance(1.0)
        with pytest.raises(NotNowError, match=r"disk is full|no space left"):
            await site.driver.tick()
        assert (await site.state(), site.fired) == (("INSUFFICIENT_DATA", 0.0), [])
        await site.run(ROOM_AGAIN)
        await site.until(35)
        assert await site.state() == ("ALARM", 32.0)
        assert site.fired == [(32.0, "ALARM", (9.0, 9.0))]


async def test_the_task_goes_on_after_a_failure_and_ends_when_stopped(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.put(alarm())
        for at in (0, 10):
            site.sample(9.0, at)
        await site.until(20)
        await site.run(FULL_DISK)
        site.clock.advance(3.0)
        site.driver.start()
        await until(lambda: site.driver.seen()[0].look_at > T0 + 22.0)
        await site.run(ROOM_AGAIN)
        site.clock.advance(10.0)
        await until(lambda: site.fired != [])
        await site.driver.stop()
        await site.driver.stop()
        assert site.fired == [(33.0, "ALARM", (9.0, 9.0))]
