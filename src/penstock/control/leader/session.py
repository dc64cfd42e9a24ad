"""One server's connection to the lock, and to the row that says who leads. Synchronous.

The lock is PostgreSQL's advisory lock of a session: the database frees it when the connection ends,
and it ends with the process. A process that is only paused keeps it, and its other connections
their transactions; `evict` has the database end all of them, which any session of the same user
may.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection, func, insert, text, update
from sqlalchemy.exc import DBAPIError

from penstock.control.database.errors import worded
from penstock.control.database.leader_table import leader, seen
from penstock.control.database.postgres import PostgresDatabase
from penstock.core.servers.election import LeaderSeen

#: The advisory lock of the server that leads a database ("pens" in ASCII).
_LEADER_LOCK: Final = 0x70656E73

_TRY: Final = text(f"SELECT pg_try_advisory_lock({_LEADER_LOCK})")
_UNLOCK: Final = text(f"SELECT pg_advisory_unlock({_LEADER_LOCK})")
#: Only of the leader that was seen, as it was seen: it may have come back, or another one come.
_EVICT: Final = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = :session"
    " AND pid <> pg_backend_pid()"
    " AND EXISTS (SELECT 1 FROM leader WHERE epoch = :epoch AND beat = :beat)"
)
_NOW: Final = func.extract("epoch", func.clock_timestamp())


class LeaderSession:
    """Use it from one thread; `abort` from any. Every method raises what `worded` makes of the
    database's exceptions; after one the connection is made anew, without the lock."""

    def __init__(self, database: PostgresDatabase, *, name: str, session: str) -> None:
        self._database = database
        self._name = name
        self._session = session
        self._connection: Connection | None = None

    def look(self) -> LeaderSeen:
        with self._connected() as db:
            return seen(db)

    def lead(self, was: LeaderSeen, address: str) -> int | None:
        """The new epoch, with the lock held; None if the lock is another's, or the leader that was
        seen is not what it was."""
        with self._connected() as db:
            if not db.scalar(_TRY):
                return None
            try:
                epoch = self._raise_epoch(db, was, address)
            except BaseException:
                self.close()  # and with the connection goes the lock
                raise
            if epoch is None:
                db.execute(_UNLOCK)
            return epoch

    def evict(self, was: LeaderSeen) -> None:
        """Ends the leader's connections."""
        with self._connected() as db:
            values = {"session": was.session, "epoch": was.epoch, "beat": was.beat}
            db.execute(_EVICT, values)

    def beat(self, epoch: int, address: str) -> bool:
        """Counts up, with the lock held. False if another leads.

        A connection that was made anew takes the lock again. Where somebody else has it for the
        moment, who must raise the epoch to keep it, nothing is counted: the next beat tells.
        """
        with self._connected() as db:
            held = db.info.get("leads") or db.scalar(_TRY)
            if not held:
                return seen(db).epoch == epoch
            db.info["leads"] = True
            counted = db.execute(
                update(leader)
                .where(leader.c.epoch == epoch)
                .values(beat=leader.c.beat + 1, address=address)
            )
            return counted.rowcount == 1

    def resign(self, epoch: int) -> None:
        """The next one need not wait."""
        with self._connected() as db:
            db.execute(
                update(leader)
                .where(leader.c.epoch == epoch, leader.c.session == self._session)
                .values(session="", address="")
            )
        self.close()

    def close(self) -> None:
        """Idempotent; gives the lock back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(DBAPIError):
                connection.invalidate()
                connection.close()

    def abort(self) -> None:
        """Ends what is under way on the other thread, whatever the database does."""
        self._database.abort()

    def _raise_epoch(self, db: Connection, was: LeaderSeen, address: str) -> int | None:
        values = {
            "name": self._name,
            "address": address,
            "session": self._session,
            "beat": was.beat + 1,
            "since": _NOW,
        }
        if not was.epoch:
            if seen(db).epoch:
                return None
            db.execute(insert(leader).values(epoch=1, **values))
            epoch: int | None = 1
        else:
            epoch = db.scalar(
                update(leader)
                .where(leader.c.epoch == was.epoch, leader.c.beat == was.beat)
                .values(epoch=leader.c.epoch + 1, **values)
                .returning(leader.c.epoch)
            )
        if epoch is not None:
            db.info["leads"] = True
        return epoch

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        with worded(None):
            if self._connection is None:
                self._connection = self._database.engine.connect()
                self._connection.info.pop("leads", None)
            try:
                yield self._connection
            except BaseException:
                self.close()
                raise
