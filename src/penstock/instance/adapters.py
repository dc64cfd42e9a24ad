"""LoRA adapters on the copies of an instance: fetched, loaded into their bases' engines, served.

For its callers an adapter is a copy of its own. Its requests go to its base's copy, marked, and
share that copy's queue, slots and engine, so limits of the base hold for all its adapters together.
It counts its own unanswered requests, so that it can drain and end alone. `adapter_files` knows an
adapter's files, and the runtime how its engine loads them.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, cast

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.prepare import obtain
from penstock.clock import Clock
from penstock.core.models.memory_need import MemoryEstimate
from penstock.errors import CallerError, ModelError
from penstock.instance.copy import Copy
from penstock.instance.engines.sequences import Sequences
from penstock.instance.loading.load import LoadCall, brought
from penstock.instance.loading.loaded import Loaded
from penstock.instance.memory.account import MemoryAccount
from penstock.instance.request import Request
from penstock.instance.settings import InstanceSettings
from penstock.runtimes.generation.adapter_base import check_against_weights
from penstock.runtimes.generation.adapter_files import AdapterFiles, read_adapter
from penstock.runtimes.generation.base import adapters_unsupported
from penstock.runtimes.generation.runtime import GenerationRuntime

#: Weights of half the width are converted to whole ones, and joined.
_COPIES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedAdapter:
    """An adapter that is fetched and checked, and not loaded."""

    files: AdapterFiles
    digest: str  #: digest of its artifact in the cache
    need: MemoryEstimate  #: memory beside that of its base


async def prepared_adapter(
    call: LoadCall, settings: InstanceSettings, base: Loaded
) -> PreparedAdapter:
    """Fetches the artifact. Raises a PenstockError that names file, cause and remedy."""
    runtime = engine_of(base)  # checked before a useless download
    cancelled = threading.Event()

    def work() -> PreparedAdapter:
        cache = ArtifactCache(settings.cache_dir / "artifacts")
        entry = obtain(call.source, cache, settings.artifact, cancelled=cancelled)
        files = read_adapter(_top(entry.root))
        check_against_weights(files, runtime.model_dir)
        need = MemoryEstimate(memory_bytes=_COPIES * files.size_bytes + runtime.adapter_bytes)
        return PreparedAdapter(files, entry.digest, need)

    return await brought(call, work, cancelled)


def engine_of(base: Loaded | Any) -> GenerationRuntime:
    """Raises ModelError (`adapters-unsupported`) for a model that has no such engine."""
    runtime = getattr(base, "runtime", None)
    if not isinstance(runtime, GenerationRuntime):
        raise ModelError(
            "adapters-unsupported",
            "the base is no language model of an engine: it takes no adapters",
            hint="Adapters need a base of runtime openvino_genai or vllm.",
        )
    if not runtime.takes_adapters:
        raise adapters_unsupported(*runtime.without_adapters())
    return runtime


def _top(root: Path) -> Path:
    """The folder with the files: archives often contain a folder with them."""
    inside = [path for path in root.iterdir() if not path.name.startswith(".")]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else root


class LoadedAdapter:
    """Like `Loaded`, for the server; it is a part of its base's."""

    proof = None
    build = None

    def __init__(self, runtime: GenerationRuntime, key: str, prepared: PreparedAdapter) -> None:
        self._runtime = runtime
        self._key = key
        self._files = prepared.files

    @property
    def told(self) -> dict[str, Any]:
        """Its description, for reports."""
        return {
            "rank_max": self._files.rank_max,
            "layers": len(self._files.layers),
            "base_model": self._files.base_model,
        }

    async def close(self) -> None:
        if not self._runtime.closed:
            await self._runtime.remove_adapter(self._key)

    def kill(self) -> None:
        """Does nothing: it ends with its base."""

    async def explain(self) -> dict[str, Any]:
        return {}

    def pids(self) -> list[int]:
        return []


class AdapterCopy:
    """A `Copy` for connections and the server, and a `Rider` for its base."""

    def __init__(self, number: int, base: Copy, work: Sequences) -> None:
        """`work`: the base copy's."""
        self.number = number
        #: Unique like copies' numbers, so that no adapter is taken for an earlier one
        self.key = str(number)
        self.base = base
        self.requests = 0  #: requests that were answered
        self.turn: Callable[[float], None] = base.turn
        self._work = work
        self._ending = ""  #: draining | closed
        self._unanswered: dict[Request, None] = {}  #: in order of arrival
        self._on_idle: Callable[[], None] | None = None

    @property
    def state(self) -> str:
        return self._ending or self.base.state

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def accept(self, request: Request, now: float) -> None:
        if self._ending:
            self.base.turn_back(request, "draining")
            return
        request.by = self
        self.base.accept(request, now)

    def cancel(self, request: Request) -> None:
        self.base.cancel(request)

    def pace(self, request: Request, *, waits: bool) -> None:
        self.base.pace(request, waits=waits)

    # Events from the base

    def taken(self, request: Request) -> None:
        self._unanswered[request] = None

    def answered(self, request: Request) -> None:
        self._unanswered.pop(request, None)
        self.requests += 1
        if not self._unanswered and self._on_idle is not None:
            self._on_idle()

    # The end

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Accepts no more requests; calls `on_idle` when all accepted ones are answered (maybe at
        once)."""
        self._ending = "draining"
        self._on_idle = on_idle
        if not self._unanswered:
            on_idle()

    def close(self) -> None:
        """Gives back requests without a token; cancels other answers."""
        self._ending = "closed"
        self._on_idle = None
        self._work.end(list(self._unanswered))

    # Reports

    def status(self) -> dict[str, Any]:
        return {
            "copy": self.number,
            "state": self.state,
            "base_copy": self.base.number,
            "requests": self.requests,
            "unanswered": self.unanswered,
        }

    def explain(self) -> dict[str, Any]:
        return self.status()


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
