"""Metrics in the shared database, so that the next leader's alarms continue with them.

One row per time series, as `metrics/series/snapshot.py` writes it. A save writes the series that
changed since the last one, a few at a time, so that no other call waits for long. If a leader dies,
the points after its last save are lost, at most those of `metrics.driver.SAVE_EVERY_S`. The same
holds for the file of a single server.
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
    """The metric history of one leader's term."""

    def __init__(self, database: StoreThread) -> None:
        self._database = database
        #: digest of a series -> the time of its last change that was saved
        self._written: dict[str, float] = {}

    async def load(self, store: MetricStore, *, now: float) -> None:
        """Puts the saved metrics into `store`. Series without points are deleted."""
        lines = await self._database.call(_read)
        restore((body for _, _, body in lines), store, now=now)
        self._written = {digest: at for digest, at, _ in lines}

    async def save(self, snapshot: Snapshot) -> None:
        """Raises PenstockError; the next save writes what this one could not."""
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
