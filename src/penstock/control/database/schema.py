"""The tables of the control plane, for SQLite and PostgreSQL alike.

Names are kept as given and compared without case: `key` columns hold the lower-case form. Times
are seconds since the epoch. Requests and deployments are JSON text that only this package reads.

The tables of batch transform jobs: what was asked for, what is read, and what is done of it.

A row of `transform_spans` is written once the output of that span is committed, so the rows say at
any moment what need not be done again. Objects, spans and crashes of a job go when it ends; its
totals stay.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

#: Raised by every change of a table, with a file in `control/migrations/versions/` that brings a
#: database of the version before to it. A newer database is refused.
SCHEMA_VERSION: Final = 5

metadata: Final = MetaData()


def named(table: str, *more: Column[Any]) -> Table:
    """A table of what a caller made under a name: found by it, and listed by its time."""
    return Table(
        table,
        metadata,
        Column("key", String(128), primary_key=True),
        Column("name", String(128), nullable=False),
        Column("arn", String(256), nullable=False),
        Column("request", Text, nullable=False),
        Column("created", Double, nullable=False),
        Column("modified", Double, nullable=False),
        *more,
        Index(f"{table}_created", "created", "key"),
    )


settings = Table(
    "settings",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

models = named("models")
endpoint_configs = named("endpoint_configs")

endpoints = named(
    "endpoints",
    Column("status", String(32), nullable=False),
    Column("failure_reason", Text, nullable=False),
    Column("generation_last", Integer, nullable=False),
    Column("active_generation", Integer),
    Column("target_generation", Integer),
)

deployments = Table(
    "deployments",
    metadata,
    Column("endpoint_key", String(128), primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("spec", Text, nullable=False),
    Column("previous", Text),  #: the spec before its weights and counts were last changed
    Column("created", Double, nullable=False),
)

tags = Table(
    "tags",
    metadata,
    Column("arn_key", String(256), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("value", Text, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("key_id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("label", Text, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("created", Double, nullable=False),
    Column("scope", String(16), nullable=False, server_default="admin"),
    #: names in lower case, a comma between them; none = every endpoint
    Column("endpoints", Text, nullable=False, server_default=""),
)

#: Target models of multi-model endpoints that no host is to evict.
target_model_pins = Table(
    "target_model_pins",
    metadata,
    Column("endpoint_key", String(128), primary_key=True),
    Column("model", String(1024), primary_key=True),
)

#: Instances of multi-model endpoints that crashed, and which target models were at work.
target_model_crashes = Table(
    "target_model_crashes",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("endpoint_key", String(128), nullable=False),
    Column("at", Double, nullable=False),
    Column("models", Text, nullable=False),  #: JSON: [[name, digest], ...]
    Index("target_model_crashes_endpoint", "endpoint_key", "at"),
)

#: Inference components. `request` is what was last asked for, as the caller said it.
inference_components = named(
    "inference_components",
    Column("endpoint_key", String(128), nullable=False, index=True),
    Column("variant", String(128), nullable=False),
    Column("status", String(32), nullable=False),
    Column("failure_reason", Text, nullable=False),
    Column("copies", Integer, nullable=False),
    Column("revision_last", Integer, nullable=False),
    Column("active", Text, nullable=False),  #: the revision that serves
    Column("target", Text),  #: the one on its way to replace it
    Column("former_request", Text),  #: `request` of `active`, while there is a target
)

alarms = Table(
    "alarms",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("arn", String(512), nullable=False),
    Column("spec", Text, nullable=False),
    Column("actions", Text, nullable=False),
    Column("actions_enabled", Integer, nullable=False),
    Column("omitted", Text, nullable=False),
    Column("owner", String(512), nullable=False),
    Column("state", String(32), nullable=False),
    Column("state_reason", Text, nullable=False),
    Column("state_reason_data", Text, nullable=False),
    Column("state_updated", Double, nullable=False),
    Column("configuration_updated", Double, nullable=False),
    #: counts the changes of all alarms: whoever has seen one reads only what is newer
    Column("revision", Integer, nullable=False),
    Index("alarms_revision", "revision"),
    Index("alarms_owner", "owner"),
)

alarm_history = Table(
    "alarm_history",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("alarm", String(255), nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("summary", Text, nullable=False),
    Column("data", Text, nullable=False),
    Index("alarm_history_alarm", "alarm", "at"),
    Index("alarm_history_at", "at"),
)

scalable_targets = Table(
    "scalable_targets",
    metadata,
    Column("key", String(512), primary_key=True),
    Column("resource_id", String(256), nullable=False),
    Column("dimension", String(64), nullable=False),
    Column("arn", String(256), nullable=False),
    Column("role_arn", Text, nullable=False),
    Column("capacity_min", Integer, nullable=False),
    Column("capacity_max", Integer, nullable=False),
    Column("suspended", Text, nullable=False),
    Column("created", Double, nullable=False),
)

scaling_policies = Table(
    "scaling_policies",
    metadata,
    Column("target_key", String(512), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("arn", String(1024), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("spec", Text, nullable=False),
    Column("request", Text, nullable=False),  #: its configuration as given
    Column("created", Double, nullable=False),
)

scheduled_actions = Table(
    "scheduled_actions",
    metadata,
    Column("target_key", String(512), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("arn", String(1024), nullable=False),
    Column("schedule", Text, nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("starts", Double),
    Column("ends", Double),
    Column("capacity_min", Integer),
    Column("capacity_max", Integer),
    Column("created", Double, nullable=False),
    Column("due", Double),  #: none: it has run for the last time
)

scaling_activities = Table(
    "scaling_activities",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False),
    Column("target_key", String(512), nullable=False),
    Column("resource_id", String(256), nullable=False),
    Column("dimension", String(64), nullable=False),
    Column("description", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("started", Double, nullable=False),
    Column("ended", Double),
    Column("status", String(32), nullable=False),
    Column("message", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("not_scaled", Text, nullable=False),  #: JSON; empty: it did scale
    Column("change", Text, nullable=False),  #: JSON of the change of capacity; empty: none
    Index("scaling_activities_id", "id"),
    Index("scaling_activities_target", "target_key", "number"),
    Index("scaling_activities_started", "started"),
)

#: Metrics that the next leader goes on with: one row a time series.
metric_series = Table(
    "metric_series",
    metadata,
    Column("digest", String(64), primary_key=True),  #: SHA-256 of what names the series
    Column("written_at", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),  #: as `metrics/series/snapshot.py` writes it
)


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
