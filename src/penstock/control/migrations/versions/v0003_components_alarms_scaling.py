"""Notes on target models, inference components, alarms, scalable targets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "target_model_pins",
        sa.Column("endpoint_key", sa.String(length=128), nullable=False),
        sa.Column("model", sa.String(length=1024), nullable=False),
        sa.PrimaryKeyConstraint("endpoint_key", "model"),
        if_not_exists=True,
    )
    op.create_table(
        "target_model_crashes",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("endpoint_key", sa.String(length=128), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("models", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        if_not_exists=True,
    )
    op.create_index(
        "target_model_crashes_endpoint",
        "target_model_crashes",
        ["endpoint_key", "at"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "inference_components",
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.Column("endpoint_key", sa.String(length=128), nullable=False),
        sa.Column("variant", sa.String(length=128), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=False),
        sa.Column("copies", sa.Integer(), nullable=False),
        sa.Column("revision_last", sa.Integer(), nullable=False),
        sa.Column("active", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("former_request", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_index(
        "inference_components_created",
        "inference_components",
        ["created", "key"],
        unique=False,
        if_not_exists=True,
    )
    op.create_index(
        op.f("ix_inference_components_endpoint_key"),
        "inference_components",
        ["endpoint_key"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "alarms",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("arn", sa.String(length=512), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("actions", sa.Text(), nullable=False),
        sa.Column("actions_enabled", sa.Integer(), nullable=False),
        sa.Column("omitted", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(length=512), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("state_reason_data", sa.Text(), nullable=False),
        sa.Column("state_updated", sa.Double(), nullable=False),
        sa.Column("configuration_updated", sa.Double(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        if_not_exists=True,
    )
    op.create_index("alarms_owner", "alarms", ["owner"], unique=False, if_not_exists=True)
    op.create_index("alarms_revision", "alarms", ["revision"], unique=False, if_not_exists=True)
    op.create_table(
        "alarm_history",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("alarm", sa.String(length=255), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index(
        "alarm_history_alarm", "alarm_history", ["alarm", "at"], unique=False, if_not_exists=True
    )
    op.create_index("alarm_history_at", "alarm_history", ["at"], unique=False, if_not_exists=True)
    op.create_table(
        "scalable_targets",
        sa.Column("key", sa.String(length=512), nullable=False),
        sa.Column("resource_id", sa.String(length=256), nullable=False),
        sa.Column("dimension", sa.String(length=64), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("role_arn", sa.Text(), nullable=False),
        sa.Column("capacity_min", sa.Integer(), nullable=False),
        sa.Column("capacity_max", sa.Integer(), nullable=False),
        sa.Column("suspended", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_table(
        "scaling_policies",
        sa.Column("target_key", sa.String(length=512), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("arn", sa.String(length=1024), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("target_key", "name"),
        if_not_exists=True,
    )
    op.create_table(
        "scheduled_actions",
        sa.Column("target_key", sa.String(length=512), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("arn", sa.String(length=1024), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("timezone", sa.String(length=64), nullable=False),
        sa.Column("starts", sa.Double(), nullable=True),
        sa.Column("ends", sa.Double(), nullable=True),
        sa.Column("capacity_min", sa.Integer(), nullable=True),
        sa.Column("capacity_max", sa.Integer(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("due", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("target_key", "name"),
        if_not_exists=True,
    )
    op.create_table(
        "scaling_activities",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("target_key", sa.String(length=512), nullable=False),
        sa.Column("resource_id", sa.String(length=256), nullable=False),
        sa.Column("dimension", sa.String(length=64), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("started", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("not_scaled", sa.Text(), nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        if_not_exists=True,
    )
    op.create_index(
        "scaling_activities_id", "scaling_activities", ["id"], unique=False, if_not_exists=True
    )
    op.create_index(
        "scaling_activities_started",
        "scaling_activities",
        ["started"],
        unique=False,
        if_not_exists=True,
    )
    op.create_index(
        "scaling_activities_target",
        "scaling_activities",
        ["target_key", "number"],
        unique=False,
        if_not_exists=True,
    )
