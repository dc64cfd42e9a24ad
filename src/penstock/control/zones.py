"""Time zones by their names in the system's database, as schedules are given them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import Zone

_EPOCH: Final = datetime(1970, 1, 1)  # of the zone's own clock


class NamedZone:
    """A time zone of the standard library."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def local(self, wall: float) -> float:
        return (datetime.fromtimestamp(wall, self._zone).replace(tzinfo=None) - _EPOCH) / _SECOND

    def wall(self, local: float) -> float:
        return (_EPOCH + timedelta(seconds=local)).replace(tzinfo=self._zone).timestamp()


_SECOND: Final = timedelta(seconds=1)
_UTC: Final = NamedZone(UTC)  # a machine without a database of time zones has it


def zone_of(name: str) -> Zone:
    """Raises `CronError`."""
    if name in ("", "UTC"):
        return _UTC
    try:
        return NamedZone(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise CronError(f"{name!r} is no time zone") from error
