"""Scheduled actions: when they are due.

`at(yyyy-mm-ddThh:mm:ss)` once, `rate(n minutes|hours|days)` from its start on, `cron(...)` on the
clock of a time zone. A local time that a zone skips in spring is taken as the zone's clock would
have gone on; one that comes twice in autumn counts once, the first time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.core.scaling.cron import Cron, CronError, day_number, month_length
from penstock.core.scaling.cron import parse as parse_cron

_EXPRESSION: Final = re.compile(r"(at|rate|cron)\(([^()]*)\)")
_RATE: Final = re.compile(r"([1-9][0-9]{0,8}) (minute|hour|day)s?", re.ASCII)
_AT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII
)
_UNIT_S: Final = {"minute": 60, "hour": 3600, "day": 86400}
#: A clock is put forward by less: local times within it may be due after a later one's moment.
_LOOKED_BACK_S: Final = 3 * 3600


class Zone(Protocol):
    """A time zone: what its clocks show, as seconds since their own 1 January 1970."""

    def local(self, wall: float) -> float: ...

    def wall(self, local: float) -> float:
        """Of a time that is skipped, as if the clock had gone on; of one that comes twice, the
        first."""


@dataclass(frozen=True, slots=True)
class At:
    moment: float  #: wall seconds


@dataclass(frozen=True, slots=True)
class Rate:
    every_s: int


@dataclass(frozen=True, slots=True)
class CronIn:
    cron: Cron
    zone: Zone


Schedule = At | Rate | CronIn


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledAction:
    """What is to become of a target's bounds, and when."""

    name: str
    schedule: Schedule
    since: float  #: its StartTime, else when it was made; wall seconds
    until: float | None = None  #: EndTime
    capacity_min: int | None = None  #: None: stays
    capacity_max: int | None = None


def parse(text: str, zone: Zone) -> Schedule:
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


def _local(text: str) -> int:
    found = _AT.fullmatch(text)
    if found is None:
        raise CronError("a time is yyyy-mm-ddThh:mm:ss")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    in_year = year >= 1970 and 1 <= month <= 12 and 1 <= day <= month_length(year, month)
    if not in_year or hour > 23 or minute > 59 or second > 59:
        raise CronError(f"{text} is no time")
    return day_number(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second


def next_due(action: ScheduledAction, *, after: float) -> float | None:
    """The first time after that moment at which it is due; None: never again.

    Nothing is due before `since` or after `until`.
    """
    found = _next(action.schedule, action.since, max(after, _before(action.since)))
    if found is None or (action.until is not None and found > action.until):
        return None
    return found


def _before(moment: float) -> float:
    """So that what is due at the very moment is found: times are whole seconds."""
    return moment - 1e-3


def _next(schedule: Schedule, since: float, after: float) -> float | None:
    match schedule:
        case At(moment):
            return moment if moment > after else None
        case Rate(every_s):
            steps = max(int((after - since) // every_s) + 1, 1)
            return since + steps * every_s
        case CronIn(cron, zone):
            for local in cron.from_(max(int(zone.local(after)) - _LOOKED_BACK_S, 0)):
                moment = zone.wall(local)
                if moment > after:
                    return moment
    return None
