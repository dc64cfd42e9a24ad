"""Whether this server leads: the driver of `core/servers/election.py`.

It uses a connection and a thread of its own, so that no other database call of this server delays
its beat. It runs on the server's event loop on purpose: a server whose loop is blocked must not
keep the lead.

`LeaderSession` is one server's connection to the lock and to the row that says who leads. It is
synchronous. The lock is a session-level advisory lock of PostgreSQL. The database frees it when the
connection ends, and the connection ends with the process. A process that is only paused keeps the
lock and its other open transactions; `evict` makes the database end all of its connections, which
any session of the same user may do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection, func, insert, text, update
from sqlalchemy.exc import DBAPIError

from penstock.clock import Clock, SystemClock
from penstock.control.database.connection import worded
from penstock.control.database.leader_table import Term, following, leader, seen
from penstock.control.database.postgres import PostgresDatabase
from penstock.core.servers.election import EVICT, WAIT, Election, ElectionSpec, LeaderObserved
from penstock.errors import CallerError, PenstockError

#: The id of the leader's advisory lock ("pens" in ASCII).
_LEADER_LOCK: Final = 0x70656E73

_TRY: Final = text(f"SELECT pg_try_advisory_lock({_LEADER_LOCK})")
_UNLOCK: Final = text(f"SELECT pg_advisory_unlock({_LEADER_LOCK})")
#: Ends only the sessions of the leader that was observed: it may have come back, or another may
#: lead.
_EVICT: Final = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = :session"
    " AND pid <> pg_backend_pid()"
    " AND EXISTS (SELECT 1 FROM leader WHERE epoch = :epoch AND beat = :beat)"
)
_NOW: Final = func.extract("epoch", func.clock_timestamp())


class LeaderSession:
    """Use it from one thread; `abort` from any. Every method raises what `worded` makes of the
    database's exceptions. After an exception the connection is made anew, without the lock."""

    def __init__(self, database: PostgresDatabase, *, name: str, session: str) -> None:
        self._database = database
        self._name = name
        self._session = session
        self._connection: Connection | None = None

    def look(self) -> LeaderObserved:
        with self._connected() as db:
            return seen(db)

    def lead(self, was: LeaderObserved, address: str) -> int | None:
        """Takes the lock and returns the new epoch. None if another server has the lock, or if the
        observed leader has changed."""
        with self._connected() as db:
            if not db.scalar(_TRY):
                return None
            try:
                epoch = self._raise_epoch(db, was, address)
            except BaseException:
                self.close()  # closing the connection frees the lock
                raise
            if epoch is None:
                db.execute(_UNLOCK)
            return epoch

    def evict(self, was: LeaderObserved) -> None:
        """Ends the leader's connections."""
        with self._connected() as db:
            values = {"session": was.session, "epoch": was.epoch, "beat": was.beat}
            db.execute(_EVICT, values)

    def beat(self, epoch: int, address: str) -> bool:
        """Counts up the beat, with the lock held. False if another server leads.

        After a reconnect it takes the lock again. If another server holds the lock for a moment,
        nothing is counted: that server must raise the epoch to keep it, and the next beat shows
        whether it did.
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
        """Ends the term, so that the next leader need not wait."""
        with self._connected() as db:
            db.execute(
                update(leader)
                .where(leader.c.epoch == epoch, leader.c.session == self._session)
                .values(session="", address="")
            )
        self.close()

    def close(self) -> None:
        """Idempotent; frees the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(DBAPIError):
                connection.invalidate()
                connection.close()

    def abort(self) -> None:
        """Aborts the call on the other thread, whatever state the database is in."""
        self._database.abort()

    def _raise_epoch(self, db: Connection, was: LeaderObserved, address: str) -> int | None:
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


_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Shorter than the time after which others take over: a hanging call alone must not cost the lead.
_CALL_S_MAX: Final = 1.5
#: A takeover waits this long for transactions of the former leader, then ends them.
_LOCK_TIMEOUT_MS: Final = 700


