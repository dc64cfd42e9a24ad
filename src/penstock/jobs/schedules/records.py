"""Schedules and their runs: the records, the tables and the errors.

The rows, the driver and the front door exchange these records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Column, Double, Index, Integer, String, Table, Text

from penstock.clock import zone_of
from penstock.control.database.schema import metadata
from penstock.core.jobs.schedules import RUN_ONCE, ScheduleObserved, ScheduleSpec
from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import Timetable, Zone, parse
from penstock.errors import CallerError

STARTING: Final = "starting"  #: decided; whether its job exists is unknown
RUNNING: Final = "running"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
PASSED_OVER: Final = "passed-over"

OPEN: Final = (STARTING, RUNNING)


def key_of(name: str) -> str:
    """The key of a name: names are kept as given and compared without case."""
    return name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """One schedule, as given. Times are wall-clock seconds."""

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
    owner: str = ""  #: id of the key that made it and owns its jobs; empty: no owner
    due: float | None = None
    open_runs: int = 0  #: runs that have not ended, counted when the record was read
    unreadable: str = ""  #: why its job could not be read; empty: it could be read

    @property
    def key(self) -> str:
        return key_of(self.name)

    @property
    def fault(self) -> str:
        """Why the schedule can't run; empty if it can. A valid schedule may come to a machine
        without its time zone, or its row may be damaged."""
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
    """The decision on a due time, and what became of it."""

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
    """Another schedule has the name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "schedule-exists",
            f"there is a schedule {name!r} already",
            hint="Delete it first, or take another name.",
            status=409,
        )


class NoSuchJobSchedule(CallerError):
    """No schedule has that name."""

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


schedules = Table(
    "job_schedules",
    metadata,
    Column("key", String(64), primary_key=True),  #: the schedule's name in lower case
    Column("name", String(64), nullable=False),
    Column("expression", Text, nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("missed", String(16), nullable=False),
    Column("overlap", Integer, nullable=False),
    Column("starts", Double),
    Column("ends", Double),
    Column("job", Text, nullable=False),  #: JSON: members of CreateTransformJob, with placeholders
    Column("paused", Integer, nullable=False),
    #: The first due time without a decision; NULL: paused, or never due again
    Column("due", Double),
    Column("created", Double, nullable=False),
)

#: The owner of a schedule's jobs; a schedule that was created without a key has no row.
schedule_owners = Table(
    "job_schedule_owners",
    metadata,
    Column("schedule_key", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),  #: id of the key
)

#: Decisions on due times: a row for each run, and one for several due times that were skipped
#: together.
schedule_runs = Table(
    "job_schedule_runs",
    metadata,
    Column("schedule_key", String(64), primary_key=True),
    Column("due", Double, primary_key=True),
    #: The last of the skipped due times; for a run it equals `due`
    Column("last", Double, nullable=False),
    Column("job", String(64), nullable=False),  #: the job's name; empty: skipped
    Column("state", String(16), nullable=False),
    Column("reason", String(32), nullable=False),
    Column("message", Text, nullable=False),
    Column("begun", Double, nullable=False),  #: when the decision was made
    Column("ended", Double),
    Index("job_schedule_runs_state", "state"),
)
