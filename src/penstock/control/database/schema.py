"""The tables of the control plane, for SQLite and PostgreSQL alike.

Names are stored as given and compared without case: `key` columns hold the lower-case form. Times
are seconds since the epoch. Requests and deployments are JSON text that only this package reads.

Batch transform jobs have tables for the job, its objects and its spans. A row of `transform_spans`
is written once the output of that span is committed, so the rows always say which work need not be
repeated. A job's objects, spans and crashes are deleted when it ends; its totals stay.
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

#: The version of the tables. Each change of a table increments it and adds a migration from the
#: version before in `control/migrations/versions/`. A newer database is refused.
SCHEMA_VERSION: Final = 9

metadata: Final = MetaData()


def named(table: str, *more: Column[Any]) -> Table:
    """A table of resources that callers name: indexed by name, and by time for lists."""
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
    Column("progress", Text),  #: JSON of a RolloutProgress; NULL: no rollout of it has begun
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
    #: names in lower case, separated by commas; empty = every endpoint
    Column("endpoints", Text, nullable=False, server_default=""),
)

#: Target models of multi-model endpoints that hosts must not evict.
target_model_pins = Table(
    "target_model_pins",
    metadata,
    Column("endpoint_key", String(128), primary_key=True),
    Column("model", String(1024), primary_key=True),
)

#: Which artifacts answer for target models of multi-model endpoints, where it is not simply the one
#: of the same name.
served_targets = Table(
    "served_targets",
    metadata,
    Column("endpoint_key", String(128), primary_key=True),
    Column("target", String(1024), primary_key=True),
    Column("served", Text, nullable=False),  #: JSON of a ServedTarget
)

#: What was compared in the latest rollouts with an agreement.
compared_pairs = Table(
    "compared_pairs",
    metadata,
    Column("endpoint_key", String(128), primary_key=True),
    #: whose rollout; empty: the endpoint's own, or a target model's
    Column("component_key", String(128), primary_key=True),
    Column("model", String(1024), primary_key=True),  #: the target model; empty: none
    Column("rollout", BigInteger, nullable=False),  #: its number
    Column("spec", Text, nullable=False),  #: JSON of an AgreementSpec
    Column("counts", Text, nullable=False),  #: JSON: outcome -> pairs
)

#: Changes of endpoints' states, and why: of each endpoint the newest.
endpoint_activities = Table(
    "endpoint_activities",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("endpoint_key", String(128), nullable=False),
    Column("at", Double, nullable=False),
    Column("what", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("endpoint_activities_endpoint", "endpoint_key", "number"),
)

#: Crashes of instances of multi-model endpoints, with the target models that were at work.
target_model_crashes = Table(
    "target_model_crashes",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("endpoint_key", String(128), nullable=False),
    Column("at", Double, nullable=False),
    Column("models", Text, nullable=False),  #: JSON: [[name, digest], ...]
    Index("target_model_crashes_endpoint", "endpoint_key", "at"),
)

#: Inference components. `request` is the caller's last request.
inference_components = named(
    "inference_components",
    Column("endpoint_key", String(128), nullable=False, index=True),
    Column("variant", String(128), nullable=False),
    Column("status", String(32), nullable=False),
    Column("failure_reason", Text, nullable=False),
    Column("copies", Integer, nullable=False),
    Column("revision_last", Integer, nullable=False),
    Column("active", Text, nullable=False),  #: the revision that serves, as JSON
    Column("target", Text),  #: the revision that is to replace it, as JSON; NULL: none
    Column("former_request", Text),  #: `request` of `active`, while `target` is set
)

#: Inference experiments. `request` is the create call's, with the changes of updates.
inference_experiments = named(
    "inference_experiments",
    Column("endpoint_key", String(128), nullable=False, index=True),
    Column("status", String(32), nullable=False),
    Column("status_reason", Text, nullable=False),
    Column("starts", Double, nullable=False),
    Column("ends", Double, nullable=False),
    Column("completed", Double),  #: NULL: it has not ended
    Column("before", Text),  #: the endpoint's deployment at its start, as JSON; NULL: not started
    Column("base", Text),  #: the request of the endpoint configuration at its start, as JSON
    #: JSON: the endpoint configuration that the endpoint is to have; NULL: the one before
    Column("config", Text),
    Column("config_count", Integer, nullable=False),  #: configurations that were made for it
    Column("begun", Integer, nullable=False),  #: 1: the endpoint's update to it was asked for
    Column("end_status", String(32), nullable=False),  #: what follows Stopping
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
    #: increments with every change of any alarm, so readers load only newer rows
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
    Column("due", Double),  #: NULL: it has run for the last time
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
    Column("not_scaled", Text, nullable=False),  #: JSON: why it did not scale; empty: it did
    Column("change", Text, nullable=False),  #: JSON of the change of capacity; empty: none
    Index("scaling_activities_id", "id"),
    Index("scaling_activities_target", "target_key", "number"),
    Index("scaling_activities_started", "started"),
)

#: Metrics that the next leader continues with: one row per time series.
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

#: The input objects as they were when the job began.
transform_objects = Table(
    "transform_objects",
    metadata,
    Column("job_key", String(128), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("object_key", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stamp", Text, nullable=False),
    Column("assembled", Integer, nullable=False),  #: 1: the whole output is at its final place
    #: why the object has no output; empty: it has not failed
    Column("failure", Text, nullable=False),
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

#: Spans during which instances ended, and what is known of the records that may be the cause.
transform_crashes = Table(
    "transform_crashes",
    metadata,
    Column("job_key", String(128), primary_key=True),
    Column("object", Integer, primary_key=True, autoincrement=False),
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("crash_case", Text, nullable=False),  #: JSON of a CrashCase
)
