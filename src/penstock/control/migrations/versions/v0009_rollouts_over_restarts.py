"""What agreements of rollouts have compared, and why they went as they did, over restarts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "compared_pairs",
        sa.Column("endpoint_key", sa.String(128), primary_key=True),
        sa.Column("component_key", sa.String(128), primary_key=True),
        sa.Column("model", sa.String(1024), primary_key=True),
        sa.Column("rollout", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
    )
    op.create_table(
        "endpoint_activities",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("endpoint_key", sa.String(128), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_index(
        "endpoint_activities_endpoint", "endpoint_activities", ["endpoint_key", "number"]
    )
