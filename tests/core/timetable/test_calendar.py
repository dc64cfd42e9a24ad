"""The calendar, checked against the standard library's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.core.timetable.cron import date_of, day_number, month_length, time_of, weekday


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
