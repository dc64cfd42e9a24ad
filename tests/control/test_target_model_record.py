"""What outlives the hosts of target models: on SQLite and PostgreSQL, and over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.kit import databases

from penstock.clock import SystemClock
from penstock.control.store import target_model_record as record
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.control.store.target_model_record import (
    CRASHES_MAX,
    CrashRecord,
    TargetModelRecord,
    take_notes,
)
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.instance.models.work_note import WorkNote
from penstock.wire.work_note import NotedModel

pytestmark = pytest.mark.usefixtures("on_each_database")


A, B = ("a.tar.gz", "s1"), ("b.tar.gz", "s2")


class LateClock(SystemClock):
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall(self) -> float:
        return self.now


def test_pins_are_an_endpoints_own_and_found_whatever_the_case_of_its_name(store: Store) -> None:
    record.set_pin(store, "Shop", "b", True)
    record.set_pin(store, "SHOP", "a", True)
    record.set_pin(store, "shop", "a", True)  # once more
    record.set_pin(store, "other", "c", True)
    assert record.pins(store, "shop") == ["a", "b"]
    record.set_pin(store, "shop", "a", False)
    record.set_pin(store, "shop", "never-pinned", False)
    assert record.pins(store, "shop") == ["b"]


def test_crashes_are_kept_with_who_was_at_work_the_last_ones(store: Store) -> None:
    for at in range(CRASHES_MAX + 3):
        record.add_crash(store, "shop", float(at), [A, B])
    record.add_crash(store, "other", 7.0, [A])
    kept = record.crashes(store, "Shop")
    assert [one.at for one in kept] == [float(at) for at in range(3, CRASHES_MAX + 3)]
    assert kept[0] == CrashRecord(3.0, (A, B))
    assert record.crashes(store, "other") == [CrashRecord(7.0, (A,))]


def test_a_model_that_is_cleared_was_at_work_at_no_crash(store: Store) -> None:
    record.add_crash(store, "shop", 1.0, [A])
    record.add_crash(store, "shop", 2.0, [A, B])
    record.clear_model(store, "shop", "a.tar.gz")
    assert record.crashes(store, "shop") == [CrashRecord(2.0, (B,))]


def test_an_endpoint_of_the_same_name_later_on_knows_nothing_of_it(store: Store) -> None:
    spec = DeploymentSpec(endpoint="", generation=0, config_name="c", variants=())
    store.create_endpoint("Shop", spec, arn="arn:aws:sagemaker:us-east-1:1:endpoint/shop", now=1.0)
    record.set_pin(store, "shop", "a", True)
    record.add_crash(store, "shop", 1.0, [A])
    store.begin_delete("shop", now=2.0)
    store.finish_delete("shop")
    assert (
        record.pins(store, "shop"),
        record.crashes(store, "shop"),
    ) == ([], [])


def with_record(
    state_dir: Path, clock: LateClock, use: Callable[[TargetModelRecord], Coroutine[Any, Any, Any]]
) -> Any:
    """One life of a server."""

    async def life() -> Any:
        database = StoreThread(lambda: databases.opened(state_dir))
        await database.open()
        try:
            return await use(TargetModelRecord(database, clock))
        finally:
            await database.close()

    return asyncio.run(life())


def test_who_is_to_blame_is_known_after_a_restart_with_the_content_it_had(tmp_path: Path) -> None:
    clock = LateClock()

    async def crash(record: TargetModelRecord) -> None:
        await record.crashed("shop", [NotedModel(*A)])

    async def told(record: TargetModelRecord) -> list[dict[str, Any]]:
        return await record.quarantined("shop")

    with_record(tmp_path, clock, crash)
    clock.now = 1060.0
    assert with_record(tmp_path, clock, told) == []
    with_record(tmp_path, clock, crash)
    clock.now = 1100.0
    assert with_record(tmp_path, clock, told) == [
        {
            "model": "a.tar.gz",
            "digest": "s1",
            "seconds": 260.0,
            "message": "its instance crashed 2 times while it alone was loading or computing",
        }
    ]


def test_notes_of_an_instance_are_read_once_those_of_others_stay(tmp_path: Path) -> None:
    first, second = WorkNote(tmp_path / "i-1.1"), WorkNote(tmp_path / "i-1.2")
    other = WorkNote(tmp_path / "i-12.1")
    first.mark(NotedModel(*A))
    second.mark(NotedModel(*B))
    other.mark(NotedModel("c", ""))
    assert take_notes(tmp_path, "i-1") == [NotedModel(*A), NotedModel(*B)]
    assert take_notes(tmp_path, "i-1") == []
    assert take_notes(tmp_path, "i-12") == [NotedModel("c", "")]
