"""What the models of an instance need, take and took: measured here, told to whoever places."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from penstock.core.models.memory_need import MemoryEstimate, MemoryObserved, need_of
from penstock.instance.loading.load import Prepared
from penstock.instance.memory import facts
from penstock.instance.memory.facts import facts_of
from penstock.instance.memory.use import MemoryUse

#: While a model is loaded: the height of it may last no longer.
_LOOK_LOADING_S = 0.1
#: Growth that is worth a new record.
_WORTH_A_RECORD = 1.05


class MemoryAccount:
    """One instance's. The record is of its only copy: of several none could be told apart."""

    def __init__(self, use: MemoryUse, cache_dir: Path) -> None:
        self._use = use
        self._cache_dir = cache_dir
        self._record: Path | None = None
        self._loads = 0
        self._load_bytes_max = 0
        self._written: MemoryObserved | None = None
        self._writing: asyncio.Task[None] | None = None  #: the last one

    def need(self, model: Prepared) -> MemoryEstimate:
        """Before it is loaded. Blocks, on a few files' names and sizes."""
        seen = facts.read(self._path(model))
        return need_of(facts_of(model.context), seen)

    @contextlib.asynccontextmanager
    async def loading(self, model: Prepared) -> AsyncIterator[None]:
        """Around a load: looks for its height, then for what stays."""
        self._loads += 1
        self._use.begin()
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
        self._load_bytes_max = max(self._use.look(), self._use.model_bytes_max)
        self._use.begin()
        self._record = self._path(model) if self._loads == 1 else None
        self._written = None

    @contextlib.asynccontextmanager
    async def adapting(self) -> AsyncIterator[None]:
        """Around the load of an adapter: from now on the instance has more than its model."""
        self._record = None
        try:
            yield
        finally:
            self._use.begin()

    def note(self, *, ran: bool) -> None:
        """Looks, and keeps a record of it for the next time the model is loaded; nobody waits for
        the disk."""
        self._use.look()
        seen = MemoryObserved(
            load_bytes_max=self._load_bytes_max,
            own_bytes_max=self._use.model_bytes_max,
            ran=ran,
        )
        if self._record is not None and self._is_news(seen):
            self._written = seen
            work = asyncio.to_thread(facts.write, self._record, seen)
            self._writing = asyncio.create_task(work)

    async def written(self) -> None:
        """Waits until the last record is on disk."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def measured(self) -> dict[str, int]:
        """For replies: what the instance takes now, and the most since its last load."""
        return {"own_bytes": self._use.own_bytes, "own_bytes_max": self._use.model_bytes_max}

    def _is_news(self, seen: MemoryObserved) -> bool:
        """A copy that has not run yet has nothing to teach one that had."""
        known = self._written
        if known is None:
            before = facts.read(self._record) if self._record and not seen.ran else None
            return before is None or not before.ran
        return (seen.ran and not known.ran) or (
            seen.own_bytes_max > _WORTH_A_RECORD * known.own_bytes_max
        )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_LOADING_S)
            self._use.look()

    def _path(self, model: Prepared) -> Path:
        return facts.record_path(self._cache_dir, model.digest, model.context)
