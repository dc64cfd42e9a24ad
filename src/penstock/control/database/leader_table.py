"""The row that says which server leads, and the lock that keeps other servers from writing.

There is one row. Its key is the epoch, because of PostgreSQL's row locks. A transaction that writes
locks the row FOR KEY SHARE. Many transactions may hold that lock at once. It lets the leader count
up its beat (no key changes), but no new leader can raise the epoch (the key changes). So a takeover
waits for the transactions that are under way, and after it no transaction begins with the old
epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import BigInteger, Column, Connection, Double, Integer, String, Table, Text, select

from penstock.control.database.mapping import record_of
from penstock.control.database.schema import metadata
from penstock.core.servers.election import LeaderObserved
from penstock.errors import NotNowError

#: A new leader usually takes over within this time.
_RETRY_S: Final = 2.0

leader = Table(
    "leader",
    metadata,
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("session", String(64), nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("since", Double, nullable=False),  #: s since the epoch, by the database's clock
)


@dataclass(frozen=True, slots=True)
class Term:
    """The right of a server to write, for as long as its epoch is the current one."""

    epoch: int  #: 0: the server does not lead, and may only read
    session: str  #: the application name of its database connections


#: The term of a server that follows.
def following(session: str) -> Term:
    return Term(0, session)


def seen(db: Connection) -> LeaderObserved:
    """The content of the row; epoch 0 if there is no row."""
    row = db.execute(select(leader)).mappings().first()
    return LeaderObserved(epoch=0) if row is None else record_of(LeaderObserved, row)


def require(db: Connection, term: Term) -> None:
    """Locks the epoch until the transaction ends. Raises NotNowError `not-the-leader`."""
    held = (
        select(leader.c.epoch)
        .where(leader.c.epoch == term.epoch)
        .with_for_update(read=True, key_share=True)
    )
    if term.epoch and db.scalar(held) is not None:
        return
    raise not_the_leader(seen(db))


def not_the_leader(now: LeaderObserved) -> NotNowError:
    """The error that a server that does not lead gives to a write."""
    known = now.session and now.address
    return NotNowError(
        "not-the-leader",
        "another server leads" + (f": {now.name}" if known else ", or will in a moment"),
        hint=f"Ask {now.address}, or the same again in a moment."
        if known
        else "Ask again in a moment.",
        retry_after_s=_RETRY_S,
    )
