"""Keep-warm schedules: the driver on a clock in the test's hands, and a real host."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from test_model_host import HOST, ModelHostClient, adding
from tests.kit.instances import instance
from tests.kit.polling import wait_until
from tests.kit.timers import ManualTimers

from penstock.clock import ManualClock
from penstock.errors import CallerError
from penstock.instance.models.hosted import KeepWarmDriver, schedules_of

MONDAY = dt.datetime(2026, 11, 23, tzinfo=dt.UTC).timestamp()
HOUR_S = 3600.0


class WarmingHost:
    """What the driver asks of a host."""

    def __init__(self) -> None:
        self.state = "ready"
        self.explicit = self  #: what may be asked of it by name
        self.calls: list[tuple[str, str, bool]] = []

    def wish(self, name: str) -> None:
        self.calls.append(("wish", name, True))

    def pin(self, name: str, pinned: bool) -> None:
        self.calls.append(("pin", name, pinned))

    def taken(self) -> list[tuple[str, str, bool]]:
        calls, self.calls = self.calls, []
        return calls


def test_a_model_is_pinned_and_loaded_for_its_hours_and_only_unpinned_after_them() -> None:
    host = WarmingHost()
    clock = ManualClock(wall_s=MONDAY + 7 * HOUR_S)
    timers = ManualTimers(clock)
    schedules = schedules_of({"PENSTOCK_KEEP_WARM": "mon 08:00-09:00: m"})
    driver = KeepWarmDriver(schedules, host, clock=clock, call_at=timers.call_at)
    timers.move_to(0.9 * HOUR_S)
    assert host.taken() == []
    timers.move_to(HOUR_S)
    assert host.taken()[:2] == [("pin", "m", True), ("wish", "m", True)]
    timers.move_to(2.1 * HOUR_S)
    assert host.taken()[-1] == ("pin", "m", False)
    timers.move_to(3 * HOUR_S)
    assert host.taken() == []
    driver.close()


def test_a_host_that_drains_is_asked_for_nothing() -> None:
    host = WarmingHost()
    clock = ManualClock(wall_s=MONDAY)
    timers = ManualTimers(clock)
    schedules = schedules_of({"PENSTOCK_KEEP_WARM": "daily 00:00-24:00: m"})
    driver = KeepWarmDriver(schedules, host, clock=clock, call_at=timers.call_at)
    host.state = "draining"
    timers.move_to(HOUR_S)
    assert host.taken() == []
    driver.close()


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(CallerError, match="Atlantis"):
        schedules_of({"PENSTOCK_KEEP_WARM": "mon 08:00-09:00 Atlantis/Port: m"})


def test_a_host_loads_what_is_to_be_warm_before_anybody_calls_it(tmp_path: Path) -> None:
    prefix = tmp_path / "models"
    for number in range(3):
        adding(tmp_path, prefix / f"m{number}.tar.gz", number)
    schedule = {"PENSTOCK_KEEP_WARM": "daily 00:00-24:00: m0.tar.gz, m2.tar.gz"}
    with instance(tmp_path / "run", memory_bytes=4 << 30) as running:
        host = ModelHostClient(running, prefix)
        assert host.load(environment=schedule).get("ok")
        wait_until(lambda: host.status()["models_loaded"] == 2, "both are loaded", seconds=60)
        assert host.ask("m2.tar.gz", 5).json["sum"] == 7
        assert host.explained("m2.tar.gz")["hits"] == 1
        told = host.client.control(op="explain", copy=HOST)
        assert told.get("kept_warm") == ["m0.tar.gz", "m2.tar.gz"], told
        host.client.close()


@pytest.mark.parametrize("schedule", ["always: m", "daily 00:00-24:00: ../m"])
def test_a_schedule_that_can_not_be_fails_the_host(tmp_path: Path, schedule: str) -> None:
    prefix = tmp_path / "models"
    prefix.mkdir()
    with instance(tmp_path / "run") as running:
        host = ModelHostClient(running, prefix)
        error = host.load(environment={"PENSTOCK_KEEP_WARM": schedule})["error"]
        assert error["code"] in ("keep-warm-invalid", "target-model-invalid")
        assert host.client.control(op="status")["copies"] == []
        host.client.close()
