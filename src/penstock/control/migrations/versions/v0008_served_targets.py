"""Which artifact answers for a target model, where it is not the one of its own name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "served_targets",
        sa.Column("endpoint_key", sa.String(128), primary_key=True),
        sa.Column("target", sa.String(1024), primary_key=True),
        sa.Column("served", sa.Text(), nullable=False),
    )
