"""Migrates a database to this version's tables when it is opened, and refuses a newer one.

A new database gets all tables at once. An older one goes through the migrations of every version in
between (`control/migrations/`; Alembic is imported only for that). Tests check that both ways give
the same tables. All of it is one transaction: a kill leaves the old state or the new one.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, insert, inspect, select, text, update

from penstock.control.database import schema
from penstock.errors import CallerError

#: Alembic's version table. It has our own name, since others may use Alembic in the same database.
VERSION_TABLE: Final = "penstock_schema"

#: Keeps two servers from migrating one PostgreSQL database at once ("migr" in ASCII).
_LOCK: Final = text("SELECT pg_advisory_xact_lock(1835624306)")
_CREATE: Final = text(
    f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL,"
    f" CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
)
_STAMP: Final = text(f"INSERT INTO {VERSION_TABLE} VALUES (:revision)")  # noqa: S608 - our own name
_READ: Final = text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608

_NAME: Final = schema.settings.c.name == "schema_version"


def prepare(connection: Connection) -> None:
    """Inside the caller's transaction. Raises CallerError `state-too-new`."""
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)
    tables = set(inspect(connection).get_table_names())
    version = _version(connection, tables)
    if version is not None and version > schema.SCHEMA_VERSION:
        raise CallerError(
            "state-too-new",
            f"the database was written by a newer version (its schema is {version}, this"
            f" version knows {schema.SCHEMA_VERSION})",
            hint="Run the newer version, or use another state directory.",
        )
    if version is not None and version < schema.SCHEMA_VERSION:
        if VERSION_TABLE not in tables:
            _stamp(connection, version)
        _upgrade(connection)
        tables = set(inspect(connection).get_table_names())
    # The code of offline work adds tables when it is imported; tools need not import it.
    missing = [one for one in schema.metadata.sorted_tables if one.name not in tables]
    if missing:
        schema.metadata.create_all(connection, tables=missing)
    if VERSION_TABLE not in tables:
        _stamp(connection, schema.SCHEMA_VERSION)
    if version != schema.SCHEMA_VERSION:
        _tell_older_versions(connection)


def revision(version: int) -> str:
    """The version as Alembic's revision id."""
    return f"{version:04d}"


def _version(connection: Connection, tables: set[str]) -> int | None:
    """The version of the tables; None: a new database."""
    if VERSION_TABLE in tables:
        return int(connection.scalar(_READ))
    if schema.settings.name not in tables:
        return None
    # A version without Alembic wrote this database.
    found = connection.scalar(select(schema.settings.c.value).where(_NAME))
    return None if found is None else int(found)


def _stamp(connection: Connection, version: int) -> None:
    connection.execute(_CREATE)
    connection.execute(_STAMP, {"revision": revision(version)})


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - some tenths of a second, once a version
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "penstock.control:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision(schema.SCHEMA_VERSION))


def _tell_older_versions(connection: Connection) -> None:
    """Versions without Alembic read this setting, and then refuse the newer database."""
    value = str(schema.SCHEMA_VERSION)
    told = connection.execute(update(schema.settings).where(_NAME).values(value=value))
    if not told.rowcount:
        connection.execute(insert(schema.settings).values(name="schema_version", value=value))
