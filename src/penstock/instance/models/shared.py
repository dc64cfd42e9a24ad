"""Processes that the target models of a host share: workers of Python models, and one foreign
server.

Each starts with the first model that needs it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.core.residency import Footprint
from penstock.core.residency.worker_sharing import SharingSpec
from penstock.instance.loading.load import Prepared
from penstock.instance.models.memory import footprints
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext
from penstock.runtimes.foreign.multi_model import ForeignHost, MakeRoom
from penstock.runtimes.python.shared.pool import WorkerPool

#: The part of the host's budget that one worker of Python models may take: a worker that leaks is
#: found before it has taken the memory of all models.
_WORKER_SHARE = 0.5


class SharedProcesses:
    def __init__(
        self,
        folder: Path,
        *,
        cores: float,
        budget: Footprint,
        make_room: MakeRoom,
        log: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """`folder`: where models' files are shown to them, best beside the artifacts."""
        self._folder = folder
        self._cores = cores
        self._budget = budget
        self._make_room = make_room
        self._log = log
        self._clock = clock
        self._workers: WorkerPool | None = None
        self._server: ForeignHost | None = None
        self._starting = asyncio.Lock()

    async def started(self, context: LoadContext) -> None:
        """Starts the shared processes that the model needs. Raises the errors of starting them."""
        shared = registry.record(context.description.runtime).shared
        if shared == "workers" and self._workers is None:
            self._workers = WorkerPool(
                folder=self._folder,
                spec=SharingSpec(workers_max=max(1, int(self._cores))),
                worker_bytes_max=int(_WORKER_SHARE * self._budget.host_bytes),
                log=self._log,
            )
        if shared == "server":
            async with self._starting:
                if self._server is not None and self._server.given_up:
                    await self._server.close()
                    self._server = None
                if self._server is None:
                    host = ForeignHost(
                        context,
                        folder=self._folder,
                        make_room=self._make_room,
                        clock=self._clock,
                    )
                    self._server = await host.begin()

    def told(self, model: Prepared) -> Prepared:
        """The model, with the shared processes in its context."""
        context = dataclasses.replace(
            model.context, shared_workers=self._workers, shared_server=self._server
        )
        return dataclasses.replace(model, context=context)

    def shares(self, context: LoadContext) -> bool:
        """Whether the model's processes serve other models as well."""
        shared = registry.record(context.description.runtime).shared
        if shared == "workers":
            return self._workers is not None and self._workers.may_share(context)
        return shared == "server"

    async def alone(self) -> Mapping[str, Footprint]:
        """Model -> memory, for those that have a shared worker for themselves now."""
        if self._workers is None:
            return {}
        pids = {
            worker.models[0]: [worker.pid]
            for worker in await self._workers.memory()
            if len(worker.models) == 1
        }
        return await asyncio.to_thread(footprints, pids)

    def pids(self) -> list[int]:
        pids: list[int] = list(self._workers.pids) if self._workers is not None else []
        return pids + (list(self._server.pids) if self._server is not None else [])

    def explain(self) -> dict[str, Any]:
        return self._workers.explain() if self._workers is not None else {}

    def kill(self) -> None:
        for each in (self._workers, self._server):
            if each is not None:
                each.kill()

    async def close(self) -> None:
        for each in (self._workers, self._server):
            if each is not None:
                await each.close()
