"""Metrics in the database that several servers share: what the next leader's alarms go on with.

One row a time series, as `metrics/series/snapshot.py` writes it. A save writes the series that have
changed since the last one, some at a time, so that no other call waits for long. What came after
the last save of a leader that died is lost, as it is with the file of a single server: at most
`metrics.driver.SAVE_EVERY_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sqlalchemy import delete, insert, select

from penstock.control.database.schema import metric_series
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.metrics.series.snapshot import Snapshot, restore
from penstock.metrics.series.store import MetricStore

_AT_ONCE: Final = 50

Line = tuple[str, float, bytes]


class MetricHistory:
    """Of one leader's term."""

    def __init__(self, database: StoreThread) -> None:
        self._database = database
        self._written: dict[str, float] = {}  #: digest of a series -> when it had changed last

    async def load(self, store: MetricStore, *, now: float) -> None:
        """Puts what was kept into `store`; series that have no points any more are forgotten."""
        lines = await self._database.call(_read)
        restore((body for _, _, body in lines), store, now=now)
        self._written = {digest: at for digest, at, _ in lines}

    async def save(self, snapshot: Snapshot) -> None:
        """Raises PenstockError: what was not written then is at the next save."""
        lines = await asyncio.to_thread(lambda: list(snapshot.lines(self._written)))
        for at in range(0, len(lines), _AT_ONCE):
            some = lines[at : at + _AT_ONCE]
            await self._database.call(_write, some)
            self._written |= {digest: written_at for digest, written_at, _ in some}
        gone = self._written.keys() - await asyncio.to_thread(snapshot.digests)
        if gone:
            await self._database.call(_forget, sorted(gone))
            self._written = {one: at for one, at in self._written.items() if one not in gone}


def _read(store: Store) -> list[Line]:
    with store.read() as db:
        found = db.execute(select(metric_series).order_by(metric_series.c.written_at))
        return [(row.digest, row.written_at, row.body) for row in found]


def _write(store: Store, lines: Sequence[Line]) -> None:
    digests = [digest for digest, _, _ in lines]
    values = [{"digest": one, "written_at": at, "body": body} for one, at, body in lines]
    with store.begin() as db:
        db.execute(delete(metric_series).where(metric_series.c.digest.in_(digests)))
        db.execute(insert(metric_series), values)


def _forget(store: Store, digests: Sequence[str]) -> None:
    with store.begin() as db:
        for at in range(0, len(digests), _AT_ONCE):
            some = digests[at : at + _AT_ONCE]
            db.execute(delete(metric_series).where(metric_series.c.digest.in_(some)))
