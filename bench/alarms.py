"""What watching costs: hundreds of alarms over a real store and a real database, by their kind.

Alarm time is the clock's own, so a minute of it passes in a second; what is measured is the
processor time of each second of alarm time, all threads together, as a share of one core. All
alarms fall due in the same second, which is the worst that can happen (`second_ms_max`). Entering
their first states, all at once, is left out of the share and shown by itself (`entering_ms`).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import finish, versions
from penstock.clock import ManualClock
from penstock.control.alarms import rows
from penstock.control.alarms.driver import AlarmsDriver
from penstock.control.alarms.records import AlarmRecord
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.alarms.spec import AlarmFired, AlarmSpec, MetricQuery, MetricStat
from penstock.metrics.series.series import MetricKey
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore

T0 = 1_700_000_040  # a full minute
NEVER = "metrics that never arrive"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    period_s: int
    periods: int
    stat: str = "Average"
    math: bool = False


KINDS = (
    Kind(NEVER, 10, 3),
    Kind("3 x 10 s", 10, 3),
    Kind("90 x 10 s", 10, 90),
    Kind("3 x 60 s", 60, 3),
    Kind("3 x 1 s", 1, 3),
    Kind("3 x 10 s, p99", 10, 3, stat="p99"),
    Kind("3 x 10 s, math", 10, 3, math=True),
)


@dataclass(frozen=True, slots=True)
class Cost:
    kind: str
    share_of_core: float
    second_ms_max: float
    entering_ms: float


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench alarms")
    parser.add_argument("--alarms", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=60, help="of alarm time")
    options = parser.parse_args(arguments)
    print(f"{'kind':28} {'share of a core':>15} {'worst second':>13} {'entering':>10}")
    idle = asyncio.run(measured(KINDS[0], 0, options.seconds))
    costs = []
    for kind in KINDS:
        cost = asyncio.run(measured(kind, options.alarms, options.seconds))
        print(f"{cost.kind:28} {cost.share_of_core:15.4f} {cost.second_ms_max:10.1f} ms "
              f"{cost.entering_ms:7.1f} ms", flush=True)  # fmt: skip
        costs.append(cost)
    by_kind = {cost.kind: cost for cost in costs}
    never, some = by_kind[NEVER].share_of_core, by_kind["3 x 10 s"].share_of_core
    finish(
        "alarms",
        {
            "alarms": options.alarms,
            "share_of_core": some,
            "share_of_core_never": never,
            "never_vs_there": round(never / some, 2),
            "share_of_core_without_alarms": idle.share_of_core,
        },
        versions=versions("sqlalchemy"),
        seconds=options.seconds,
        costs=[asdict(cost) for cost in costs],
    )


async def _unasked(fired: AlarmFired) -> None:
    """What acts: no alarm here has an action."""
    raise AssertionError(f"{fired.alarm.name} has no action")


async def measured(kind: Kind, count: int, seconds: int) -> Cost:
    """Processor time of alarms of one kind."""
    with tempfile.TemporaryDirectory() as folder:
        clock, metrics = ManualClock(wall_s=float(T0)), MetricStore()
        database = StoreThread(lambda: Store(Path(folder)))
        await database.open()
        try:
            driver = AlarmsDriver(database, metrics, clock, _unasked)
            await driver.tick()  # alarms that it finds at its start wait for their time
            await database.call(_put, [_alarm(kind, number) for number in range(count)])
            if kind.name != NEVER:
                _fill(metrics, kind, count, seconds)
            entering = await _second(driver)  # in it every alarm is new, and looked at
            costs = []
            for _ in range(seconds):
                clock.advance(1.0)
                costs.append(await _second(driver))
            # The check that alarms do what they cost: each has come to its state.
            states = {alarm.record.state for alarm in driver.seen()}
            expected = "INSUFFICIENT_DATA" if kind.name == NEVER else "OK"
            assert states <= {expected}, f"{kind.name}: {states}"
        finally:
            await database.close()
    return Cost(
        kind.name,
        round(sum(costs) / seconds, 5),
        round(1_000 * max(costs), 2),
        round(1_000 * entering, 2),
    )


async def _second(driver: AlarmsDriver) -> float:
    began = time.process_time()
    await driver.tick()
    return time.process_time() - began


def _put(store: Store, alarms: list[AlarmRecord]) -> None:
    with store.begin() as db:
        for alarm in alarms:
            rows.put(db, alarm, now=T0)


def _alarm(kind: Kind, number: int) -> AlarmRecord:
    stat = MetricStat(
        namespace="Bench",
        name=f"m{number}",
        dimensions=(),
        period_s=kind.period_s,
        stat=kind.stat,
    )
    queries: tuple[MetricQuery, ...] = (MetricQuery(id="", stat=stat),)
    if kind.math:
        queries = (
            MetricQuery(id="m1", stat=stat, return_data=False),
            MetricQuery(id="m2", stat=stat, return_data=False),
            MetricQuery(id="e1", expression="m1 / (m2 + 1)"),
        )
    spec = AlarmSpec(
        name=f"alarm-{number}",
        queries=queries,
        period_s=kind.period_s,
        evaluation_periods=kind.periods,
        datapoints_to_alarm=kind.periods,
        threshold=5.0,
        comparison="GreaterThanThreshold",
    )
    return AlarmRecord(spec=spec, arn=f"arn:aws:cloudwatch:us-east-1:0:alarm:alarm-{number}")


def _fill(metrics: MetricStore, kind: Kind, count: int, seconds: int) -> None:
    """One sample a period, at most one each ten seconds; three different ones for a percentile."""
    samples = (1.0, 2.0, 3.0) if kind.stat != "Average" else (1.0,)
    since = T0 - (kind.periods + 4) * kind.period_s
    for at in range(since, T0 + seconds, min(kind.period_s, 10)):
        for number in range(count):
            metrics.put(
                MetricKey("Bench", f"m{number}", (), "None"),
                at,
                StatisticSet.of(*samples),
                now=at,
                high_resolution=True,
            )
