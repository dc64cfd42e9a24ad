"""Many copies on one instance: a real instance process loads, drains and unloads them one by one.

What the copies below share is what inference components stand on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit import databases, model_files
from tests.kit.control_plane import SPEC, Gateway
from tests.kit.instances import FrameClient
from tests.kit.polling import until

from penstock.clock import SystemClock
from penstock.control.instances.entries import CopyEntry, InstanceEntry, placed
from penstock.control.instances.instance_operations import Operations
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.instances.room import Room
from penstock.control.instances.under_way import OperationSettings
from penstock.control.reconcile.views import instance_view
from penstock.control.store.store_thread import StoreThread
from penstock.control.store.target_model_record import TargetModelRecord
from penstock.core.deployment.capacity_spec import ComponentCopiesSpec, CopySpec
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import IN_SERVICE, EndpointSpec, SlotFailure
from penstock.core.models.memory_need import MemoryEstimate
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType
from penstock.fleet.local import LocalFleet, runtime_dir_for
from penstock.wire import frames

pytestmark = pytest.mark.usefixtures("on_each_database")


MIB = 2**20
KIND = InstanceType(
    name="ml.local.small", resources=ComputeResources(cores=2.0, memory_bytes=2**30)
)


async def no_images(*given: object) -> None:
    raise AssertionError(f"no model here has an image: {given}")


class CopiesServer:
    """The operations of one server, on one instance of one endpoint."""

    def __init__(self, folder: Path) -> None:
        self.ledger = EndpointLedger(EndpointSpec(endpoint="shop", status=IN_SERVICE), SPEC)
        self.gateway = Gateway()
        self.operations = Operations(
            fleet=LocalFleet(runtime_dir_for(folder / "s")),
            publisher=self.gateway,
            clock=SystemClock(),
            settings=OperationSettings(
                log_dir=folder / "logs",
                cache_dir=folder / "cache",
                work_dir=folder / "work",
                instance_settings={},
            ),
            spec=SPEC,
            changed=lambda endpoint: None,
            room=Room(
                ComputeResources(cores=2.0, memory_bytes=8 * 2**30), self.ledger.held, lambda: None
            ),
            room_changed=lambda: None,
            record=TargetModelRecord(
                StoreThread(lambda: databases.opened(folder / "db")), SystemClock()
            ),
            keep_images=no_images,
        )
        self.instance = InstanceEntry(
            instance_id="shop-blue",
            variant="blue",
            generation=1,
            ordinal=0,
            kind=KIND,
            phase="starting",
            since=None,
        )

    def load(self, number: int, name: str, model: Path) -> CopyEntry:
        copy = self.entry(number, name, model)
        self.operations.copies.load(self.ledger, self.instance, copy)
        return copy

    @staticmethod
    def entry(number: int, name: str, model: Path) -> CopyEntry:
        return CopyEntry(
            copy=number,
            instance_id="shop-blue",
            variant="blue",
            generation=1,
            component=ComponentCopiesSpec(
                name=name,
                model=ModelSource(model_name=name, uri=model.as_uri()),
                copies=1,
                need=CopySpec(resources=ComputeResources(memory_bytes=100 * MIB, cores=1.0)),
                download_timeout_s=60.0,
                startup_timeout_s=60.0,
            ),
            ordinal=0,
            phase="loading",
            since=None,
        )

    async def reach(self, one: InstanceEntry | CopyEntry, phase: str) -> None:
        await self.until(lambda: one.phase == phase)

    async def until(self, condition: Callable[[], bool]) -> None:
        async def there() -> bool:
            return condition()

        await until(there, lambda: f"{self.ledger.activities} {self.ledger.copies}")

    async def ask(self, copy: int) -> object:
        """A request to a copy, on a connection of its own: the data plane's."""
        path = self.instance.address.removeprefix("unix:")
        return await asyncio.to_thread(_ask, path, copy)

    def told(self) -> list[tuple[str, str]]:
        return [(one.what, one.reason) for one in self.ledger.activities]


def _ask(path: str, copy: int) -> object:
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    client = FrameClient(path)
    try:
        answer = client.invoke(
            copy, json.dumps({"inputs": [tensor]}).encode(), content_type="application/json"
        )
        if answer.kind == frames.RETURNED:
            return answer.reason
        return answer.json["outputs"][0]["data"]
    finally:
        client.close()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[CopiesServer]:
    server = CopiesServer(folder)
    server.operations.instances.start(server.ledger, server.instance)
    try:
        await server.reach(server.instance, "running")
        yield server
    finally:
        await server.operations.close()


