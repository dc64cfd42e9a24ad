"""Schedules and runs as rows, the driver and the front door exchange them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.control.zones import zone_of
from penstock.core.jobs.schedules import RUN_ONCE, ScheduleObserved, ScheduleSpec
from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import Timetable, Zone, parse
from penstock.errors import CallerError

STARTING: Final = "starting"  #: decided; whether its job is there is not known
RUNNING: Final = "running"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
PASSED_OVER: Final = "passed-over"

OPEN: Final = (STARTING, RUNNING)


def key_of(name: str) -> str:
    """Names are kept as given and compared without case."""
    return name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """One schedule, as given. Times are wall seconds."""

    name: str
    expression: str
    job: dict[str, Any] = field(default_factory=dict)
    timezone: str = "UTC"
    missed: str = RUN_ONCE
    overlap: bool = False
    starts: float | None = None
    ends: float | None = None
    paused: bool = False
    created: float
    owner: str = ""  #: id of the key that made it: its jobs are that owner's; empty: nobody's
    due: float | None = None
    open_runs: int = 0  #: as counted when it was read
    unreadable: str = ""  #: why its job could not be read; empty: it could

    @property
    def key(self) -> str:
        return key_of(self.name)

    @property
    def fault(self) -> str:
        """Why it can't run; empty if it can. What was made here may meet a machine without its
        time zone, or come back damaged."""
        if self.unreadable:
            return f"its record can't be read: {self.unreadable}"
        try:
            self.spec()
        except CronError as error:
            return str(error)
        return ""

    def zone(self) -> Zone:
        """Raises `CronError`."""
        return zone_of(self.timezone)

    def spec(self) -> ScheduleSpec:
        """Raises `CronError`."""
        since = self.starts if self.starts is not None else self.created
        return ScheduleSpec(
            timetable=Timetable(parse(self.expression, self.zone()), since, self.ends),
            missed=self.missed,
            overlap=self.overlap,
        )

    def seen(self) -> ScheduleObserved:
        return ScheduleObserved(due=self.due, open_runs=self.open_runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What became of a due time."""

    schedule_key: str
    due: float
    last: float
    job: str
    state: str
    reason: str
    message: str = ""
    begun: float
    ended: float | None = None


class ScheduleExists(CallerError):
    """Another one has the name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "schedule-exists",
            f"there is a schedule {name!r} already",
            hint="Delete it first, or take another name.",
            status=409,
        )


class NoSuchJobSchedule(CallerError):
    """Nothing has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "schedule-not-found",
            f"there is no schedule {name[:64]!r}",
            hint="'penstock schedule list' shows them.",
            status=404,
        )


class ScheduleBusy(CallerError):
    """A run has not ended, and runs may not overlap."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "schedule-busy",
            f"a run of {name!r} has not ended",
            hint="Wait for it, or stop its job; a schedule made with overlap runs beside itself.",
            status=409,
        )
