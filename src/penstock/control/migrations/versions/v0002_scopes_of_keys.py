"""Keys have a scope and endpoints. Those from before could do everything, and still can."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("keys", sa.Column("scope", sa.String(16), nullable=False, server_default="admin"))
    op.add_column("keys", sa.Column("endpoints", sa.Text(), nullable=False, server_default=""))