class Leadership:
    """The leadership of one server. `start`, then `close`; both on the event loop."""

    def __init__(
        self, url: str, *, name: str, spec: ElectionSpec | None = None, clock: Clock | None = None
    ) -> None:
        """`name`: this server's name for people. Raises what `PostgresDatabase` raises."""
        self.session = f"penstock-{secrets.token_hex(12)}"
        self.address = ""  #: this server's address; written for the others with each beat
        self.seen = LeaderObserved(epoch=0)  #: what the last look or beat showed
        self.epoch = 0  #: the epoch of this server's term; 0: it does not lead
        self.changed = asyncio.Event()  #: set whenever `epoch` has changed; the reader clears it
        #: set when another server that leads has this server's address
        self.clashed = asyncio.Event()
        self._spec = spec or ElectionSpec()
        self._clock = clock or SystemClock()
        self._election = Election(self._spec)
        database = PostgresDatabase(
            url, session=self.session, autocommit=True, lock_timeout_ms=_LOCK_TIMEOUT_MS
        )
        self._session = LeaderSession(database, name=name, session=self.session)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-leader")
        self._task: asyncio.Task[None] | None = None
        self._name = name
        self._clash_told = 0  #: epoch of the leader that has this server's address; 0: none has
        self._beaten_at = self._clock.monotonic()
        #: code of the last logged error, so that it is not logged again with every look
        self._told = ""

    @property
    def term(self) -> Term:
        """The term under which this server may write now."""
        return Term(self.epoch, self.session) if self.epoch else following(self.session)

    def beat_age_s(self) -> float:
        """Seconds since this server last wrote a beat as the leader."""
        return self._clock.monotonic() - self._beaten_at

    async def start(self) -> None:
        """Looks once, and leads if nobody does; then goes on in the background.

        The tables must exist. Raises NotNowError `database-unreachable`.
        """
        await self._look()
        self._task = asyncio.create_task(self._run(), name="leadership")

    async def resign(self) -> None:
        """Ends this server's term, so that followers need not wait."""
        epoch = self.epoch
        if not epoch:
            return
        self._become(0)
        try:
            await self._call(lambda: self._session.resign(epoch))
        except PenstockError as error:
            _log.warning("the lead could not be given back: %s", error.message)

    async def close(self) -> None:
        """Resigns. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self.resign()
        await self._call(self._session.close)
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while True:
            leads = bool(self.epoch)
            await asyncio.sleep(self._spec.beat_s if leads else self._spec.look_s)
            try:
                await (self._beat() if leads else self._look())
                self._told = ""
            except PenstockError as error:
                self._election.forget()
                if error.code != self._told:
                    _log.warning("who leads can't be seen: %s: %s", error.code, error.message)
                self._told = error.code
            except Exception:
                _log.exception("looking for the leader failed")

    async def _beat(self) -> None:
        epoch = self.epoch
        if not await self._call(lambda: self._session.beat(epoch, self.address)):
            self.seen = await self._call(self._session.look)
            _log.warning("%s leads now (epoch %d)", self.seen.name or "nobody", self.seen.epoch)
            await self._call(self._session.close)
            self._become(0)
        else:
            self._beaten_at = self._clock.monotonic()

    async def _look(self) -> None:
        self.seen = seen = await self._call(self._session.look)
        candidacy = self._election.look(seen, now=self._clock.monotonic())
        self._look_for_clash()
        if candidacy.action == WAIT:
            return
        if candidacy.action == EVICT:
            _log.warning("%s is silent: its connections are ended", seen.name)
            await self._call(lambda: self._session.evict(seen))
        epoch = await self._call(lambda: self._session.lead(seen, self.address))
        if epoch is not None:
            _log.info("this server leads (epoch %d, %s)", epoch, candidacy.reason)
            self._become(epoch)

    def address_taken(self) -> CallerError:
        """The error for `clashed`: what to change in the setup of the servers."""
        return CallerError(
            "address-taken",
            f"{self._name} and {self.seen.name}, which leads, have one address: {self.address}.",
            hint="What is handed on to the leader would come back. Give each server an address of"
            " its own: --host and --port, or control.advertise where it is reached elsewhere.",
        )

    def _look_for_clash(self) -> None:
        if not self._election.shares_address(self.address):
            self._clash_told = 0
        elif self._clash_told != self.seen.epoch:
            self._clash_told = self.seen.epoch
            error = self.address_taken()
            _log.error("%s: %s %s", error.code, error.message, error.hint)
            self.clashed.set()

    def _become(self, epoch: int) -> None:
        self._election.forget()
        self._beaten_at = self._clock.monotonic()
        self.epoch = epoch
        self.changed.set()

    async def _call(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_CALL_S_MAX, self._session.abort)
        try:
            return await asyncio.shield(loop.run_in_executor(self._thread, call))
        finally:
            timer.cancel()
