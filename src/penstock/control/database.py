"""The connection to SQLite or PostgreSQL: opened, checked, and its failures put into words.

SQLite runs in WAL mode with `synchronous=FULL`: a commit that was answered survives `kill -9` and a
power cut. A transaction that writes begins IMMEDIATE, so that it can't fail between a read and a
write; one that only reads does not, so that it works on a full or read-only disk.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from penstock.control import schema
from penstock.control.state_dir import make_state_dir
from penstock.errors import CallerError, InternalError, NotNowError, PenstockError

_BUSY_TIMEOUT_MS: Final = 10_000
_CONNECT_TIMEOUT_S: Final = 10

#: The advisory lock that one server holds on a PostgreSQL database ("pens" in ASCII).
_SERVER_LOCK: Final = 0x70656E73

#: Words of SQLite's and PostgreSQL's messages when nothing can be written.
_NOT_WRITABLE: Final = (
    "disk is full",
    "disk i/o error",
    "readonly database",
    "unable to open database file",
    "no space left",
    "could not extend file",
    "read-only transaction",
)
_ONLY_READS: Final = "penstock_only_reads"
_DAMAGED: Final = ("malformed", "not a database")


class DatabaseConnection:
    """An engine whose `begin()` and `read()` yield transactions and raise errors of ours.

    Use it from one thread at a time; `control/store_thread.py` gives it one.
    """

    def __init__(self, state_dir: Path, url: str = "", *, exclusive: bool = True) -> None:
        """Opens (and creates, private to the user) the database and its tables.

        `exclusive` takes the server's lock on a PostgreSQL database; the lock of a state directory
        is `control/lock.py`'s.

        Raises:
            CallerError: `database-url-invalid`, `postgres-driver-missing`, `database-in-use`,
                `state-too-new`, `state-damaged`.
            NotNowError: `state-not-writable`, `database-unreachable`.
        """
        self._server_lock: Connection | None = None
        with _worded(state_dir if not url else None):
            self._engine = _sqlite(state_dir) if not url else _from_url(url)
            try:
                if exclusive and self._engine.dialect.name == "postgresql":
                    self._server_lock = _lock_server(self._engine)
                self._prepare()
            except BaseException:
                self.close()
                raise
        self._state_dir = state_dir if not url else None

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back by an exception."""
        with _worded(self._state_dir), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """One transaction that only reads: all of it sees one state."""
        with _worded(self._state_dir), self._engine.connect() as opened:
            connection = opened.execution_options(**{_ONLY_READS: True})
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Idempotent."""
        if self._server_lock is not None:
            with contextlib.suppress(DBAPIError):
                self._server_lock.close()
            self._server_lock = None
        self._engine.dispose()

    def _prepare(self) -> None:
        with self._engine.begin() as connection:
            schema.metadata.create_all(connection)
            columns = schema.settings.c
            wanted = schema.SCHEMA_VERSION
            # Two processes that open an old database at once must not both change it.
            version = connection.scalar(
                select(columns.value).where(columns.name == "schema_version").with_for_update()
            )
            if version is None:
                connection.execute(
                    insert(schema.settings).values(name="schema_version", value=str(wanted))
                )
            elif int(version) > wanted:
                raise CallerError(
                    "state-too-new",
                    f"the database was written by a newer version (its schema is {version}, this"
                    f" version knows {wanted})",
                    hint="Run the newer version, or use another state directory.",
                )
            elif int(version) < wanted:
                for step in range(int(version) + 1, wanted + 1):
                    for statement in schema.MIGRATIONS[step]:
                        connection.exec_driver_sql(statement)
                connection.execute(
                    update(schema.settings)
                    .where(columns.name == "schema_version")
                    .values(value=str(wanted))
                )


def _sqlite(state_dir: Path) -> Engine:
    path = state_dir / "penstock.db"
    try:
        make_state_dir(state_dir)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise _not_writable(state_dir, error.strerror or str(error)) from error
    engine = create_engine(
        f"sqlite:///{path}", connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000}, max_overflow=0,
        pool_size=1,
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        only_reads = connection.get_execution_options().get(_ONLY_READS, False)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")

    return engine


def _from_url(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() != "postgresql":
            raise CallerError(
                "database-url-invalid",
                f"a database of kind {parsed.drivername!r} is not supported",
                hint="Use postgresql://user:password@host/database; without a URL it is SQLite.",
            )
        return create_engine(
            parsed,
            pool_size=1,
            max_overflow=1,
            pool_pre_ping=True,
            connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
        )
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise CallerError(
            "database-url-invalid",
            "the database URL can't be read",
            hint="Use postgresql://user:password@host/database.",
        ) from error
    except ModuleNotFoundError as error:
        raise CallerError(
            "postgres-driver-missing",
            "PostgreSQL needs the psycopg package, which is not installed",
            hint="pip install 'penstock[postgres]'",
        ) from error


def _lock_server(engine: Engine) -> Connection:
    """Holds the lock as long as the connection lives; the database frees it when we die."""
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    if not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_SERVER_LOCK})").scalar():
        connection.close()
        raise CallerError(
            "database-in-use",
            "another server uses this database",
            hint="Stop it first, or give this one a database of its own.",
        )
    return connection


@contextlib.contextmanager
def _worded(state_dir: Path | None) -> Iterator[None]:
    """Turns the database's exceptions into errors a person can act on."""
    try:
        yield
    except PenstockError:
        raise
    except DBAPIError as error:
        raise _error_of(error, state_dir) from error


def _error_of(error: DBAPIError, state_dir: Path | None) -> PenstockError:
    text = str(error.orig)
    lower = text.lower()
    if any(words in lower for words in _NOT_WRITABLE):
        return _not_writable(state_dir, text)
    if any(words in lower for words in _DAMAGED):
        return CallerError(
            "state-damaged",
            f"the database in {state_dir} is damaged: {text}",
            hint="Restore it from a backup, or move it away to begin anew.",
        )
    if "locked" in lower:
        return NotNowError(
            "state-busy",
            "the database is in use by another process",
            hint="Try again; end other programs that keep it open.",
            retry_after_s=1.0,
        )
    if isinstance(error, OperationalError) and state_dir is None:
        return NotNowError(
            "database-unreachable",
            f"the database can't be reached: {text.strip().splitlines()[0]}",
            hint="Check that PostgreSQL runs and that the URL is right.",
            retry_after_s=1.0,
        )
    return InternalError("database-error", text)


def _not_writable(state_dir: Path | None, why: str) -> NotNowError:
    where = f"state directory {state_dir}" if state_dir is not None else "database"
    return NotNowError(
        "state-not-writable",
        f"the {where} can't be written: {why}",
        hint="Free disk space, or correct the permissions.",
        retry_after_s=5.0,
    )
