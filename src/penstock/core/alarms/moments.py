"""Wall seconds as CloudWatch writes them: the calendar, without a clock or a time zone.

Days become dates by the arithmetic of the Gregorian calendar (Howard Hinnant, "chrono-Compatible
Low-Level Date Algorithms", `civil_from_days`): years begin in March, so that a leap day is the last
of its year, and 400 of them are always 146,097 days.
"""

from __future__ import annotations

from typing import Final

_DAY_S: Final = 86_400
_DAYS_OF_400_YEARS: Final = 146_097
_DAYS_TO_1970: Final = 719_468  # from 1 March of the year 0


def moment(at: float) -> str:
    """As in JSON: 2023-11-14T22:14:00.000+0000."""
    milliseconds = int(at * 1000)
    second, rest = divmod(milliseconds, 1000)
    year, month, day = date_of(second // _DAY_S)
    return f"{year:04d}-{month:02d}-{day:02d}T{_time(second)}.{rest:03d}+0000"


def stamp(at: int) -> str:
    """As in a StateReason: 14/11/23 22:14:00."""
    year, month, day = date_of(at // _DAY_S)
    return f"{day:02d}/{month:02d}/{year % 100:02d} {_time(at)}"


def date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of month of a day since the epoch (>= 0)."""
    cycle, of_cycle = divmod(day + _DAYS_TO_1970, _DAYS_OF_400_YEARS)
    of_400 = (of_cycle - of_cycle // 1_460 + of_cycle // 36_524 - of_cycle // 146_096) // 365
    of_year = of_cycle - (365 * of_400 + of_400 // 4 - of_400 // 100)  # 0 is the first of March
    months = (5 * of_year + 2) // 153
    month = months + 3 if months < 10 else months - 9
    year = 400 * cycle + of_400 + (month <= 2)
    return year, month, of_year - (153 * months + 2) // 5 + 1


def _time(second: int) -> str:
    of_day = second % _DAY_S
    return f"{of_day // 3600:02d}:{of_day // 60 % 60:02d}:{of_day % 60:02d}"
