"""The tables of batch transform jobs: what was asked for, what is read, and what is done of it.

A row of `transform_spans` is written once the output of that span is committed, so the rows say at
any moment what need not be done again. Objects, spans and crashes of a job go when it ends; its
totals stay.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Integer, String, Table, Text

from penstock.control.database.schema import metadata, named

transform_jobs = named(
    "transform_jobs",
    Column("status", String(32), nullable=False),
    Column("failure_reason", Text, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("spec", Text, nullable=False),  #: JSON of a TransformSpec
    Column("span_bytes", BigInteger, nullable=False),  #: 0: its objects are not listed yet
    Column("started", Double),
    Column("ended", Double),
    Column("totals", Text, nullable=False),  #: JSON of JobTotals
)

#: The objects as they were when the job began.
transform_objects = Table(
    "transform_objects",
    metadata,
    Column("job_key", String(128), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("object_key", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stamp", Text, nullable=False),
    Column("assembled", Integer, nullable=False),  #: 1: its output is in its place
    Column("failure", Text, nullable=False),  #: why it gets none; empty: it may
)

#: The spans whose output is committed.
transform_spans = Table(
    "transform_spans",
    metadata,
    Column("job_key", String(128), primary_key=True),
    Column("object", Integer, primary_key=True, autoincrement=False),
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("records", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("bytes_in", BigInteger, nullable=False),
    Column("bytes_out", BigInteger, nullable=False),
    Column("run_s", Double, nullable=False),
)

#: Spans over which instances ended, and what is known of the records that may have done it.
transform_crashes = Table(
    "transform_crashes",
    metadata,
    Column("job_key", String(128), primary_key=True),
    Column("object", Integer, primary_key=True, autoincrement=False),
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("crash_case", Text, nullable=False),  #: JSON of a CrashCase
)
