"""Scheduled actions: what is to become of a target's bounds, and when."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.timetable.timetable import Timetable


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledAction:
    """One scheduled action of a target. Its timetable begins at its StartTime, else when it was
    made, and ends at its EndTime."""

    name: str
    timetable: Timetable
    capacity_min: int | None = None  #: None: stays
    capacity_max: int | None = None

    def next_due(self, *, after: float) -> float | None:
        """The first time after that moment at which it is due; None: never again."""
        return self.timetable.next_due(after=after)
