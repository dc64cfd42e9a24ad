"""Once a second: samples, publishes what is due, and now and then writes history to disk.

What is known of copies and instances comes from whoever reconciles them, through a function given
at construction; metrics never ask the data plane to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.metrics.instances import InstanceSample
from penstock.metrics.registry import MetricRegistry
from penstock.metrics.snapshot import Snapshot, load
from penstock.metrics.store import MetricStore

_log = logging.getLogger(__name__)

COLLECT_EVERY_S: Final = 1.0
OBSERVE_EVERY_S: Final = 10.0  #: utilization is a CloudWatch metric of 10 s
SAVE_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantObserved:
    """Copies and instances of one variant at a moment."""

    endpoint: str
    variant: str
    copies: dict[str, int]  #: state -> copies


class Observed(Protocol):
    """Whoever reconciles: what copies there are, and what their instances use."""

    def variants(self) -> Sequence[VariantObserved]: ...

    async def samples(self) -> Sequence[InstanceSample]: ...


class MetricsDriver:
    """Drives one registry and its store."""

    def __init__(
        self,
        registry: MetricRegistry,
        store: MetricStore,
        clock: Clock,
        observed: Observed,
        path: Path,
    ) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        self._observed = observed
        self._path = path
        self._known: set[tuple[str, str]] = set()
        self._instances: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Loads history; a file that can't be read costs the history, not the start."""
        try:
            load(self._path, self._store, now=self._clock.wall())
        except PenstockError as error:
            _log.warning("%s %s", error.message, error.hint)
        self._task = asyncio.create_task(self._run(), name="metrics")

    async def stop(self) -> None:
        """Collects and writes a last time. Idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        self._registry.collect(self._clock.wall())
        await self._save()

    async def _run(self) -> None:
        observe_at = save_at = self._clock.monotonic()
        save_at += SAVE_EVERY_S
        while True:
            now = self._clock.monotonic()
            self._counts()
            if now >= observe_at:
                observe_at = now + OBSERVE_EVERY_S
                await self._sample()
            self._registry.collect(self._clock.wall())
            if now >= save_at:
                save_at = now + SAVE_EVERY_S
                await self._save()
            await asyncio.sleep(COLLECT_EVERY_S)

    def _counts(self) -> None:
        """How many copies and instances each variant has; variants that are gone are forgotten."""
        seen = set()
        for one in self._observed.variants():
            seen.add((one.endpoint, one.variant))
            self._registry.set_copies(one.endpoint, one.variant, one.copies)
            ready = one.copies.get("ready", 0)
            self._registry.set_instance_count(one.endpoint, one.variant, max(1, ready))
        for gone in self._known - seen:
            self._registry.remove(*gone)
        self._known = seen

    async def _sample(self) -> None:
        samples = await self._observed.samples()
        for sample in samples:
            self._registry.add_instance_sample(sample, self._clock.wall())
        seen = {sample.instance_id for sample in samples}
        for gone in self._instances - seen:
            self._registry.remove_instance(gone)
        self._instances = seen

    async def _save(self) -> None:
        snapshot = Snapshot.take(self._store)
        try:
            await asyncio.to_thread(snapshot.write, self._path)
        except OSError as error:
            _log.warning("metrics can't be written to %s: %s", self._path, error.strerror)
