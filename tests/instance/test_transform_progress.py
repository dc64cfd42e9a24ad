"""How far a span is told to be while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from threading import Event

from transform_spans import lines_job

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.windows import RowsSpec
from penstock.errors import PenstockError
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.transform.call import SpanProgress, TransformCall
from penstock.instance.transform.lane_pool import LanePool
from penstock.instance.transform.rows_span import RowsSpan
from penstock.wire.frames import RequestMeta


class HeldAt:
    """An engine, and its rows; the batch of this number waits until it may go."""

    rows_spec = RowsSpec(rows_max=10)
    unread: dict[int, PenstockError] = {}  # noqa: RUF012 - of all tests: nothing is in it
    kinds = None

    def __init__(self, batch: int) -> None:
        self._left = batch
        self._count = 0
        self.held, self.go = Event(), Event()

    @property
    def lengths(self) -> list[int]:
        return [1] * self._count

    def read(self, asked: RequestMeta, records: Sequence[bytes]) -> HeldAt:
        self._count = len(records)
        return self

    def record_of(self, row: int) -> int:
        return row

    def run(self, lane: int, rows: Sequence[int]) -> None:
        if not self._left:
            self.held.set()
            self.go.wait(30)
        self._left -= 1

    def answers(self, failed: Collection[int]) -> list[bytes | PenstockError]:
        return [b"yes"] * self._count


def test_a_window_counts_by_the_batches_that_have_run(tmp_path: Path) -> None:
    """40 records are one window of four batches: a slow model takes hours for a large one."""
    job = lines_job(tmp_path, ["x"] * 40, content_type="text/plain")
    call = TransformCall(
        copy=1,
        job="j",
        spec=job.spec,
        object=job.one,
        span=job.whole,
        parts_uri=f"file://{tmp_path / 'parts'}",
        settings=ArtifactSettings(),
    )

    async def play() -> tuple[int, int]:
        engine, progress = HeldAt(3), SpanProgress()
        threads = LaneThreads(1, "test", asyncio.get_running_loop())
        lanes = LanePool(threads, 1).begin()
        span = asyncio.create_task(asyncio.to_thread(RowsSpan(call, engine, lanes, progress).run))
        await asyncio.to_thread(engine.held.wait, 30)
        seen = progress.records
        engine.go.set()
        assert (await span).records == 40
        threads.close()
        return seen, progress.records

    assert asyncio.run(play()) == (30, 40)
