"""The row that says who leads, and what holds writers to it.

There is one row. Its key is the epoch, for the sake of PostgreSQL's row locks: a transaction that
writes takes the row FOR KEY SHARE, which many may have at once, and which lets the leader count up
its beat meanwhile (no key changes), but not a new leader raise the epoch (the key changes). So a
takeover waits for the transactions that are under way, and none begins with the old epoch after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import BigInteger, Column, Connection, Double, Integer, String, Table, Text, select

from penstock.control.database.schema import metadata
from penstock.core.servers.election import LeaderObserved
from penstock.errors import NotNowError

#: Within this time a new leader is there, as a rule.
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
    """What a server may write under."""

    epoch: int  #: 0: it does not lead, and may only read
    session: str  #: what its connections are called


#: For a server that follows.
def following(session: str) -> Term:
    return Term(0, session)


def seen(db: Connection) -> LeaderObserved:
    """What the row says; epoch 0 where there is none."""
    row = db.execute(select(leader)).mappings().first()
    if row is None:
        return LeaderObserved(epoch=0)
    return LeaderObserved(
        epoch=row["epoch"],
        name=row["name"],
        address=row["address"],
        session=row["session"],
        beat=row["beat"],
    )


def require(db: Connection, term: Term) -> None:
    """Holds the epoch until the transaction ends. Raises NotNowError `not-the-leader`."""
    held = (
        select(leader.c.epoch)
        .where(leader.c.epoch == term.epoch)
        .with_for_update(read=True, key_share=True)
    )
    if term.epoch and db.scalar(held) is not None:
        return
    raise not_the_leader(seen(db))


def not_the_leader(now: LeaderObserved) -> NotNowError:
    """What a server that does not lead answers to a change."""
    known = now.session and now.address
    return NotNowError(
        "not-the-leader",
        "another server leads" + (f": {now.name}" if known else ", or will in a moment"),
        hint=f"Ask {now.address}, or the same again in a moment."
        if known
        else "Ask again in a moment.",
        retry_after_s=_RETRY_S,
    )
