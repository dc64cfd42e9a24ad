"""Offline work: transform jobs, asynchronous requests, schedules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "transform_jobs",
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("span_bytes", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("totals", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_index(
        "transform_jobs_created",
        "transform_jobs",
        ["created", "key"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "transform_objects",
        sa.Column("job_key", sa.String(length=128), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.Column("assembled", sa.Integer(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_key", "number"),
        if_not_exists=True,
    )
    op.create_table(
        "transform_spans",
        sa.Column("job_key", sa.String(length=128), nullable=False),
        sa.Column("object", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("span", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.Column("bytes_in", sa.BigInteger(), nullable=False),
        sa.Column("bytes_out", sa.BigInteger(), nullable=False),
        sa.Column("run_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_key", "object", "span"),
        if_not_exists=True,
    )
    op.create_table(
        "async_requests",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("endpoint", sa.String(length=128), nullable=False),
        sa.Column("born", sa.Double(), nullable=False),
        sa.Column("inference_id", sa.String(length=1024), nullable=False),
        sa.Column("accepted", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("timeout_s", sa.Double(), nullable=False),
        sa.Column("input_uri", sa.Text(), nullable=False),
        sa.Column("body_bytes", sa.Integer(), nullable=False),
        sa.Column("meta", sa.LargeBinary(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("output_uri", sa.Text(), nullable=False),
        sa.Column("failure_uri", sa.Text(), nullable=False),
        sa.Column("success_topic", sa.Text(), nullable=False),
        sa.Column("error_topic", sa.Text(), nullable=False),
        sa.Column("answer_in_success", sa.Integer(), nullable=False),
        sa.Column("answer_in_error", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_index(
        "async_requests_endpoint",
        "async_requests",
        ["endpoint", "born", "number"],
        unique=False,
        if_not_exists=True,
    )
    op.create_index(
        "async_requests_expires",
        "async_requests",
        ["endpoint", "born", "expires"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "async_bodies",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        if_not_exists=True,
    )
    op.create_table(
        "async_notifications",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("due", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        if_not_exists=True,
    )
    op.create_index(
        "async_notifications_due", "async_notifications", ["due"], unique=False, if_not_exists=True
    )
    op.create_table(
        "job_schedules",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("timezone", sa.String(length=64), nullable=False),
        sa.Column("missed", sa.String(length=16), nullable=False),
        sa.Column("overlap", sa.Integer(), nullable=False),
        sa.Column("starts", sa.Double(), nullable=True),
        sa.Column("ends", sa.Double(), nullable=True),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("paused", sa.Integer(), nullable=False),
        sa.Column("due", sa.Double(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_table(
        "job_schedule_runs",
        sa.Column("schedule_key", sa.String(length=64), nullable=False),
        sa.Column("due", sa.Double(), nullable=False),
        sa.Column("last", sa.Double(), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("begun", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("schedule_key", "due"),
        if_not_exists=True,
    )
    op.create_index(
        "job_schedule_runs_state", "job_schedule_runs", ["state"], unique=False, if_not_exists=True
    )
