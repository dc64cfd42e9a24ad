"""Recurring hours: on which days, from when and until when, in a time zone.

    mon-fri 08:00-18:00        sat,sun 22:00-02:00        daily 00:00-24:00

Days are `daily`, names (mon to sun), ranges of them, or several with commas. Hours may cross
midnight and belong to the day on which they begin; 00:00-24:00 is the whole day. When clocks change
for summer time, the hours move with them. A cron expression gives the times at which they begin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.core.timetable import cron
from penstock.core.timetable.cron import WEEKDAYS, Cron, CronError
from penstock.core.timetable.timetable import Zone

_HOURS: Final = re.compile(r"(\d{1,4}):(\d\d)-(\d{1,4}):(\d\d)")
_DAY_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class Hours:
    begins: Cron
    length_s: int  #: at most a day
    zone: Zone

    def hold(self, wall: float) -> bool:
        """Whether wall second `wall` lies within the hours."""
        local = int(self.zone.local(wall))
        begin = next(self.begins.from_(local - self.length_s + 1), None)
        return begin is not None and begin <= local


def parse(days: str, hours: str, zone: Zone) -> Hours:
    """Raises `CronError`."""
    begin, length = _minutes(hours)
    begins = f"{begin % 60} {begin // 60} ? * {_days(days)} *"
    return Hours(cron.parse(begins), length * 60, zone)


def _days(text: str) -> str:
    """Days in the form of a cron, whose ranges do not cross Saturday."""
    fields = []
    for part in text.upper().split(","):
        first, dash, last = part.partition("-")
        if part == "DAILY":
            fields.append("*")
        elif first not in WEEKDAYS or (dash and last not in WEEKDAYS):
            raise CronError(f"{text!r} is not daily, nor days and ranges of days from mon to sun")
        elif dash and WEEKDAYS[last] < WEEKDAYS[first]:
            fields += [f"{first}-SAT", f"SUN-{last}"]
        else:
            fields.append(part)
    return ",".join(fields)


def _minutes(text: str) -> tuple[int, int]:
    """(minute of the day at which they begin, number of minutes)"""
    found = _HOURS.fullmatch(text)
    if found is None:
        raise CronError(f"{text!r} are no hours such as 08:00-18:00")
    hour, minute, hour_end, minute_end = (int(part) for part in found.groups())
    begin, end = hour * 60 + minute, hour_end * 60 + minute_end
    if max(minute, minute_end) > 59 or max(begin, end) > _DAY_MINUTES:
        raise CronError(f"{text!r} are no hours from 00:00 to 24:00")
    if begin in (_DAY_MINUTES, end):
        raise CronError(f"{text!r} begin at 24:00, or end where they begin")
    return begin, (end - begin) % _DAY_MINUTES or _DAY_MINUTES
