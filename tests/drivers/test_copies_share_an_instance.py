"""Several copies on one instance, each placed, loaded, drained and lost on its own.

All is real: control plane, gateway, fleet, instance and worker processes. Only the spec is made
here, where `core/deployment/capacity_spec.py` makes it out of a deployment, so that requests
need name no component: two copies of the variant's model and one of another share an instance.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.live_plane import LivePlane
from tests.kit.processes import alive

from penstock.control.store.store import Store
from penstock.core.deployment import capacity_spec
from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    CopySpec,
    VariantCapacitySpec,
)
from penstock.core.deployment.deployment import (
    CopyRoute,
    EndpointRoutes,
    ModelSource,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.resources import ComputeResources
from penstock.errors import PenstockError

SHARES = CopySpec(resources=ComputeResources(memory_bytes=64 * 2**20, cores=0.25))

#: Answers with its process. While the file CLOSED exists it can't be loaded.
MODEL = """
import os
def model_fn(model_dir):
    if os.path.exists(os.environ["CLOSED"]):
        raise RuntimeError("closed")
    return os.getpid()
def predict_fn(data, model):
    return {"pid": model, "data": data}
"""
OTHER = """
def model_fn(model_dir): return None
def predict_fn(data, model): return {"other": data}
"""


class SharedInstanceSite(LivePlane):
    """One endpoint: one instance, whose count is that of the copies on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.closed = folder / "closed"
        self._model = model_files.code(folder / "model", MODEL, rows_max=1)
        self._other = model_files.code(folder / "other", OTHER, rows_max=1)

    def desired(self, generation: int, variant: VariantSpec) -> VariantCapacitySpec:
        """In the place of `capacity_spec._single_model`."""
        other = ModelSource(model_name="other", uri=self._other.as_uri())
        return VariantCapacitySpec(
            name=variant.name,
            generation=generation,
            instances=1,
            components=tuple(
                ComponentCopiesSpec(
                    name=name,
                    model=model,
                    copies=copies,
                    need=SHARES,
                    download_timeout_s=60.0,
                    startup_timeout_s=60.0,
                )
                for name, model, copies in (
                    (variant.name, variant.model, variant.instance_count),
                    ("other", other, 1),
                )
            ),
        )

    async def create(self, copies: int) -> None:
        variant = VariantSpec(
            name="blue",
            model=ModelSource(
                model_name="model",
                uri=self._model.as_uri(),
                environment=(("CLOSED", str(self.closed)),),
            ),
            instance_type="ml.local.small",
            instance_count=copies,
        )
        await self.create_shop(variant)

    async def set_count(self, copies: int) -> None:
        change: dict[str, tuple[float | None, int | None]] = {"blue": (None, copies)}
        await self.change(Store.update_weights, "shop", change, now=2.0)

    async def status(self) -> str:
        record = await self.plane.database.call(Store.describe_endpoint, "shop")
        return record.status

    def copies(self) -> dict[int, tuple[str, str]]:
        """Component and phase by number, of all the copies on the only instance."""
        instances = self.plane.instances("shop")
        assert len(instances) <= 1, "copies that share need one instance"
        return {one.copy: (one.component, one.phase) for i in instances for one in i.copies}

    def routed(self) -> list[int]:
        endpoint = self.gateway.table.endpoints.get("shop")
        routes = endpoint.routes.variants if endpoint is not None else ()
        return [copy.copy for variant in routes for copy in variant.copies]

    def healthy(self) -> set[int]:
        return set(self.gateway.table.healthy_copies("shop"))

    def told(self) -> list[str]:
        return [one.what for one in self.plane.activities("shop")]

    async def settled(self, copies: int) -> None:
        """In service, with so many copies of the variant's model that answer, and the other one."""
        wanted = Counter({("blue", "ready"): copies, ("other", "ready"): 1})
        await self.until(
            lambda: Counter(self.copies().values()) == wanted and len(self.healthy()) == copies
        )

        async def in_service() -> bool:
            return await self.status() == "InService"

        await self.until(in_service)

    async def worker(self, copy: int) -> int:
        """The process that runs a copy, as the instance tells it."""
        (instance,) = self.plane.instances("shop")
        status = await self.plane.instance_status(instance.instance_id)
        (found,) = [one for one in status["copies"] if one["copy"] == copy]
        (worker,) = found["workers"]
        pid: int = worker["pid"]
        return pid


