"""Runs inside the transaction of whoever opens the database: `control/database/connection.py`."""

from __future__ import annotations

from alembic import context

from penstock.control.database.connection import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
