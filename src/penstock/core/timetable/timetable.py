"""When something recurring is due: for scheduled actions and for schedules of jobs.

`at(yyyy-mm-ddThh:mm:ss)` once, `rate(n minutes|hours|days)` from its start on, `cron(...)` in a
time zone. A local time that a zone skips in spring is converted as if its clock had gone on; one
that occurs twice in autumn counts once, the first time. A rate counts seconds and ignores zones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from penstock.core.timetable.calendar import DAY_S, day_number, month_length
from penstock.core.timetable.cron import Cron, CronError, check_days
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
    if match is not None and match[1] == "cron":
        check_days(match[2].strip())


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
