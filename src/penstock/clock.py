"""Time for everything outside `core/`, whose functions take the time as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import Zone

_EPOCH: Final = datetime(1970, 1, 1)  # in a zone's own time
_SECOND: Final = timedelta(seconds=1)


class Clock(Protocol):
    """Where drivers read the time; tests and the twin pass their own."""

    def monotonic(self) -> float:
        """Seconds that never go back: deadlines, waits, durations."""

    def wall(self) -> float:
        """Seconds since the epoch: the time of calendars and certificates."""


class SystemClock:
    """The machine's clock."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that moves only by `advance`; starts at the given seconds."""

    def __init__(self, monotonic_s: float = 0.0, wall_s: float = 1_700_000_000.0) -> None:
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def monotonic(self) -> float:
        return self._monotonic_s

    def wall(self) -> float:
        return self._wall_s

    def advance(self, seconds: float) -> None:
        """Moves both readings forward by `seconds` (>= 0)."""
        if seconds < 0:
            raise ValueError(f"time cannot go back: {seconds}")
        self._monotonic_s += seconds
        self._wall_s += seconds


class NamedZone:
    """A time zone of the standard library."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def local(self, wall: float) -> float:
        return (datetime.fromtimestamp(wall, self._zone).replace(tzinfo=None) - _EPOCH) / _SECOND

    def wall(self, local: float) -> float:
        return (_EPOCH + timedelta(seconds=local)).replace(tzinfo=self._zone).timestamp()


def zone_of(name: str) -> Zone:
    """The time zone of that name in the system's database. UTC also works without a database.

    Raises `CronError`.
    """
    if name in ("", "UTC"):
        return NamedZone(UTC)
    try:
        return NamedZone(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise CronError(f"{name!r} is no time zone") from error
