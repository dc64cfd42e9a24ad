"""The SageMaker front door and its database over HTTP, for commands that are killed.

Both are the real ones. Of the reconciler there is what it writes once copies are ready or gone: an
endpoint is in service, or no longer there, as soon as it was asked for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.http_servers import Reply, SeenRequest, answering
from tests.kit.transform import FakeTransformDriver

from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.operations import OPERATIONS
from penstock.clock import SystemClock
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import SAGEMAKER

ACCOUNT = "123456789012"


class ServedControlPlane:
    """`calls` are the operations in the order in which they were asked for."""

    def __init__(self, state_dir: Path) -> None:
        self.url = ""
        self.calls: list[str] = []
        self.on_call: Callable[[str], None] = lambda operation: None  #: when one was carried out
        self.loop = asyncio.new_event_loop()
        self._clock = SystemClock()
        self._jobs = FakeTransformDriver()
        self._database = StoreThread(lambda: Store(state_dir))
        service = AwsService(SAGEMAKER, OPERATIONS, self._context)
        self._door = AwsFrontDoor((service,), region_default="us-east-1")

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def handle(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        operation = headers["x-amz-target"].rpartition(".")[2]
        http = HttpRequest("POST", "/", "", headers, body)
        answer = await self._door.handle(http, "id")
        if not operation.startswith(("Describe", "List")):
            for name in await self._database.call(Store.unsettled_endpoints):
                await self._settle(name)
        self.calls.append(operation)
        self.on_call(operation)
        return answer.status, answer.body

    def changes(self) -> list[str]:
        """The calls that were no questions."""
        return [call for call in self.calls if not call.startswith(("Describe", "List"))]

    def notify(self, endpoint: str) -> None:
        """The reconciler's doorbell."""

    def pool_counts(self, endpoint: str) -> dict[str, dict[str, int]]:
        return {}

    def kept_counts(self, endpoint: str) -> dict[str, int]:
        return {}

    def last_failure(self, endpoint: str, variant: str) -> str:
        return ""

    def copy_counts(self, endpoint: str) -> dict[str, int]:
        return {}

    def copy_types(self, endpoint: str) -> dict[str, dict[str, int]]:
        return {}

    async def _settle(self, name: str) -> None:
        record = await self._database.call(Store.describe_endpoint, name)
        if record.status == "Deleting":
            await self._database.call(Store.finish_delete, name)
            return
        spec = record.target or record.active
        assert spec is not None
        await self._database.call(
            Store.set_status,
            name,
            "InService",
            now=self._clock.wall(),
            active_generation=spec.generation,
        )

    def _context(self, region: str) -> SagemakerContext:
        return SagemakerContext(self._database, self, self._clock, region, ACCOUNT, self._jobs)


@contextmanager
def control_plane(state_dir: Path) -> Iterator[ServedControlPlane]:
    plane = ServedControlPlane(state_dir)
    thread = threading.Thread(target=plane.loop.run_forever, daemon=True)
    thread.start()

    def run(call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, plane.loop).result(60)

    def answer(seen: SeenRequest) -> Reply:
        status, body = run(plane.handle(seen.headers, seen.body))
        return status, {}, body

    run(plane.open())
    try:
        with answering(answer) as plane.url:
            yield plane
    finally:
        run(plane.close())
        plane.loop.call_soon_threadsafe(plane.loop.stop)
        thread.join(10)
        plane.loop.close()
