"""Several servers on one database: who leads, and the metrics that the next one goes on with; and
what deaths of a job's instances have told of its records, and whose schedules are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "leader",
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("epoch"),
        if_not_exists=True,
    )
    op.create_table(
        "metric_series",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("written_at", sa.Double(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
        if_not_exists=True,
    )
    op.create_table(
        "transform_crashes",
        sa.Column("job_key", sa.String(length=128), nullable=False),
        sa.Column("object", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("span", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("crash_case", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_key", "object", "span"),
        if_not_exists=True,
    )
    op.create_table(
        "job_schedule_owners",
        sa.Column("schedule_key", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("schedule_key"),
        if_not_exists=True,
    )
