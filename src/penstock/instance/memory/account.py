"""Memory of an instance's models: estimated, measured, and reported to placement."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from penstock.core.models.memory_need import MemoryEstimate, MemoryObserved, need_of
from penstock.instance.loading.load import Prepared
from penstock.instance.memory import facts
from penstock.instance.memory.facts import facts_of_all
from penstock.instance.memory.use import MemoryUse

#: Time between measurements during a load; a shorter peak may be missed.
_LOOK_LOADING_S = 0.1
#: Growth that is worth a new record (1.05: by 5 %).
_WORTH_A_RECORD = 1.05


class MemoryAccount:
    """The account of one instance. A record is kept only for a single copy: several can't be told
    apart."""

    def __init__(self, use: MemoryUse, cache_dir: Path) -> None:
        self._use = use
        self._cache_dir = cache_dir
        self._record: Path | None = None
        self._loads = 0
        self._load_bytes_max = 0
        self._written: MemoryObserved | None = None
        self._writing: asyncio.Task[None] | None = None  #: the last write of a record

    def need(self, model: Prepared) -> MemoryEstimate:
        """The estimate before a model is loaded. Blocks, to read the names and sizes of a few
        files."""
        seen = facts.read(self._path(model))
        return need_of(facts_of_all([each.context for each in model.containers or (model,)]), seen)

    @contextlib.asynccontextmanager
    async def loading(self, model: Prepared) -> AsyncIterator[None]:
        """Use around a load: measures its peak, then its lasting memory."""
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
        """Use around the load of an adapter: from then on the instance has more than its model."""
        self._record = None
        try:
            yield
        finally:
            self._use.begin()

    def note(self, *, ran: bool) -> None:
        """Measures, and keeps a record for the next time that the model is loaded; nobody waits for
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
        """For replies: the instance's memory now, and its peak since the last load."""
        return {"own_bytes": self._use.own_bytes, "own_bytes_max": self._use.model_bytes_max}

    def _is_news(self, seen: MemoryObserved) -> bool:
        """Whether it is worth a record: a copy that has not run yet tells less than one that
        has."""
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
