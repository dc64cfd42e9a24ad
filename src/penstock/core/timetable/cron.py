"""Cron expressions of six fields: minutes, hours, day of month, month, day of week, year.

The dialect is Application Auto Scaling's (Quartz's fields without seconds): `* , - / ? L W #`,
names of months and days, 1 = Sunday. A day must match both day fields. Times are local times, in
seconds since 1 January 1970 on the local clock: the time zone is not known here.

The Gregorian calendar needs neither a clock nor a time zone. Days become dates and dates days by
arithmetic (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days` and
`days_from_civil`): years begin in March, so that a leap day is the last of its year, and 400 of
them are always 146,097 days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
        start=1,
    )
}
WEEKDAYS: Final = {
    name: number
    for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), start=1)
}
_YEARS: Final = (1970, 2199)
#: The calendar of leap years and weekdays repeats within 28 years, and within 40 across the year
#: 2100.
_LOOKED_AHEAD_YEARS: Final = 40


class Day(NamedTuple):
    number: int  #: since 1 January 1970
    year: int
    month: int
    day: int


DayRule = Callable[[Day], bool]


class CronError(ValueError):
    """What is wrong with an expression, for people."""


@dataclass(frozen=True, slots=True)
class Cron:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    years: tuple[int, ...]
    day_of_month: tuple[DayRule, ...]  #: rules of which any may match
    day_of_week: tuple[DayRule, ...]

    def from_(self, moment: int) -> Iterator[int]:
        """Matching times from `moment` on, in order; ends where none can follow."""
        for day in self._days(moment // DAY_S):
            for hour in self.hours:
                for minute in self.minutes:
                    found = day.number * DAY_S + hour * 3600 + minute * 60
                    if found >= moment:
                        yield found

    def _days(self, first: int) -> Iterator[Day]:
        first_year = date_of(first)[0]
        years = [one for one in self.years if one >= first_year]
        for year in [one for one in years if one <= years[0] + _LOOKED_AHEAD_YEARS]:
            for month in self.months:
                number = day_number(year, month, 1)
                for day in range(max(first - number + 1, 1), month_length(year, month) + 1):
                    found = Day(number + day - 1, year, month, day)
                    if self._holds(found):
                        yield found

    def _holds(self, day: Day) -> bool:
        return any(rule(day) for rule in self.day_of_month) and any(
            rule(day) for rule in self.day_of_week
        )


def parse(text: str) -> Cron:
    """Raises `CronError`."""
    fields = text.upper().split()
    if len(fields) != 6:
        raise CronError(f"a cron expression has 6 fields, this one has {len(fields)}")
    minutes, hours, of_month, month, of_week, year = fields
    if of_month == "?" and of_week == "?":
        raise CronError("day of month and day of week can't both be ?")
    return Cron(
        minutes=_numbers(minutes, 0, 59, "minutes"),
        hours=_numbers(hours, 0, 23, "hours"),
        months=_numbers(month, 1, 12, "month", _MONTHS),
        years=_numbers(year, *_YEARS, "year"),
        day_of_month=tuple(_of_month(part) for part in of_month.split(",")),
        day_of_week=tuple(_of_week(part) for part in of_week.split(",")),
    )


def _numbers(
    field: str, low: int, high: int, what: str, names: dict[str, int] | None = None
) -> tuple[int, ...]:
    found: set[int] = set()
    for part in field.split(","):
        found.update(_range(part, low, high, what, names or {}))
    return tuple(sorted(found))


def _range(part: str, low: int, high: int, what: str, names: dict[str, int]) -> range:
    span, slash, step_text = part.partition("/")
    step = _number(step_text, 1, high, what, {}) if slash else 1
    if span == "*":
        return range(low, high + 1, step)
    first_text, dash, last_text = span.partition("-")
    first = _number(first_text, low, high, what, names)
    if dash:
        last = _number(last_text, low, high, what, names)
        if last < first:
            raise CronError(f"{part!r} in {what} ends before it begins")
    else:
        last = high if slash else first
    return range(first, last + 1, step)


def _number(text: str, low: int, high: int, what: str, names: dict[str, int]) -> int:
    number = names.get(text)
    if number is None:
        if not (text.isascii() and text.isdigit() and len(text) <= 4):
            raise CronError(f"{text!r} in {what} can't be read")
        number = int(text)
    if not low <= number <= high:
        raise CronError(f"{text!r} in {what} is not from {low} to {high}")
    return number


def _of_month(part: str) -> DayRule:
    if part in ("*", "?"):
        return lambda day: True
    if part == "L":
        return lambda day: day.day == _length(day)
    if part == "LW":
        return lambda day: day.day == _weekday_near(day, _length(day))
    if part.endswith("W"):
        wanted = _number(part[:-1], 1, 31, "day of month", {})
        return lambda day: wanted <= _length(day) and day.day == _weekday_near(day, wanted)
    days = frozenset(_range(part, 1, 31, "day of month", {}))
    return lambda day: day.day in days


def _of_week(part: str) -> DayRule:
    if part in ("*", "?"):
        return lambda day: True
    if "#" in part:
        name, _, which = part.partition("#")
        wanted = _number(name, 1, 7, "day of week", WEEKDAYS)
        nth = _number(which, 1, 5, "day of week", {})
        return lambda day: weekday(day.number) == wanted and (day.day - 1) // 7 + 1 == nth
    if part == "L":
        return lambda day: weekday(day.number) == WEEKDAYS["SAT"]
    if part.endswith("L"):
        last = _number(part[:-1], 1, 7, "day of week", WEEKDAYS)
        return lambda day: weekday(day.number) == last and day.day + 7 > _length(day)
    days = frozenset(_range(part, 1, 7, "day of week", WEEKDAYS))
    return lambda day: weekday(day.number) in days


def _length(day: Day) -> int:
    return month_length(day.year, day.month)


def _weekday_near(day: Day, wanted: int) -> int:
    """The day from Monday to Friday that is nearest to the `wanted` one, within its month."""
    of_week = weekday(day.number + wanted - day.day)
    if of_week == WEEKDAYS["SAT"]:
        return wanted - 1 if wanted > 1 else wanted + 2
    if of_week == WEEKDAYS["SUN"]:
        return wanted + 1 if wanted < _length(day) else wanted - 2
    return wanted
