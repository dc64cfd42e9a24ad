"""The Gregorian calendar over seconds since 1 January 1970, without a clock or a time zone.

Days become dates and dates days by arithmetic (Howard Hinnant, "chrono-Compatible Low-Level Date
Algorithms", `civil_from_days` and `days_from_civil`): years begin in March, so that a leap day is
the last of its year, and 400 of them are always 146,097 days.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DAY_S: Final = 86_400
_DAYS_OF_400_YEARS: Final = 146_097
_DAYS_TO_1970: Final = 719_468  # from 1 March of the year 0
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CalendarTime(NamedTuple):
    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int


def time_of(at: int) -> CalendarTime:
    """Date and time of day at a second since the epoch (>= 0)."""
    day, of_day = divmod(at, DAY_S)
    return CalendarTime(*date_of(day), of_day // 3600, of_day // 60 % 60, of_day % 60)


def date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of month of a day since the epoch (>= 0)."""
    cycle, of_cycle = divmod(day + _DAYS_TO_1970, _DAYS_OF_400_YEARS)
    of_400 = (of_cycle - of_cycle // 1_460 + of_cycle // 36_524 - of_cycle // 146_096) // 365
    of_year = of_cycle - (365 * of_400 + of_400 // 4 - of_400 // 100)  # 0 is the first of March
    months = (5 * of_year + 2) // 153
    month = months + 3 if months < 10 else months - 9
    year = 400 * cycle + of_400 + (month <= 2)
    return year, month, of_year - (153 * months + 2) // 5 + 1


def day_number(year: int, month: int, day: int) -> int:
    """Days since 1 January 1970."""
    cycle, of_400 = divmod(year - (month <= 2), 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    of_cycle = of_400 * 365 + of_400 // 4 - of_400 // 100 + of_year
    return cycle * _DAYS_OF_400_YEARS + of_cycle - _DAYS_TO_1970


def month_length(year: int, month: int) -> int:
    leaps = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leaps else _LENGTHS[month - 1]


def weekday(day: int) -> int:
    """1 = Sunday, as cron counts them; 1 January 1970 was a Thursday."""
    return (day + 4) % 7 + 1
