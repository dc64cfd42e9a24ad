"""What agreements of rollouts have compared, so that they go on where they were after a restart."""

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
