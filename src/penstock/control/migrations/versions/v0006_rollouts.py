"""How far the rollout of an endpoint's new generation is, so that a server that starts goes on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("deployments", sa.Column("progress", sa.Text(), nullable=True))
