"""Hours that come again, on literal weeks."""

from __future__ import annotations

import datetime as dt

import pytest

from penstock.clock import zone_of
from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import Hours, parse_hours

WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def at(text: str) -> float:
    """UTC; 2026-11-23 is a Monday."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()


def hours(text: str, zone: str = "UTC") -> Hours:
    return parse_hours(*text.split(), zone_of(zone))


@pytest.mark.parametrize(
    ("days", "read"),
    [
        ("daily", "mon tue wed thu fri sat sun"),
        ("mon-sun", "mon tue wed thu fri sat sun"),
        ("sun-sat", "mon tue wed thu fri sat sun"),
        ("fri-mon", "mon fri sat sun"),
        ("sat-sun", "sat sun"),
        ("tue", "tue"),
        ("tue-tue", "tue"),
        ("Mon,WED-thu", "mon wed thu"),
        ("mon,daily", "mon tue wed thu fri sat sun"),
    ],
)
def test_days_are_names_ranges_over_the_weekend_and_lists(days: str, read: str) -> None:
    found = hours(f"{days} 00:00-24:00")
    monday = at("2026-11-23")
    held = [name for number, name in enumerate(WEEK) if found.hold(monday + number * 86_400)]
    assert held == read.split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("monday 08:00-18:00", "'monday' is not daily, nor days"),
        ("mon-friday 08:00-18:00", "'mon-friday' is not daily, nor days"),
        ("mon- 08:00-18:00", "'mon-' is not daily, nor days"),
        ("daily-sun 08:00-18:00", "'daily-sun' is not daily, nor days"),
        ("2-6 08:00-18:00", "'2-6' is not daily, nor days"),
        ("mon#2 08:00-18:00", "'mon#2' is not daily, nor days"),
        ("mon 8-18", "'8-18' are no hours such as 08:00-18:00"),
        ("mon 08:00", "'08:00' are no hours such as"),
        ("mon 08:00-09:0", "'08:00-09:0' are no hours such as"),
        ("mon 08:00-24:01", "'08:00-24:01' are no hours from 00:00 to 24:00"),
        ("mon 08:60-09:00", "'08:60-09:00' are no hours from"),
        ("mon 08:00-08:60", "'08:00-08:60' are no hours from"),
        ("mon 08:00-08:00", "'08:00-08:00' begin at 24:00, or end where they begin"),
        ("mon 24:00-08:00", "'24:00-08:00' begin at 24:00"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_part(text: str, words: str) -> None:
    with pytest.raises(CronError) as raised:
        hours(text)
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize(
    ("moment", "held"),
    [
        ("2026-11-23 07:59:59.9", False),
        ("2026-11-23 08:00", True),
        ("2026-11-27 17:59:59.9", True),  # Friday
        ("2026-11-27 18:00", False),
        ("2026-11-28 12:00", False),  # Saturday
    ],
)
def test_hours_begin_with_their_first_second_and_end_before_their_last(
    moment: str, held: bool
) -> None:
    assert hours("mon-fri 08:00-18:00").hold(at(moment)) is held


@pytest.mark.parametrize(
    ("moment", "held"),
    [
        ("2026-11-27 21:59", False),
        ("2026-11-27 22:30", True),  # Friday
        ("2026-11-28 01:59", True),  # of Friday's
        ("2026-11-28 02:00", False),
        ("2026-11-28 23:00", False),  # Saturday has none
        ("2026-11-27 01:00", False),  # nor had Thursday
    ],
)
def test_hours_over_midnight_belong_to_the_day_on_which_they_begin(moment: str, held: bool) -> None:
    assert hours("fri 22:30-02:00").hold(at(moment)) is held


def test_hours_end_with_any_minute_of_the_hour() -> None:
    late = hours("daily 22:59-23:59")
    shown = ["2026-11-23 22:58", "2026-11-23 22:59", "2026-11-23 23:58", "2026-11-23 23:59"]
    assert [late.hold(at(moment)) for moment in shown] == [False, True, True, False]


def test_hours_are_those_of_the_zone_before_and_after_clocks_are_set() -> None:
    morning = hours("daily 08:00-09:00", "Europe/Berlin")
    # 2026-10-25: from summer time, UTC+2, to UTC+1
    assert morning.hold(at("2026-10-24 06:30"))
    assert not morning.hold(at("2026-10-24 07:30"))
    assert morning.hold(at("2026-10-26 07:30"))
    assert not morning.hold(at("2026-10-26 06:30"))


def test_what_the_clock_shows_twice_is_within_the_hours_twice() -> None:
    """25 October 2026: at 3:00 it is 2:00 again. Both times it shows 2:30 the hours last."""
    night = hours("daily 02:00-03:00", "Europe/Berlin")
    shown = ["2026-10-24 23:59", "2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:00"]
    assert [night.hold(at(moment)) for moment in shown] == [False, True, True, False]
