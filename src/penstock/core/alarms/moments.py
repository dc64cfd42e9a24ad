"""Wall seconds as CloudWatch writes them: the calendar, without a clock or a time zone."""

from __future__ import annotations

from penstock.core.timetable.calendar import time_of


def moment(at: float) -> str:
    """A time as JSON has it: 2023-11-14T22:14:00.000+0000."""
    seconds, rest = divmod(int(at * 1000), 1000)
    year, month, day, hour, minute, second = time_of(seconds)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}+0000"


def stamp(at: int) -> str:
    """A time as a StateReason has it: 14/11/23 22:14:00."""
    year, month, day, hour, minute, second = time_of(at)
    return f"{day:02}/{month:02}/{year % 100:02} {hour:02}:{minute:02}:{second:02}"
