"""Keep-warm schedules on literal weeks."""

from __future__ import annotations

import dataclasses
import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from penstock.core.residency.keep_warm import Keep, KeepWarm, Release, Schedule, parse
from penstock.errors import CallerError

UTC = dt.UTC


@dataclasses.dataclass(frozen=True)
class LocalTime:
    zone: dt.tzinfo

    def local(self, wall: float) -> tuple[int, int]:
        local = dt.datetime.fromtimestamp(wall, self.zone)
        return local.weekday(), local.hour * 60 + local.minute


def zone_of(name: str) -> LocalTime:
    return LocalTime(UTC if name == "UTC" else ZoneInfo(name))


def at(text: str, zone: dt.tzinfo = UTC) -> float:
    """2026-11-23 is a Monday."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def test_schedules_are_read_with_days_hours_zone_and_models() -> None:
    berlin, night = parse(
        "mon-fri 08:00-18:30 Europe/Berlin: a.tar.gz, team/b.tar.gz; Sat,sun 22:00-02:00: n;",
        zone_of,
    )
    assert berlin == Schedule(
        days=frozenset({0, 1, 2, 3, 4}),
        begin_min=480,
        minutes=630,
        zone=zone_of("Europe/Berlin"),
        models=("a.tar.gz", "team/b.tar.gz"),
    )
    assert night == Schedule(
        days=frozenset({5, 6}), begin_min=1320, minutes=240, zone=zone_of("UTC"), models=("n",)
    )
    assert parse(" ; ", zone_of) == ()


@pytest.mark.parametrize(
    ("days", "read"),
    [
        ("daily", {0, 1, 2, 3, 4, 5, 6}),
        ("fri-mon", {4, 5, 6, 0}),
        ("tue", {1}),
        ("mon,wed-thu", {0, 2, 3}),
    ],
)
def test_days_are_names_ranges_over_the_weekend_and_lists(days: str, read: set[int]) -> None:
    [schedule] = parse(f"{days} 00:00-24:00: m", zone_of)
    assert schedule.days == read
    assert (schedule.begin_min, schedule.minutes) == (0, 1440)


@pytest.mark.parametrize(
    "text",
    [
        "mon-fri: m",
        "mon-fri 08:00-18:00",
        "mon-fri 08:00-18:00:",
        "mon-fri 08:00-18:00: ,",
        "monday 08:00-18:00: m",
        "mon-friday 08:00-18:00: m",
        "mon 8-18: m",
        "mon 08:00-08:00: m",
        "mon 24:00-08:00: m",
        "mon 08:00-24:01: m",
        "mon 08:60-09:00: m",
        "mon 08:00-09:0: m",
        "mon 08:00-18:00 Mars/Olympus: m",
        "mon 08:00-18:00 Europe/Berlin now: m",
        "; ".join(["mon 08:00-18:00: m"] * 101),
        "mon 08:00-18:00: " + ",".join(f"m{n}" for n in range(1001)),
    ],
)
def test_what_can_not_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CallerError) as raised:
        parse(text, zone_of)
    assert raised.value.code == "keep-warm-invalid"
    assert "mon-fri 08:00-18:00" in raised.value.hint


@pytest.mark.parametrize(
    ("moment", "holds"),
    [
        ("2026-11-23 07:59:59", False),
        ("2026-11-23 08:00", True),
        ("2026-11-27 17:59:59", True),  # Friday
        ("2026-11-27 18:00", False),
        ("2026-11-28 12:00", False),  # Saturday
    ],
)
def test_hours_begin_with_their_first_minute_and_end_before_their_last(
    moment: str, holds: bool
) -> None:
    [schedule] = parse("mon-fri 08:00-18:00: m", zone_of)
    assert schedule.holds(at(moment)) is holds


@pytest.mark.parametrize(
    ("moment", "holds"),
    [
        ("2026-11-27 21:59", False),
        ("2026-11-27 22:00", True),  # Friday
        ("2026-11-28 01:59", True),  # of Friday's
        ("2026-11-28 02:00", False),
        ("2026-11-28 23:00", False),  # Saturday has none
        ("2026-11-27 01:00", False),  # nor had Thursday
    ],
)
def test_hours_over_midnight_belong_to_the_day_on_which_they_begin(
    moment: str, holds: bool
) -> None:
    [schedule] = parse("fri 22:00-02:00: m", zone_of)
    assert schedule.holds(at(moment)) is holds


def test_hours_are_those_of_the_zone_before_and_after_clocks_are_set() -> None:
    [schedule] = parse("daily 08:00-09:00 Europe/Berlin: m", zone_of)
    # 2026-10-25: from summer time, UTC+2, to UTC+1
    assert schedule.holds(at("2026-10-24 06:30"))
    assert not schedule.holds(at("2026-10-24 07:30"))
    assert schedule.holds(at("2026-10-26 07:30"))
    assert not schedule.holds(at("2026-10-26 06:30"))


def test_a_model_is_kept_from_five_minutes_before_its_hours_until_they_end() -> None:
    keeper = KeepWarm(parse("mon 08:00-09:00: a, b", zone_of))
    assert keeper.next_deadline() == 0.0
    assert keeper.on_timer(now=at("2026-11-23 07:54")) == []
    assert keeper.next_deadline() == at("2026-11-23 07:55")
    assert keeper.on_timer(now=at("2026-11-23 07:55")) == [
        Keep("a", "hours-begin"),
        Keep("b", "hours-begin"),
    ]
    assert keeper.snapshot() == {"kept_warm": ["a", "b"], "schedules": 1}
    # Said again: a load may have failed.
    assert keeper.on_timer(now=at("2026-11-23 08:59")) == [
        Keep("a", "hours-last"),
        Keep("b", "hours-last"),
    ]
    assert keeper.on_timer(now=at("2026-11-23 09:00")) == [
        Release("a", "hours-over"),
        Release("b", "hours-over"),
    ]
    assert keeper.on_timer(now=at("2026-11-23 09:01")) == []


def test_a_model_of_two_schedules_is_let_go_when_both_are_over() -> None:
    keeper = KeepWarm(parse("mon 08:00-10:00: a; mon 09:00-12:00: a, b", zone_of))
    assert keeper.on_timer(now=at("2026-11-23 08:30")) == [Keep("a", "hours-begin")]
    assert keeper.on_timer(now=at("2026-11-23 10:30")) == [
        Keep("a", "hours-last"),
        Keep("b", "hours-begin"),
    ]
    assert keeper.on_timer(now=at("2026-11-23 12:00")) == [
        Release("a", "hours-over"),
        Release("b", "hours-over"),
    ]


def test_who_starts_in_the_middle_of_the_hours_keeps_at_once() -> None:
    keeper = KeepWarm(parse("daily 00:00-24:00: a", zone_of))
    assert keeper.on_timer(now=at("2026-11-23 13:00")) == [Keep("a", "hours-begin")]


def test_without_schedules_there_is_nothing_to_wait_for() -> None:
    keeper = KeepWarm(())
    assert keeper.next_deadline() is None
    assert keeper.on_timer(now=5.0) == []
