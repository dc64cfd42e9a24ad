"""Which target models are to be loaded at which hours, whoever calls them.

A schedule is written as cron's users know its parts: days, hours, perhaps a time zone, models:

    mon-fri 08:00-18:00 Europe/Berlin: a.tar.gz, team/b.tar.gz; daily 22:00-02:00: night.tar.gz

Days are `daily`, names (mon to sun), ranges of them, or several with commas. Hours may run over
midnight and belong to the day on which they begin; 00:00-24:00 is the whole day. Without a zone
they are UTC. Clocks that are set forward or back move the hours with them.

A model is kept a little before its hours begin, so that it is there when they do. Nothing is undone
at their end but the pin: the model stays until others need its room. The machine says each wish
again now and then: one may have failed, and a model that is pinned may have crashed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.errors import CallerError

#: Before its hours a model is loaded; longer than loads of most models take.
EARLY_S: Final = 300.0
#: A wish that failed is said again after as long.
AGAIN_S: Final = 60.0

WISHED_EARLY: Final = "hours-begin"
WISHED_AGAIN: Final = "hours-last"
HOURS_OVER: Final = "hours-over"

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAILY: Final = "daily"
_DAY_MINUTES: Final = 24 * 60
_SCHEDULES_MAX: Final = 100
_MODELS_MAX: Final = 1000


class KeepWarmZone(Protocol):
    """A time zone."""

    def local(self, wall: float) -> tuple[int, int]:
        """Day of the week (0 = Monday) and minute of the day at wall second `wall`."""


ZoneOf = Callable[[str], KeepWarmZone]  #: raises KeyError, ValueError or OSError for a name of none


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Hours of some days, and the models that are kept warm in them."""

    days: frozenset[int]  #: on which the hours begin; 0 = Monday
    begin_min: int  #: minutes after midnight
    minutes: int  #: how long; past midnight, if so
    zone: KeepWarmZone
    models: tuple[str, ...]

    def holds(self, wall: float) -> bool:
        """Whether its hours are now, at wall second `wall`."""
        today, minute = self.zone.local(wall)
        if today in self.days and self.begin_min <= minute < self.begin_min + self.minutes:
            return True
        before = (today - 1) % 7
        return before in self.days and minute < self.begin_min + self.minutes - _DAY_MINUTES


@dataclass(frozen=True, slots=True)
class Keep:
    """The model is to be loaded and not to be evicted."""

    model: str
    reason: str  #: hours-begin | hours-last


@dataclass(frozen=True, slots=True)
class Release:
    """The model may be evicted."""

    model: str
    reason: str  #: hours-over


Action = Keep | Release


class KeepWarm:
    """Follows schedules. Times are wall seconds: hours are the wall clock's."""

    def __init__(self, schedules: tuple[Schedule, ...]) -> None:
        self._schedules = schedules
        self._kept: dict[str, None] = {}
        self._look_at: float | None = 0.0 if schedules else None

    def on_timer(self, *, now: float) -> list[Action]:
        """What is to be kept from now on, kept still, and let go."""
        if self._look_at is None:
            return []
        self._look_at = now + AGAIN_S
        wanted = {
            model: None
            for schedule in self._schedules
            if schedule.holds(now) or schedule.holds(now + EARLY_S)
            for model in schedule.models
        }
        actions: list[Action] = [
            Release(model, HOURS_OVER) for model in self._kept if model not in wanted
        ]
        actions += [
            Keep(model, WISHED_AGAIN if model in self._kept else WISHED_EARLY) for model in wanted
        ]
        self._kept = wanted
        return actions

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, a wall second; None: there are no schedules."""
        return self._look_at

    def snapshot(self) -> dict[str, Any]:
        return {"kept_warm": list(self._kept), "schedules": len(self._schedules)}


def parse(text: str, zone_of: ZoneOf) -> tuple[Schedule, ...]:
    """Reads schedules as the module's docstring shows them.

    Raises CallerError (`keep-warm-invalid`) with the part that can't be read.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if len(parts) > _SCHEDULES_MAX:
        raise _invalid(f"{len(parts)} schedules", f"{_SCHEDULES_MAX} at most")
    return tuple(_schedule(part, zone_of) for part in parts)


def _schedule(part: str, zone_of: ZoneOf) -> Schedule:
    # The hours have colons as well; the one before the models has a space behind it.
    head, colon, names = part.partition(": ")
    words = head.split()
    models = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not colon or len(words) not in (2, 3) or not models:
        raise _invalid(part, "days, hours, perhaps a time zone, a colon and a space, and models")
    if len(models) > _MODELS_MAX:
        raise _invalid(f"{len(models)} models", f"{_MODELS_MAX} at most")
    begin_min, minutes = _hours(words[1])
    zone_name = words[2] if len(words) == 3 else "UTC"
    try:
        zone = zone_of(zone_name)
    except (KeyError, ValueError, OSError):
        raise _invalid(zone_name, "the name of a time zone, such as Europe/Berlin") from None
    return Schedule(
        days=_days(words[0]), begin_min=begin_min, minutes=minutes, zone=zone, models=models
    )


def _days(text: str) -> frozenset[int]:
    days: set[int] = set()
    for item in text.lower().split(","):
        first, dash, last = item.partition("-")
        if item == _DAILY:
            days.update(range(7))
        elif first not in _DAYS or (dash and last not in _DAYS):
            raise _invalid(text, "daily, or days and ranges of days from mon to sun")
        else:
            begin = _DAYS.index(first)
            length = (_DAYS.index(last) - begin) % 7 if dash else 0
            days.update((begin + each) % 7 for each in range(length + 1))
    return frozenset(days)


def _hours(text: str) -> tuple[int, int]:
    """(minute of the day at which they begin, how many)"""
    first, _, last = text.partition("-")
    begin, end = _minute(first, text), _minute(last, text)
    if begin in (_DAY_MINUTES, end):
        raise _invalid(text, "hours that begin before 24:00 and do not end where they begin")
    return begin, (end - begin) if end > begin else (end - begin + _DAY_MINUTES)


def _minute(text: str, where: str) -> int:
    hour, colon, minute = text.partition(":")
    if not (colon and hour.isdecimal() and minute.isdecimal() and len(minute) == 2):
        raise _invalid(where, "hours such as 08:00-18:00")
    found = int(hour) * 60 + int(minute)
    if int(minute) > 59 or found > _DAY_MINUTES:
        raise _invalid(where, "hours from 00:00 to 24:00")
    return found


def _invalid(found: str, allowed: str) -> CallerError:
    return CallerError(
        "keep-warm-invalid",
        f"keep-warm schedules: {found[:200]!r} can't be read",
        hint=f"Give {allowed}, as in 'mon-fri 08:00-18:00 Europe/Berlin: a.tar.gz, b.tar.gz'.",
    )
