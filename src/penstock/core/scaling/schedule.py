"""Scheduled actions: when they are due.

`at(yyyy-mm-ddThh:mm:ss)` once, `rate(n minutes|hours|days)` from its start on, `cron(...)` on the
clock of a time zone. A local time that a zone skips in spring is taken as the zone's clock would
have gone on; one that comes twice in autumn counts once, the first time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final

from penstock.core.scaling.cron import Cron, CronError
from penstock.core.scaling.cron import parse as parse_cron

_EXPRESSION: Final = re.compile(r"(at|rate|cron)\((.*)\)", re.DOTALL)
_RATE: Final = re.compile(r"([1-9][0-9]{0,8}) (minute|hour|day)s?", re.ASCII)
_AT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?", re.ASCII)
_UNIT_S: Final = {"minute": 60, "hour": 3600, "day": 86400}
#: A clock is put forward by less: local times within it may be due after a later one's moment.
_LOOKED_BACK: Final = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class At:
    moment: float  #: wall seconds


@dataclass(frozen=True, slots=True)
class Rate:
    every_s: int


@dataclass(frozen=True, slots=True)
class CronIn:
    cron: Cron
    zone: tzinfo


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


def parse(text: str, zone: tzinfo) -> Schedule:
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
    if _AT.fullmatch(inner) is None:
        raise CronError("a time is yyyy-mm-ddThh:mm:ss")
    try:
        return At(datetime.fromisoformat(inner).replace(tzinfo=zone).timestamp())
    except (ValueError, OverflowError) as error:
        raise CronError(f"{inner} is no time: {error}") from error


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
            first = datetime.fromtimestamp(after, zone).replace(tzinfo=None) - _LOOKED_BACK
            for local in cron.from_(first.replace(second=0, microsecond=0)):
                moment = local.replace(tzinfo=zone).timestamp()
                if moment > after:
                    return moment
    return None
