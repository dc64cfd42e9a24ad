"""When something recurring is due, and recurring hours: for scheduled actions, jobs, warm models.

`at(yyyy-mm-ddThh:mm:ss)` once, `rate(n minutes|hours|days)` from its start on, `cron(...)` in a
time zone. A local time that a zone skips in spring is converted as if its clock had gone on; one
that occurs twice in autumn counts once, the first time. A rate counts seconds and ignores zones.

`Hours` say on which days, from when and until when, in a time zone:

    mon-fri 08:00-18:00        sat,sun 22:00-02:00        daily 00:00-24:00

Days are `daily`, names (mon to sun), ranges of them, or several with commas. Hours may cross
midnight and belong to the day on which they begin; 00:00-24:00 is the whole day. When clocks change
for summer time, the hours move with them. A cron expression gives the times at which they begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from penstock.core.timetable.cron import (
    DAY_S,
    WEEKDAYS,
    Cron,
    CronError,
    day_number,
    month_length,
)
from penstock.core.timetable.cron import parse as parse_cron

_EXPRESSION: Final = re.compile(r"(at|rate|cron)\(([^()]*)\)")
_RATE: Final = re.compile(r"([1-9][0-9]{0,8}) (minute|hour|day)s?", re.ASCII)
_AT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII
)
_UNIT_S: Final = {"minute": 60, "hour": 3600, "day": DAY_S}
#: s. Clocks change by less than this: a local time within it may be due after a later one's moment.
_LOOKED_BACK_S: Final = 3 * 3600


class Zone(Protocol):
    """A time zone: what its clocks show, as seconds since their own 1 January 1970."""

    def local(self, wall: float) -> float: ...

    def wall(self, local: float) -> float:
        """Converts a local time. A skipped time is converted as if the clock had gone on; one that
        occurs twice gives the first."""


@dataclass(frozen=True, slots=True)
class At:
    moment: float  #: wall s


@dataclass(frozen=True, slots=True)
class Rate:
    every_s: int


@dataclass(frozen=True, slots=True)
class CronIn:
    cron: Cron
    zone: Zone


Expression = At | Rate | CronIn


@dataclass(frozen=True, slots=True)
class Timetable:
    """An expression, and the range of time in which it counts."""

    expression: Expression
    since: float  #: wall s; a rate counts from it
    until: float | None = None

    def next_due(self, *, after: float) -> float | None:
        """The first due time after that moment; None: never again.

        Nothing is due before `since` or after `until`.
        """
        return next(self.due_times(after=after), None)

    def due_times(self, *, after: float) -> Iterator[float]:
        """All due times after that moment, in order; may never end."""
        # Times are whole seconds; this also finds a time that is due exactly at the start.
        for moment in _due_times(self.expression, self.since, max(after, self.since - 1e-3)):
            if self.until is not None and moment > self.until:
                return
            yield moment


def parse(text: str, zone: Zone) -> Expression:
    """Raises `CronError`, whose text says what is wrong."""
    match = _EXPRESSION.fullmatch(text.strip())
    if match is None:
        raise CronError("a schedule is at(...), rate(...) or cron(...)")
    kind, inner = match[1], match[2].strip()
    if kind == "cron":
        return CronIn(parse_cron(inner), zone)
    if kind == "rate":
        rate = _RATE.fullmatch(inner)
        if rate is None:
            raise CronError("a rate is a positive whole number and minutes, hours or days")
        return Rate(int(rate[1]) * _UNIT_S[rate[2]])
    return At(zone.wall(_local(inner)))


def check_new(text: str) -> None:
    """Rejects what AWS never accepted and `parse` still reads for old records: a cron that names
    days in both day fields. Raises `CronError`."""
    match = _EXPRESSION.fullmatch(text.strip())
    fields = match[2].split() if match is not None and match[1] == "cron" else []
    if len(fields) == 6 and "?" not in (fields[2], fields[4]):
        raise CronError(
            "one of day of month and day of week has to be ?, as in cron(0 20 ? * MON-FRI *)"
        )


def _local(text: str) -> int:
    found = _AT.fullmatch(text)
    if found is None:
        raise CronError("a time is yyyy-mm-ddThh:mm:ss")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    in_year = year >= 1970 and 1 <= month <= 12 and 1 <= day <= month_length(year, month)
    if not in_year or hour > 23 or minute > 59 or second > 59:
        raise CronError(f"{text} is no time")
    return day_number(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second


def _due_times(expression: Expression, since: float, after: float) -> Iterator[float]:
    match expression:
        case At(moment):
            if moment > after:
                yield moment
        case Rate(every_s):
            first = max(int((after - since) // every_s) + 1, 1)
            yield from (since + steps * every_s for steps in count(first))
        case CronIn(cron, zone):
            last = after
            for local in cron.from_(max(int(zone.local(after)) - _LOOKED_BACK_S, 0)):
                moment = zone.wall(local)
                if moment > last:
                    last = moment
                    yield moment


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


def parse_hours(days: str, hours: str, zone: Zone) -> Hours:
    """Raises `CronError`."""
    begin, length = _minutes(hours)
    begins = f"{begin % 60} {begin // 60} ? * {_days(days)} *"
    return Hours(parse_cron(begins), length * 60, zone)


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
