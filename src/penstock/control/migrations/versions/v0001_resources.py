"""The first tables: models, configurations, endpoints and their deployments, tags, keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "settings",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        if_not_exists=True,
    )
    op.create_table(
        "models",
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_index(
        "models_created", "models", ["created", "key"], unique=False, if_not_exists=True
    )
    op.create_table(
        "endpoint_configs",
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_index(
        "endpoint_configs_created",
        "endpoint_configs",
        ["created", "key"],
        unique=False,
        if_not_exists=True,
    )
    op.create_table(
        "endpoints",
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=False),
        sa.Column("generation_last", sa.Integer(), nullable=False),
        sa.Column("active_generation", sa.Integer(), nullable=True),
        sa.Column("target_generation", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
        if_not_exists=True,
    )
    op.create_index(
        "endpoints_created", "endpoints", ["created", "key"], unique=False, if_not_exists=True
    )
    op.create_table(
        "deployments",
        sa.Column("endpoint_key", sa.String(length=128), nullable=False),
        sa.Column("generation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint_key", "generation"),
        if_not_exists=True,
    )
    op.create_table(
        "tags",
        sa.Column("arn_key", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("arn_key", "name"),
        if_not_exists=True,
    )
    op.create_table(
        "keys",
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key_id"),
        if_not_exists=True,
    )
