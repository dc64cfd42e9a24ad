"""The connection to SQLite or PostgreSQL: opening, migration, fencing, and readable errors.

SQLite runs in WAL mode with `synchronous=FULL`: a commit that was answered survives `kill -9` and a
power cut. A transaction that writes begins IMMEDIATE, so that it can't fail between a read and a
write; one that only reads does not, so that it works on a full or read-only disk.

Several servers may share PostgreSQL. There a transaction that writes holds the epoch of its
server's term (`control/database/leader_table.py`), and one that reads sees one snapshot.

`prepare` brings a database to this version's tables when it is opened, and refuses a newer one. A
new database gets all tables at once. An older one goes through the migrations of every version in
between (`control/migrations/`; Alembic is imported only for that). Tests check that both ways give
the same tables. All of it is one transaction: a kill leaves the old state or the new one.

`worded` turns exceptions of the database into errors of ours that say what to do.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from penstock.control.database import schema
from penstock.control.database.leader_table import Term, require
from penstock.control.database.postgres import PostgresDatabase
from penstock.control.state_dir import make_state_dir
from penstock.errors import CallerError, InternalError, NotNowError, PenstockError

#: Parts of SQLite's and PostgreSQL's messages that mean that nothing can be written.
_NOT_WRITABLE: Final = (
    "disk is full",
    "disk i/o error",
    "readonly database",
    "unable to open database file",
    "no space left",
    "disk quota exceeded",
    "input/output error",
    "read-only file system",
    "stale file handle",
    "could not extend file",
    "read-only transaction",
    "during recovery",  # a replica that was not promoted
)
_DAMAGED: Final = ("malformed", "not a database")
#: Parts of PostgreSQL's messages when another transaction or the server blocks us for a while.
_BUSY: Final = ("locked", "lock timeout", "statement timeout", "deadlock detected")
#: PostgreSQL's codes when it ended the connection: shut down, evicted, starting, too many clients.
_GONE: Final = ("57P01", "57P02", "57P03", "57P05", "25P03", "53300")

#: Error codes whose cause is the database, not the caller.
FAULTS: Final = frozenset(
    {"database-unreachable", "database-error", "state-busy", "state-damaged", "state-not-writable"}
)


@contextlib.contextmanager
def worded(state_dir: Path | None) -> Iterator[None]:
    """Turns exceptions of the database into errors of ours.

    `state_dir`: the folder of a SQLite database; None for PostgreSQL.
    """
    try:
        yield
    except PenstockError:
        raise
    except DBAPIError as error:
        raise error_of(error, state_dir) from error


def error_of(error: DBAPIError, state_dir: Path | None) -> PenstockError:
    text = str(error.orig)
    lower = text.lower()
    if any(words in lower for words in _NOT_WRITABLE):
        return not_writable(state_dir, text)
    if any(words in lower for words in _DAMAGED):
        return CallerError(
            "state-damaged",
            f"the database in {state_dir} is damaged: {text}",
            hint="Restore it from a backup, or move it away to begin anew.",
        )
    if any(words in lower for words in _BUSY):
        return NotNowError(
            "state-busy",
            "the database is in use by another process",
            hint="Try again; end other programs that keep it open.",
            retry_after_s=1.0,
        )
    gone = getattr(error.orig, "sqlstate", None) in _GONE
    if state_dir is None and (isinstance(error, OperationalError) or gone):
        return unreachable((text.strip().splitlines() or ["the connection has ended"])[0])
    return InternalError("database-error", text)


def unreachable(why: str) -> NotNowError:
    return NotNowError(
        "database-unreachable",
        f"the database can't be reached: {why}",
        hint="Check that PostgreSQL runs and that the URL is right.",
        retry_after_s=1.0,
    )


def not_writable(state_dir: Path | None, why: str) -> NotNowError:
    where = f"state directory {state_dir}" if state_dir is not None else "database"
    return NotNowError(
        "state-not-writable",
        f"the {where} can't be written: {why}",
        hint="Free disk space, or correct the permissions.",
        retry_after_s=5.0,
    )


_BUSY_TIMEOUT_MS: Final = 10_000
_ONLY_READS: Final = "penstock_only_reads"

#: A call that takes longer hangs. Our longest calls, over a slow network, take a tenth of this.
CALL_S_MAX: Final = 10.0


class DatabaseConnection:
    """An engine whose `begin()` and `read()` yield transactions and raise errors of ours.

    Use it from one thread at a time; `control/store/store_thread.py` gives it one.
    """

    def __init__(self, state_dir: Path, url: str = "", *, term: Term | None = None) -> None:
        """Opens the database and its tables; creates them readable only for this user.

        `term`: the term under which a server writes to PostgreSQL. Without one, writes are not
        fenced. That is for SQLite, where `control/state_dir.py` keeps a second server out, and for
        tools whose writes disturb no server.

        Raises:
            CallerError: `database-url-invalid`, `postgres-driver-missing`, `state-too-new`,
                `state-damaged`.
            NotNowError: `state-not-writable`, `database-unreachable`.
        """
        self._state_dir = state_dir if not url else None
        self._term = term
        self._begun_count = 0  #: transactions that may have written
        self._postgres: PostgresDatabase | None = None
        with worded(self._state_dir):
            if url:
                session = term.session if term is not None else "penstock"
                self._postgres = PostgresDatabase(url, session=session)
                self._engine = self._postgres.engine
            else:
                self._engine = _sqlite(state_dir)
            try:
                with self._engine.begin() as connection:
                    prepare(connection)
            except BaseException:
                self.close()
                raise

    @property
    def call_s_max(self) -> float | None:
        """Seconds after which a call is to be aborted; None: calls can't hang (SQLite)."""
        return CALL_S_MAX if self._postgres is not None else None

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back by an exception.

        Raises NotNowError `not-the-leader` if the server's term is over, or it has none.
        """
        self._begun_count += 1
        with worded(self._state_dir), self._engine.begin() as connection:
            if self._term is not None:
                require(connection, self._term)
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """One transaction that only reads: all of it sees one state."""
        options: dict[str, Any] = {_ONLY_READS: True}
        if self._postgres is not None:
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with worded(self._state_dir), self._engine.connect() as opened:
            connection = opened.execution_options(**options)
            with connection.begin():
                yield connection

    def version(self, db: Connection) -> tuple[int, int]:
        """Another pair than in an earlier transaction if anything was written since, by whomever.

        SQLite says whether another connection wrote. Into PostgreSQL nobody writes but the server
        whose term it is.
        """
        others = 0
        if self._postgres is None:
            others = int(db.exec_driver_sql("PRAGMA data_version").scalar_one())
        return self._begun_count, others

    def abort(self) -> None:
        """Aborts the call that runs on the other thread, if this database can hang."""
        if self._postgres is not None:
            self._postgres.abort()

    def close(self) -> None:
        """Idempotent."""
        self._engine.dispose()


def _sqlite(state_dir: Path) -> Engine:
    path = state_dir / "penstock.db"
    try:
        make_state_dir(state_dir)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise not_writable(state_dir, error.strerror or str(error)) from error
    engine = create_engine(
        f"sqlite:///{path}", connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000}, max_overflow=0,
        pool_size=1,
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # `begin` below begins transactions, not the driver
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        only_reads = connection.get_execution_options().get(_ONLY_READS, False)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")

    return engine


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
