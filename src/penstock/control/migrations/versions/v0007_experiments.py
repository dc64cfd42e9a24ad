"""Inference experiments: what each is to do with its endpoint, and how far it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    table = "inference_experiments"
    op.create_table(
        table,
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("arn", sa.String(256), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=False),
        sa.Column("endpoint_key", sa.String(128), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=False),
        sa.Column("starts", sa.Double(), nullable=False),
        sa.Column("ends", sa.Double(), nullable=False),
        sa.Column("completed", sa.Double(), nullable=True),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("base", sa.Text(), nullable=True),
        sa.Column("config", sa.Text(), nullable=True),
        sa.Column("config_count", sa.Integer(), nullable=False),
        sa.Column("begun", sa.Integer(), nullable=False),
        sa.Column("end_status", sa.String(32), nullable=False),
    )
    op.create_index(f"{table}_created", table, ["created", "key"])
    op.create_index(f"ix_{table}_endpoint_key", table, ["endpoint_key"])
