"""The connection to SQLite or PostgreSQL: opened, brought to this version's tables, and fenced.

SQLite runs in WAL mode with `synchronous=FULL`: a commit that was answered survives `kill -9` and a
power cut. A transaction that writes begins IMMEDIATE, so that it can't fail between a read and a
write; one that only reads does not, so that it works on a full or read-only disk.

On PostgreSQL, which several servers may share, a transaction that writes holds the epoch of its
server's term (`control/database/leader_table.py`), and one that reads sees one state from beginning
to end.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event

from penstock.control.database import migrate
from penstock.control.database.errors import not_writable, worded
from penstock.control.database.leader_table import Term, require
from penstock.control.database.postgres import PostgresDatabase
from penstock.control.state_dir import make_state_dir

_BUSY_TIMEOUT_MS: Final = 10_000
_ONLY_READS: Final = "penstock_only_reads"

#: A call that takes longer hangs; the longest of ours, over a slow network, take a tenth.
CALL_S_MAX: Final = 10.0


class DatabaseConnection:
    """An engine whose `begin()` and `read()` yield transactions and raise errors of ours.

    Use it from one thread at a time; `control/store/store_thread.py` gives it one.
    """

    def __init__(self, state_dir: Path, url: str = "", *, term: Term | None = None) -> None:
        """Opens (and creates, private to the user) the database and its tables.

        `term`: what a server of a PostgreSQL database writes under. Without one nothing is fenced:
        that is for SQLite, where `control/lock.py` keeps a second server out, and for tools whose
        writes disturb no server's.

        Raises:
            CallerError: `database-url-invalid`, `postgres-driver-missing`, `state-too-new`,
                `state-damaged`.
            NotNowError: `state-not-writable`, `database-unreachable`.
        """
        self._state_dir = state_dir if not url else None
        self._term = term
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
                    migrate.prepare(connection)
            except BaseException:
                self.close()
                raise

    @property
    def call_s_max(self) -> float | None:
        """A call that takes longer is to be aborted; None: none can hang."""
        return CALL_S_MAX if self._postgres is not None else None

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back by an exception.

        Raises NotNowError `not-the-leader` if the server's term is over, or it has none.
        """
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

    def abort(self) -> None:
        """Ends what is under way on the other thread, if the database is one that can hang."""
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
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        only_reads = connection.get_execution_options().get(_ONLY_READS, False)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")

    return engine
