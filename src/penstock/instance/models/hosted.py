"""Makes a host of target models, and is to the server what a loaded model is."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from typing import Any

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.clock import Clock
from penstock.core.models.builds import BuildChoice
from penstock.core.models.memory_need import MemoryNeed
from penstock.core.models.proof import Proof
from penstock.instance.batcher_driver import CallAt
from penstock.instance.copy import Elsewhere
from penstock.instance.loading.call import LoadCall
from penstock.instance.models.host import ModelHost, OnEvent
from penstock.instance.models.keep_warm import KeepWarmDriver, schedules_of
from penstock.instance.models.loader import Loader
from penstock.instance.models.settings import residency_spec
from penstock.instance.models.shared import SharedProcesses
from penstock.instance.models.watch import OnCounts
from penstock.instance.models.work_note import WorkNote
from penstock.instance.settings import InstanceSettings

_LOG = logging.getLogger(__name__)

#: Requests that a host takes at once, those that wait for a load included; each has a body.
OUTSTANDING_MAX = 4096
#: More than wait for models that are loaded: each of these has a queue with bounds of its own.
_LANES = 1024


def prefix_of(call: LoadCall, settings: InstanceSettings) -> ModelPrefix:
    """Raises CallerError for a URI that is no prefix."""
    source = call.source
    return ModelPrefix(
        source.uri,
        settings.artifact,
        {**source.environment, **call.environment},
        image=source.image,
        compressed=source.compressed,
        seconds_max=call.download_timeout_s,
    )


async def prepared_host(call: LoadCall, settings: InstanceSettings) -> MemoryNeed:
    """What a host will take; it fills its budget. Raises what looking at its prefix raises."""
    await asyncio.to_thread(prefix_of(call, settings).list, limit=1)
    return MemoryNeed(memory_bytes=residency_spec(bounded(call)).budget.host_bytes)


def bounded(call: LoadCall) -> LoadCall:
    """An instance without a limit has the machine's."""
    if call.memory_bytes_max:
        return call
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return dataclasses.replace(call, memory_bytes_max=machine_bytes)


class HostedModels:
    """A host that runs, as `Loaded` is a model that runs."""

    proof: Proof | None = None
    build: BuildChoice | None = None
    digest = ""

    def __init__(
        self,
        call: LoadCall,
        settings: InstanceSettings,
        *,
        clock: Clock,
        call_at: CallAt,
        elsewhere: Elsewhere,
        on_event: OnEvent,
        on_counts: OnCounts,
    ) -> None:
        """Raises CallerError for settings that can't be."""
        call = bounded(call)
        prefix = prefix_of(call, settings)
        schedules = schedules_of({**call.source.environment, **call.environment})
        for model in (model for schedule in schedules for model in schedule.models):
            prefix.resolve(model)
        spec = residency_spec(call)
        self._note = WorkNote(
            settings.work_dir / f"{settings.instance_id}.{call.copy}" if settings.work_dir else None
        )
        shared = SharedProcesses(
            settings.cache_dir / "views",
            cores=call.cores,
            budget=spec.budget,
            make_room=self._make_room,
            log=lambda line: _LOG.info("[%s/%s copy %d] %s", call.endpoint, call.variant,
                                       call.copy, line),
            clock=clock,
        )  # fmt: skip
        self.host: ModelHost = ModelHost(
            call.copy,
            spec,
            prefix,
            Loader(call, settings, prefix, clock, shared),
            shared,
            clock=clock,
            call_at=call_at,
            elsewhere=elsewhere,
            on_event=on_event,
            on_counts=on_counts,
            note=self._note,
        )
        for one in (call.multi_model or {}).get("quarantined", ()):
            self.host.quarantined(
                str(one["model"]), str(one["digest"]), float(one["seconds"]), str(one["message"])
            )
        self._keep_warm = KeepWarmDriver(schedules, self.host, clock=clock, call_at=call_at)
        self.runtime = self
        self.described: dict[str, Any] = {
            "task": "multi-model",
            "multi_model": True,
            "lanes": _LANES,
            "outstanding_max": OUTSTANDING_MAX,
            "inputs": [],
            "outputs": [],
            "batching": {},
        }

    async def _make_room(self, name: str) -> bool:
        return await self.host.make_room(name)

    def pids(self) -> list[int]:
        return self.host.pids()

    def kill(self) -> None:
        self._note.close()
        self.host.kill_workers()

    async def explain(self) -> dict[str, Any]:
        return self._keep_warm.snapshot()

    async def close(self) -> None:
        self._keep_warm.close()
        await self.host.end()
        self._note.close()
