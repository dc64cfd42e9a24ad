"""The tables of schedules and of their runs."""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, Integer, String, Table, Text

from penstock.control.database.schema import metadata

schedules = Table(
    "job_schedules",
    metadata,
    Column("key", String(64), primary_key=True),  #: its name in lower case
    Column("name", String(64), nullable=False),
    Column("expression", Text, nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("missed", String(16), nullable=False),
    Column("overlap", Integer, nullable=False),
    Column("starts", Double),
    Column("ends", Double),
    Column("job", Text, nullable=False),  #: JSON: members of CreateTransformJob, with placeholders
    Column("paused", Integer, nullable=False),
    Column("due", Double),  #: the first due time not decided on; none: paused, or never again
    Column("created", Double, nullable=False),
)

#: Whose jobs those of a schedule are; a schedule that nobody has signed for has no row.
schedule_owners = Table(
    "job_schedule_owners",
    metadata,
    Column("schedule_key", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),  #: id of a key
)

#: What became of due times: a row for a run, and one for several that were passed over together.
schedule_runs = Table(
    "job_schedule_runs",
    metadata,
    Column("schedule_key", String(64), primary_key=True),
    Column("due", Double, primary_key=True),
    Column("last", Double, nullable=False),  #: of those passed over; of a run, `due`
    Column("job", String(64), nullable=False),  #: its name; empty: passed over
    Column("state", String(16), nullable=False),
    Column("reason", String(32), nullable=False),
    Column("message", Text, nullable=False),
    Column("begun", Double, nullable=False),  #: when it was decided
    Column("ended", Double),
    Index("job_schedule_runs_state", "state"),
)
