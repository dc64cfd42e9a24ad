"""How long a transform job pauses after a failure of its store or its database: in virtual time.

Everything is the driver's own code; only threads are left out, since their time is real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.transform_plane import TransformDriverSite
from tests.kit.virtual_network import VirtualLoop

from penstock.errors import NotNowError
from penstock.jobs.transform import transactions, work
from penstock.jobs.transform.records import COMPLETED, FAILED, GOING, JobRecord

AWAY = NotNowError("artifact-unreachable", "the store is away")
DAY_S = 86_400.0


class _AtOnce(ThreadPoolExecutor):
    """Runs a call where it is submitted."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args, **more))
        except BaseException as error:
            done.set_exception(error)
        return done


class Failing:
    """A function that fails so many times, and notes when it was called."""

    def __init__(self, loop: VirtualLoop, real: Callable[..., Any], error: Exception) -> None:
        self._loop = loop
        self._real = real
        self._error = error
        self.left = 0
        self.called: list[float] = []

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.called.append(self._loop.time())
        if self.left:
            self.left -= 1
            raise self._error
        return self._real(*args, **more)

    @property
    def pauses(self) -> list[float]:
        return [round(after - before, 3) for before, after in pairwise(self.called)]


def ended_job(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    error: Exception,
    times: int,
) -> tuple[JobRecord, Failing]:
    """A job from its creation to its end, while one function fails for a while."""
    loop = VirtualLoop()
    loop.set_default_executor(_AtOnce(1))
    failing = Failing(loop, getattr(where, name), error)
    monkeypatch.setattr(where, name, failing)

    async def main() -> JobRecord:
        site = TransformDriverSite(folder, clock=loop)
        site.database._thread = _AtOnce(1)
        await site.open()
        site.put("a.txt", "one")
        failing.left = times
        await site.create("j")
        while True:
            await asyncio.sleep(60.0)
            record = await site.record("j")
            if record.status not in GOING:
                await site.close()
                return record

    try:
        return loop.run_until_complete(main()), failing
    finally:
        loop.close()


def test_a_listing_is_tried_again_after_half_a_minute_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, listing = ended_job(tmp_path, monkeypatch, work, "list_objects", AWAY, times=10)
    assert record.status == COMPLETED
    assert listing.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


def test_a_store_that_is_away_for_a_day_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, listing = ended_job(tmp_path, monkeypatch, work, "list_objects", AWAY, times=10_000)
    assert (record.status, record.failure_reason) == (FAILED, "the store is away.")
    assert max(listing.pauses) == 30.0
    assert DAY_S <= listing.called[-1] - listing.called[0] < DAY_S + 30.0


def test_another_failure_of_a_listing_gets_five_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = NotNowError("too-busy", "come back later")
    record, listing = ended_job(tmp_path, monkeypatch, work, "list_objects", error, times=10_000)
    assert (record.status, record.failure_reason) == (FAILED, "come back later.")
    assert listing.pauses == [2.0, 4.0, 8.0, 16.0]


def test_a_record_that_can_not_be_written_is_tried_again_after_half_a_minute_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = NotNowError("database-unreachable", "the database is away")
    record, writing = ended_job(tmp_path, monkeypatch, transactions, "add_spans", error, times=9)
    assert record.status == COMPLETED
    assert writing.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
