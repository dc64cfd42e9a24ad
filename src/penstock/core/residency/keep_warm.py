"""Which target models are loaded at which hours, whether they are called or not.

A schedule has hours (`core/timetable/timetable.py`), perhaps a time zone, and models:

    mon-fri 08:00-18:00 Europe/Berlin: a.tar.gz, team/b.tar.gz; daily 22:00-02:00: night.tar.gz

Without a zone they are UTC.

A model is loaded a little before its hours begin, so that it is ready then. At their end only the
pin is removed: the model stays until others need its room. The machine repeats each request now and
then: one may have failed, and a pinned model may have crashed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import Hours, Zone, parse_hours
from penstock.errors import CallerError

#: s before its hours that a model is loaded; longer than loads of most models take.
EARLY_S: Final = 300.0
#: s after which a request is repeated.
AGAIN_S: Final = 60.0

WISHED_EARLY: Final = "hours-begin"
WISHED_AGAIN: Final = "hours-last"
HOURS_OVER: Final = "hours-over"

_SCHEDULES_MAX: Final = 100
_MODELS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hours, and the models that are kept warm in them."""

    hours: Hours
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """Load the model and pin it."""

    model: str
    reason: str  #: hours-begin | hours-last


@dataclass(frozen=True, slots=True)
class Release:
    """Unpin the model: it may be evicted."""

    model: str
    reason: str  #: hours-over


Action = Keep | Release


class KeepWarm:
    """Follows the schedules. Times are wall seconds, as hours are the wall clock's."""

    def __init__(self, schedules: tuple[Schedule, ...]) -> None:
        self._schedules = schedules
        self._kept: dict[str, None] = {}
        self._look_at: float | None = 0.0 if schedules else None

    def on_timer(self, *, now: float) -> list[Action]:
        """The models to keep from now on, to keep still, and to release."""
        if self._look_at is None:
            return []
        self._look_at = now + AGAIN_S
        wanted = {
            model: None
            for schedule in self._schedules
            if schedule.hours.hold(now) or schedule.hours.hold(now + EARLY_S)
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


def parse(text: str, zone_of: Callable[[str], Zone]) -> tuple[Schedule, ...]:
    """Reads schedules as the module's docstring shows them.

    Args:
        zone_of: raises CronError for an unknown time zone.

    Raises CallerError (`keep-warm-invalid`) with the part that can't be read.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if len(parts) > _SCHEDULES_MAX:
        raise _invalid(f"{len(parts)} schedules are more than {_SCHEDULES_MAX}")
    return tuple(_schedule(part, zone_of) for part in parts)


def _schedule(part: str, zone_of: Callable[[str], Zone]) -> Schedule:
    # The hours contain colons as well; the one before the models has a space behind it.
    head, colon, names = part.partition(": ")
    words = head.split()
    models = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not colon or len(words) not in (2, 3) or not models:
        raise _invalid(f"{part[:200]!r} has to have days, hours, a colon, a space and models")
    if len(models) > _MODELS_MAX:
        raise _invalid(f"{len(models)} models are more than {_MODELS_MAX}")
    try:
        zone = zone_of(words[2] if len(words) == 3 else "UTC")
        return Schedule(parse_hours(words[0], words[1], zone), models)
    except CronError as error:
        raise _invalid(str(error)) from None


def _invalid(message: str) -> CallerError:
    return CallerError(
        "keep-warm-invalid",
        f"keep-warm schedules: {message}",
        hint="Write them like 'mon-fri 08:00-18:00 Europe/Berlin: a.tar.gz, b.tar.gz'.",
    )
