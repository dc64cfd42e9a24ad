"""Instances that follow the copies on them, all real: they come, are consolidated, and go idle.

The endpoint is recorded with a cooldown of a moment, where SageMaker's shortest is five minutes.
Traffic never pauses, and no request of it may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from tests.kit import model_files
from tests.kit.live_plane import LivePlane

from penstock.control.store.components import ComponentChange, NewComponent
from penstock.control.store.store import Store
from penstock.core.deployment.capacity_spec import BINPACK, ComponentRevision, CopySpec
from penstock.core.deployment.deployment import (
    CONSOLIDATION,
    ManagedScaling,
    ModelSource,
    VariantSpec,
)
from penstock.core.resources import ComputeResources
from penstock.errors import PenstockError

#: Two of them fit on an instance of `ml.local.small`.
HALF = CopySpec(resources=ComputeResources(memory_bytes=400 * 2**20, cores=0.25))
MODEL = """
def model_fn(model_dir): return None
def predict_fn(data, model): return data
"""


class ManagedSite(LivePlane):
    """An endpoint whose instances are managed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._model = model_files.code(folder / "model", MODEL)

    async def create(self, managed: ManagedScaling) -> None:
        await self.create_shop(
            VariantSpec(
                name="all", model=None, instance_type="ml.local.small", instance_count=1,
                managed=managed,
            )
        )  # fmt: skip

    async def component(self, name: str, copies: int) -> None:
        model = ModelSource(model_name=name, uri=self._model.as_uri())
        revision = ComponentRevision(number=1, model=model, need=HALF, strategy=BINPACK)
        wanted = NewComponent(
            endpoint="shop", variant="all", copies=copies, revision=revision, request={}
        )
        await self.change(Store.create_component, name, wanted, arn=name, now=2.0)
        await self.settled(name, copies)

    async def set_copies(self, name: str, copies: int) -> None:
        change = ComponentChange(copies=copies)
        await self.change(Store.update_component, name, change, now=3.0)
        await self.settled(name, copies)

    async def settled(self, name: str, copies: int) -> None:
        await self.until(lambda: self.plane.copy_counts("shop").get(name) == copies)

        async def in_service() -> bool:
            record = await self.plane.database.call(Store.describe_component, name)
            assert record.desired.status != "Failed", record.failure_reason
            return record.desired.status == "InService"

        await self.until(in_service)

    def instances(self) -> Counter[int]:
        """How many instances there are with so many copies."""
        return Counter(len(one.copies) for one in self.plane.instances("shop"))


@contextlib.asynccontextmanager
async def traffic(site: ManagedSite, component: str) -> AsyncIterator[Counter[str]]:
    """Three callers that never pause; every answer is the one to its question."""
    counts: Counter[str] = Counter()

    async def call(caller: int) -> None:
        while True:
            counts["asked"] += 1
            try:
                assert await site.ask([caller, counts["asked"]], component=component) is not None
            except PenstockError as error:
                counts[error.code] += 1
                return
            counts["answered"] += 1

    tasks = [asyncio.create_task(call(caller)) for caller in range(3)]
    try:
        yield counts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_instances_come_with_copies_are_consolidated_without_loss_and_go_when_idle(
    tmp_path: Path,
) -> None:
    managed = ManagedScaling(
        instances_min=0, instances_max=3, strategy=CONSOLIDATION, step_max=1, cooldown_s=0.5
    )
    async with ManagedSite(tmp_path).up() as site:
        await site.create(managed)
        await site.component("x", 2)
        await site.component("y", 2)
        await site.until(lambda: site.instances() == Counter({2: 2}))
        async with traffic(site, "x") as x, traffic(site, "y") as y:
            # One copy of each is left: they go together, and one instance is enough.
            await site.set_copies("x", 1)
            await site.set_copies("y", 1)
            await site.until(lambda: site.instances() == Counter({2: 1}))
            low = x["answered"], y["answered"]
            await site.until(lambda: x["answered"] > low[0] + 20 and y["answered"] > low[1] + 20)
            assert set(x) == set(y) == {"asked", "answered"}
        await site.set_copies("x", 0)
        await site.set_copies("y", 0)
        await site.until(lambda: site.instances() == Counter())
        told = [(one.what, one.reason) for one in site.plane.activities("shop")]
        assert ("stop instance", "idle-release") in told
        # And out again, from none.
        await site.set_copies("x", 1)
        assert await site.ask([7], component="x") == [7]