async def test_one_of_two_copies_is_drained_and_unloaded_and_the_other_serves_on(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as server:
        first = server.load(1, "affine", model_files.affine(tmp_path / "affine"))
        second = server.load(2, "sums", model_files.row_sums(tmp_path / "sums"))
        await server.reach(first, "ready")
        await server.reach(second, "ready")
        assert (await server.ask(1), await server.ask(2)) == ([30.0, 35.0, 40.0], [10.0])
        view = instance_view(server.instance, server.ledger.copies_on("shop-blue"), tmp_path)
        assert (view.phase, view.states) == ("running", ("ready", "ready"))
        assert first.need_bytes
        assert second.need_bytes
        both = placed(server.instance, [first, second]).expected_bytes

        server.operations.copies.drain(server.ledger, first)
        await server.reach(first, "drained")
        assert server.gateway.story == ["drain [1]"]
        server.operations.copies.unload(server.ledger, first)
        assert first.phase == "unloading"
        await server.until(lambda: list(server.ledger.copies) == [2])
        assert (second.phase, server.instance.phase) == ("ready", "running")
        assert await server.ask(2) == [10.0]
        assert isinstance(await server.ask(1), str)  # given back: it is not here any more
        client = server.operations.client("shop-blue")
        assert client is not None
        status = await client.status(timeout_s=10.0)
        assert [one["copy"] for one in status["copies"]] == [2]
        assert placed(server.instance, [second]).expected_bytes < both
        assert server.told()[-1] == ("copy unloaded", "unload-done")

        # Its place can be taken again.
        third = server.load(3, "affine", tmp_path / "affine")
        await server.reach(third, "ready")
        assert await server.ask(3) == [30.0, 35.0, 40.0]


async def test_a_copy_that_shares_its_instance_fails_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        good = server.load(1, "affine", model_files.affine(tmp_path / "affine"))
        broken = model_files.affine(tmp_path / "broken")
        (broken / "model.onnx").write_bytes((broken / "model.onnx").read_bytes()[:40])
        bad = server.load(2, "broken", broken)
        await server.until(lambda: list(server.ledger.copies) == [1])
        await server.reach(good, "ready")
        assert bad.phase == "unloading"
        assert server.instance.phase == "running"
        assert await server.ask(1) == [30.0, 35.0, 40.0]
        (failure,) = server.ledger.observed().failures
        assert isinstance(failure, SlotFailure)
        assert (failure.component, failure.ordinal, failure.permanent) == ("broken", 0, True)
        assert failure.message.startswith("Model broken of variant blue could not be loaded: ")


async def test_a_copy_can_be_taken_away_while_it_is_being_loaded(tmp_path: Path) -> None:
    """The instance was told to load it: it is unloaded when that has come to its end."""
    async with running(tmp_path) as server:
        copy = server.load(1, "affine", model_files.affine(tmp_path / "affine"))
        await server.until(lambda: copy.asked)
        server.operations.copies.unload(server.ledger, copy)
        await server.until(lambda: not server.ledger.copies)
        client = server.operations.client("shop-blue")
        assert client is not None
        status = await client.status(timeout_s=10.0)
        assert (status["copies"], status["loading"]) == ([], [])
        assert server.ledger.observed().failures == ()
        assert server.instance.phase == "running"


async def test_a_copy_beside_another_is_refused_at_once_where_nothing_else_will_give_room(
    tmp_path: Path,
) -> None:
    """What is being loaded may keep less than it was granted: not the copy itself that asks."""
    server = CopiesServer(tmp_path)
    ready, asks = (server.entry(number, "affine", tmp_path) for number in (1, 2))
    ready.phase, ready.need_bytes, ready.ready_since = "ready", 300 * MIB, 0.0
    server.ledger.instances["shop-blue"] = server.instance
    server.ledger.copies = {1: ready, 2: asks}
    told: list[str] = []

    async def measure() -> None:
        told.append("measured")

    room = Room(
        ComputeResources(cores=2.0, memory_bytes=8 * 2**30),
        server.ledger.held,
        lambda: 1000 * MIB,
    )
    for need_mib, outcome in ((600, "no-room"), (300, "placed")):
        decision = await room.for_load(
            server.instance,
            asks,
            MemoryEstimate(memory_bytes=need_mib * MIB),
            measure=measure,
            waits=lambda decision: told.append(decision.reason),
        )
        assert decision.outcome == outcome
    assert told == ["measured"]


async def test_a_copys_word_is_about_that_copy_only(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        first = server.load(1, "affine", model_files.affine(tmp_path / "affine"))
        second = server.load(2, "sums", model_files.row_sums(tmp_path / "sums"))
        await server.reach(first, "ready")
        await server.reach(second, "ready")
        heard = server.operations.copies.on_event
        heard("shop-blue", {"event": "copy-lost", "copy": 2})
        assert (first.phase, second.phase) == ("ready", "lost")
        heard("shop-blue", {"event": "copy-ready", "copy": 2})
        assert (first.phase, second.phase) == ("ready", "ready")
        heard("shop-blue", {"event": "copy-failed", "copy": 2, "error": {"message": "why"}})
        await server.until(lambda: list(server.ledger.copies) == [1])
        assert (first.phase, server.instance.phase) == ("ready", "running")
        assert ("copy failed", "copy-failed") in server.told()
