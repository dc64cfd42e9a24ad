"""LoRA adapters on the copies of an instance: fetched, loaded into their bases' engines, served.

`engines.adapters` has the copy of an adapter that callers see; `loading` has its artifact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping
from typing import Any, cast

from penstock.clock import Clock
from penstock.errors import CallerError
from penstock.instance.copy import Copy
from penstock.instance.engines.adapters import AdapterCopy
from penstock.instance.engines.sequences import Sequences
from penstock.instance.loading.adapter import (
    LoadedAdapter,
    PreparedAdapter,
    engine_of,
    prepared_adapter,
)
from penstock.instance.loading.call import LoadCall
from penstock.instance.loading.loaded import Loaded
from penstock.instance.memory.account import MemoryAccount
from penstock.instance.settings import InstanceSettings


class Adapters:
    """The adapters of one instance; it knows nothing of the instance but `copies` and `loaded`."""

    def __init__(
        self,
        settings: InstanceSettings,
        memory: MemoryAccount,
        copies: MutableMapping[int, Any],
        loaded: MutableMapping[int, Any],
        *,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._copies = copies
        self._loaded = loaded
        self._clock = clock
        self._prepared: dict[int, PreparedAdapter] = {}

    async def prepare(self, wanted: LoadCall) -> dict[str, Any]:
        """Fetches and checks an adapter. Raises a PenstockError that names file, cause and
        remedy."""
        found = await prepared_adapter(wanted, self._settings, self._base_of(wanted)[1])
        self._prepared[wanted.copy] = found
        return {"digest": found.digest, "need": dataclasses.asdict(found.need)}

    def forget(self, number: int) -> None:
        """Drops an adapter that was only prepared."""
        self._prepared.pop(number, None)

    async def load(self, wanted: LoadCall) -> dict[str, Any]:
        """Loads an adapter into its base's engine; requests may name it once this returns. Raises a
        PenstockError; the base then goes on."""
        number, started = wanted.copy, self._clock.monotonic()
        base, loaded = self._base_of(wanted)
        runtime = engine_of(loaded)
        found = self._prepared.pop(number, None)
        if found is None:
            found = await prepared_adapter(wanted, self._settings, loaded)
        copy = AdapterCopy(number, base, cast(Sequences, loaded.work))
        async with self._memory.adapting():
            await runtime.add_adapter(copy.key, found.files)
        if self._copies.get(wanted.base_copy) is not base:
            raise CallerError("unknown-copy", f"copy {wanted.base_copy}, its base, is gone")
        adapter = LoadedAdapter(runtime, copy.key, found)
        self._copies[number] = copy
        self._loaded[number] = adapter
        return {
            "description": loaded.described | {"adapter": adapter.told},
            "digest": found.digest,
            "load_s": self._clock.monotonic() - started,
            "memory_bytes": 0,
        }

    def on(self, base: int) -> list[int]:
        """The adapters on a copy."""
        return [
            number
            for number, copy in self._copies.items()
            if isinstance(copy, AdapterCopy) and copy.base.number == base
        ]

    def end_with(self, base: int) -> None:
        """Ends the adapters of a base copy that is unloaded."""
        for number in self.on(base):
            self._copies.pop(number).close()
            self._loaded.pop(number, None)

    def _base_of(self, wanted: LoadCall) -> tuple[Copy, Loaded]:
        base, loaded = self._copies.get(wanted.base_copy), self._loaded.get(wanted.base_copy)
        if not isinstance(base, Copy) or not isinstance(loaded, Loaded):
            raise CallerError("unknown-copy", f"copy {wanted.base_copy} is no base for an adapter")
        return base, loaded