class Traffic:
    """Four callers that never pause. Every request must be answered with its own answer."""

    def __init__(self, site: SharedInstanceSite) -> None:
        self.site = site
        self.answers: Counter[int] = Counter()  #: by the process that gave them
        self.failures: list[PenstockError] = []

    async def __aenter__(self) -> Traffic:
        self._tasks = [asyncio.create_task(self._call(caller)) for caller in range(4)]
        await self.more(8)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome

    async def more(self, count: int) -> None:
        """Returns once so many more are answered."""
        wanted = self.answers.total() + count
        await self.site.until(lambda: self.answers.total() >= wanted or bool(self.failures))
        assert self.failures == []

    async def _call(self, caller: int) -> None:
        number = 0
        while True:
            number += 1
            try:
                answer = await self.site.ask([caller, number])
            except PenstockError as error:
                self.failures.append(error)
                return
            assert answer["data"] == [caller, number]
            self.answers[answer["pid"]] += 1


@contextlib.asynccontextmanager
async def running(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SharedInstanceSite]:
    site = SharedInstanceSite(folder)
    monkeypatch.setattr(capacity_spec, "_single_model", site.desired)
    async with site.up():
        yield site


async def test_one_copy_is_unloaded_and_its_neighbours_answer_all_the_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as site:
        await site.create(2)
        await site.settled(2)
        (instance,) = site.plane.instances("shop")
        stays, goes = site.routed()
        async with Traffic(site) as traffic:
            await site.until(lambda: len(traffic.answers) == 2)
            remaining = await site.worker(stays)
            ended = await site.worker(goes)
            await site.set_count(1)
            await site.settled(1)
            assert site.routed() == [stays]
            await traffic.more(20)
            # Given back: the process of the copy is gone, and nothing else.
            await site.until(lambda: not alive(ended))
        assert set(traffic.answers) == {remaining, ended}
        (now,) = site.plane.instances("shop")
        assert (now.instance_id, now.pid) == (instance.instance_id, instance.pid)
        ends = [what for what in site.told() if "drain" in what or "unload" in what]
        assert ends == ["drain copy", "unload copy", "copy unloaded"]
        # Its place can be taken again, on the same instance.
        await site.set_count(2)
        await site.settled(2)
        assert site.plane.instances("shop")[0].pid == instance.pid


async def test_a_copy_that_dies_comes_back_and_one_that_cannot_is_replaced_beside_its_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as site:
        await site.create(2)
        await site.settled(2)
        (instance,) = site.plane.instances("shop")
        well, dies = site.routed()
        neighbour = await site.worker(well)
        async with Traffic(site) as traffic:
            # It dies once: its instance brings it back, the same copy.
            first = await site.worker(dies)
            os.kill(first, signal.SIGKILL)
            await site.until(lambda: "instance says copy-ready" in site.told())
            await site.settled(2)
            assert site.routed() == [well, dies]
            second = await site.worker(dies)
            assert second not in (first, neighbour)
            # It dies and can't be loaded any more: its slot has failed, and nobody else's.
            site.closed.touch()
            os.kill(second, signal.SIGKILL)
            await site.until(lambda: "copy failed" in site.told())
            await site.until(lambda: site.routed() == [well] and site.healthy() == {well})
            await traffic.more(20)
            assert site.copies()[well] == ("blue", "ready")
            assert await site.status() == "InService"
            # What was wrong is mended: a new copy takes its place.
            site.closed.unlink()
            await site.settled(2)
            assert dies not in site.routed()
            (new,) = set(site.routed()) - {well}
            replaced = await site.worker(new)
            await site.until(lambda: replaced in traffic.answers)
            await traffic.more(20)
        assert await site.worker(well) == neighbour
        (now,) = site.plane.instances("shop")
        assert (now.instance_id, now.pid) == (instance.instance_id, instance.pid)
        assert "instance failed" not in site.told()


async def test_a_gateway_reaches_each_model_of_an_instance_over_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routes name copies, so whoever can name a model can be sent to it: here as an endpoint."""
    async with running(tmp_path, monkeypatch) as site:
        await site.create(1)
        await site.settled(1)
        (instance,) = site.plane.instances("shop")
        by_component = {component: copy for copy, (component, _) in site.copies().items()}
        assert site.routed() == [by_component["blue"]]
        route = CopyRoute(
            copy=by_component["other"], instance_id=instance.instance_id, outstanding_max=8
        )
        variant = VariantRoutes(name="v", weight=1.0, strategy="RANDOM", copies=(route,))
        site.gateway.publish(EndpointRoutes(endpoint="other", variants=(variant,)))
        assert await site.ask("x", "other") == {"other": "x"}
        assert (await site.ask("x"))["data"] == "x"
