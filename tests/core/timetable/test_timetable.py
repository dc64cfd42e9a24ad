"""When what comes again is due: literal moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.clock import zone_of
from penstock.core.timetable import cron
from penstock.core.timetable.cron import (
    CronError,
    date_of,
    day_number,
    month_length,
    time_of,
    weekday,
)
from penstock.core.timetable.timetable import Timetable, Zone, check_new, parse

BERLIN, GREENWICH = zone_of("Europe/Berlin"), zone_of("UTC")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def due(text: str, after: str, zone: Zone = GREENWICH, **more: float) -> str | None:
    """In UTC, without the zone."""
    settings = {"since": at("2020-01-01T00:00:00")} | more
    found = Timetable(parse(text, zone), **settings).next_due(after=at(after))
    return None if found is None else datetime.fromtimestamp(found, UTC).isoformat()[:19]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("cron(0 8 * * ? *)", "2026-03-02T07:59:59", "2026-03-02T08:00:00"),
        ("cron(0 8 * * ? *)", "2026-03-02T08:00:00", "2026-03-03T08:00:00"),
        ("cron(0/20 9-17 ? * MON-FRI *)", "2026-03-06T17:40:00", "2026-03-09T09:00:00"),
        ("cron(30 6 ? * 1 *)", "2026-03-02T00:00:00", "2026-03-08T06:30:00"),  # 1 is Sunday
        ("cron(0 0 L * ? *)", "2026-02-01T00:00:00", "2026-02-28T00:00:00"),
        ("cron(0 0 LW * ? *)", "2026-02-01T00:00:00", "2026-02-27T00:00:00"),
        ("cron(0 0 1W * ? *)", "2026-08-01T00:00:00", "2026-08-03T00:00:00"),  # 1st: a Saturday
        ("cron(0 0 15W * ? *)", "2026-03-01T00:00:00", "2026-03-16T00:00:00"),  # 15th: a Sunday
        ("cron(0 0 ? * 6L *)", "2026-03-01T00:00:00", "2026-03-27T00:00:00"),  # last Friday
        ("cron(0 0 ? * MON#2 *)", "2026-03-01T00:00:00", "2026-03-09T00:00:00"),
        ("cron(0 0 29 FEB ? *)", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("cron(0 0 1 1 ? 2199)", "2026-03-01T00:00:00", "2199-01-01T00:00:00"),
        ("cron(5,10 0 1,15 */6 ? *)", "2026-03-01T00:00:00", "2026-07-01T00:05:00"),
        ("cron(59 23 31 DEC ? *)", "2026-03-01T00:00:00", "2026-12-31T23:59:00"),  # the last of all
        ("cron(* 0 1 1 ? *)", "2026-01-01T00:58:00", "2026-01-01T00:59:00"),
        ("cron(* 0 1 1 ? *)", "2026-01-01T00:59:00", "2027-01-01T00:00:00"),
        ("cron(*/1 8 * * ? *)", "2026-03-02T08:00:00", "2026-03-02T08:01:00"),
        ("cron(5-5 8 * * ? *)", "2026-03-02T08:00:00", "2026-03-02T08:05:00"),
        ("cron(0 0 31W 1 ? *)", "2026-01-01T00:00:00", "2026-01-30T00:00:00"),  # 31st: a Saturday
        ("cron(0 0 31W 3 ? *)", "2026-03-01T00:00:00", "2026-03-31T00:00:00"),  # a Tuesday
        ("cron(0 0 ? * L *)", "2026-03-01T00:00:00", "2026-03-07T00:00:00"),  # a Saturday
        ("cron(0 0 ? * 1L *)", "2026-03-01T00:00:00", "2026-03-29T00:00:00"),
        ("cron(0 0 ? * 7L *)", "2026-03-01T00:00:00", "2026-03-28T00:00:00"),
        ("cron(0 0 ? * TUEL *)", "2026-03-01T00:00:00", "2026-03-31T00:00:00"),
        ("cron(0 0 ? * MON,WED *)", "2026-03-02T00:00:00", "2026-03-04T00:00:00"),
        ("cron(0 0 ? * 1#1 *)", "2026-02-28T00:00:00", "2026-03-01T00:00:00"),
        ("cron(0 0 ? * 7#1 *)", "2026-02-28T00:00:00", "2026-03-07T00:00:00"),
        ("cron(0 0 ? * 1#2 *)", "2026-02-28T00:00:00", "2026-03-08T00:00:00"),
        ("cron(0 0 ? * 7#2 *)", "2026-02-28T00:00:00", "2026-03-14T00:00:00"),
        ("cron(0 0 ? * 1#3 *)", "2026-02-28T00:00:00", "2026-03-15T00:00:00"),
        ("cron(0 0 ? * TUE#5 *)", "2026-02-28T00:00:00", "2026-03-31T00:00:00"),
        # A 29 February that is a Monday: none in 2100, so it takes as long as it ever can.
        ("cron(0 0 29 2 MON *)", "2072-03-01T00:00:00", "2112-02-29T00:00:00"),
        ("at(2026-03-02T10:00:00)", "2026-03-02T09:00:00", "2026-03-02T10:00:00"),
        ("at(2026-03-02T10:00:00)", "2026-03-02T10:00:00", None),
        ("at(2026-12-31T23:59:59)", "2026-03-02T10:00:00", "2026-12-31T23:59:59"),
        ("at(2026-03-01T00:30)", "2026-02-28T10:00:00", "2026-03-01T00:30:00"),
        ("at(2027-01-01T00:00)", "2026-02-28T10:00:00", "2027-01-01T00:00:00"),
        ("cron(0 0 28W 2 ? 2026)", "2026-02-01T00:00:00", "2026-02-27T00:00:00"),  # a Saturday
        ("cron(0 0 2W 5 ? *)", "2026-05-01T00:00:00", "2027-05-03T00:00:00"),  # 2027: a Sunday
        ("cron(0 0 31W 5 ? *)", "2026-05-01T00:00:00", "2026-05-29T00:00:00"),  # the last, a Sunday
        ("cron(0 0 ? 6 3L *)", "2026-06-01T00:00:00", "2026-06-30T00:00:00"),  # the last of all
        ("cron(0 0 1 1 ? 2025)", "2026-03-01T00:00:00", None),  # has been
        ("cron(0 0 30 2 ? *)", "2026-03-01T00:00:00", None),  # never will be
        ("cron(0 0 31W 4 ? *)", "2026-03-01T00:00:00", None),
    ],
)
def test_the_next_time(text: str, after: str, expected: str | None) -> None:
    assert due(text, after) == expected


def test_times_come_in_order_from_a_moment_on() -> None:
    daily = cron.parse("0 8,20 * * ? *").from_(int(at("2026-01-30T20:00:00")))
    found = [datetime.fromtimestamp(next(daily), UTC).strftime("%m-%d %H") for _ in range(5)]
    assert found == ["01-30 20", "01-31 08", "01-31 20", "02-01 08", "02-01 20"]


def test_a_rate_counts_from_its_start() -> None:
    start = at("2026-03-02T10:00:30")
    assert due("rate(5 minutes)", "2026-03-02T10:00:30", since=start) == "2026-03-02T10:05:30"
    assert due("rate(5 minutes)", "2026-03-02T10:05:30", since=start) == "2026-03-02T10:10:30"
    assert due("rate(1 day)", "2026-03-09T11:00:00", since=start) == "2026-03-10T10:00:30"
    assert due("rate(1 hour)", "2026-03-01T00:00:00", since=start) == "2026-03-02T11:00:30"


def test_nothing_is_due_before_its_start_or_after_its_end() -> None:
    start, end = at("2026-03-10T08:00:00"), at("2026-03-11T08:00:00")
    every_day = "cron(0 8 * * ? *)"
    assert due(every_day, "2026-03-02T00:00:00", since=start) == "2026-03-10T08:00:00"
    assert due(every_day, "2026-03-10T08:00:00", until=end) == "2026-03-11T08:00:00"
    assert due(every_day, "2026-03-11T08:00:00", until=end) is None


def test_the_clock_of_a_time_zone() -> None:
    """Eight in the morning in Berlin: 7:00 UTC in winter, 6:00 in summer."""
    assert due("cron(0 8 * * ? *)", "2026-03-27T12:00:00", BERLIN) == "2026-03-28T07:00:00"
    assert due("cron(0 8 * * ? *)", "2026-03-28T12:00:00", BERLIN) == "2026-03-29T06:00:00"
    assert due("at(2026-07-01T08:00:00)", "2026-01-01T00:00:00", BERLIN) == "2026-07-01T06:00:00"


def test_a_time_that_the_clock_skips_is_due_as_if_it_went_on() -> None:
    """29 March 2026: 2:00 becomes 3:00, and 2:30 is 3:30 then, 1:30 UTC; once, and the next day."""
    text = "cron(30 2 * * ? *)"
    assert due(text, "2026-03-28T12:00:00", BERLIN) == "2026-03-29T01:30:00"
    assert due(text, "2026-03-29T01:10:00", BERLIN) == "2026-03-29T01:30:00"
    assert due(text, "2026-03-29T01:30:00", BERLIN) == "2026-03-30T00:30:00"


def test_a_time_that_comes_twice_counts_once() -> None:
    """25 October 2026: 3:00 becomes 2:00. 2:30 comes at 0:30 UTC and again at 1:30."""
    text = "cron(30 2 * * ? *)"
    assert due(text, "2026-10-24T12:00:00", BERLIN) == "2026-10-25T00:30:00"
    assert due(text, "2026-10-25T00:30:00", BERLIN) == "2026-10-26T01:30:00"


@pytest.mark.parametrize(
    "text",
    [
        "", "every day", "cron(0 8 * * *)", "cron(60 8 * * ? *)", "cron(0 24 * * ? *)",
        "cron(0 8 32 * ? *)", "cron(0 8 * 13 ? *)", "cron(0 8 ? * 8 *)", "cron(0 8 ? * ? *)",
        "cron(0 8 * * ? 1969)", "cron(a 8 * * ? *)", "cron(9-5 8 * * ? *)", "cron(*/0 8 * * ? *)",
        "cron(0 8 ? * MON#6 *)", "cron(0 8 ? * MON#0 *)", "cron(0 8 ? * 0#1 *)",
        "cron(0 8 ? * 8#1 *)", "at(1969-12-31T00:00:00)", "at(2026-00-01T00:00)",
        "at(2026-13-01T00:00)", "at(2026-01-00T00:00)", "at(2026-01-01T24:00)",
        "at(2026-01-01T00:60)", "at(2026-01-01T00:00:60)",
        "cron(0 8 ? * 0 *)", "cron(0 8 ? * 0L *)", "cron(0 8 ? * 8L *)", "cron(0 8 0 * ? *)",
        "cron(0 8 0W * ? *)", "cron(0 8 32W * ? *)", "cron(00000 8 * * ? *)", "cron(0 8 * 0 ? *)",
        "cron(0 8 * * ? 2200)", "cron(² 8 * * ? *)", "cron(0 8 * * ? *", "rate(0 minutes)",
        "rate(5 seconds)", "rate(-1 hour)", "rate(5minutes)", "at(tomorrow)",
        "at(2026-02-30T00:00:00)", "at(2026-01-01)", "at(99999-01-01T00:00:00)",
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(CronError):
        parse(text, GREENWICH)


@pytest.mark.parametrize(
    "text", ["cron(0 20 * * MON-FRI *)", "cron(0 20 1 * MON *)", "cron(0 8 * * * *)"]
)
def test_a_new_cron_names_its_days_in_one_field_and_an_old_one_goes_on(text: str) -> None:
    """AWS takes no such expression. What was taken here before is due as it was."""
    with pytest.raises(CronError, match="one of day of month and day of week has to be"):
        check_new(text)
    assert due(text, "2026-03-01T00:00:00") is not None


@pytest.mark.parametrize("text", ["cron(0 8 * * ? *)", "cron(0 8 ? * MON *)", "rate(1 hour)"])
def test_a_new_expression_that_names_its_days_once_is_taken(text: str) -> None:
    check_new(text)


# The calendar, checked against the standard library's.


def test_each_day_from_1970_to_2200_has_its_date_its_number_and_its_day_of_the_week() -> None:
    first = datetime(1970, 1, 1, tzinfo=UTC)
    for number in range(84_000):
        day = first + timedelta(days=number)
        assert date_of(number) == (day.year, day.month, day.day)
        assert day_number(day.year, day.month, day.day) == number
        assert weekday(number) == day.isoweekday() % 7 + 1


def test_days_before_1970_have_numbers_below_0() -> None:
    assert [day_number(*date) for date in ((1969, 12, 31), (1968, 2, 29))] == [-1, -672]


def test_leap_years_are_every_fourth_but_three_of_four_centuries() -> None:
    assert [month_length(year, 2) for year in (2000, 2023, 2024, 2100)] == [29, 28, 29, 28]
    assert [month_length(2023, month) for month in range(1, 13)] == [
        31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31,
    ]  # fmt: skip


def test_a_second_has_a_date_and_a_time() -> None:
    assert time_of(0) == (1970, 1, 1, 0, 0, 0)
    assert time_of(1_709_247_600) == (2024, 2, 29, 23, 0, 0)
    assert time_of(1_709_251_199) == (2024, 2, 29, 23, 59, 59)
