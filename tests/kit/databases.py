"""Which database a test's servers use: SQLite in their state directories, or PostgreSQL.

Tests that use the fixture `on_each_database` run on both. On PostgreSQL their servers lead: what
they write is fenced, as it is in a server of several.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import insert, update

from penstock.config import ControlConfig
from penstock.control.database.leader_table import Term, leader
from penstock.control.store.store import Store


class _Used:
    url = ""
    term: Term | None = None


def use(url: str) -> None:
    """From now on; an empty URL is SQLite."""
    _Used.url, _Used.term = url, Term(1, "test") if url else None


def lead(folder: Path) -> None:
    """Makes the test's term the one that is."""
    store = Store(folder, _Used.url)
    row = {"epoch": 1, "name": "", "address": "", "session": "test", "beat": 0, "since": 0.0}
    with store.begin() as db:
        db.execute(insert(leader).values(**row))
    store.close()


def set_epoch(folder: Path, epoch: int) -> None:
    """Another than 1: somebody else leads now, and the test's servers can write nothing."""
    store = Store(folder, _Used.url)
    with store.begin() as db:
        db.execute(update(leader).values(epoch=epoch))
    store.close()


def opened(state_dir: Path) -> Store:
    return Store(state_dir, _Used.url, term=_Used.term)


def term() -> Term | None:
    return _Used.term


def control_config() -> ControlConfig:
    return ControlConfig(database=_Used.url)
