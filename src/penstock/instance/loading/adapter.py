"""An adapter's artifact: fetched, checked, and loaded into the engine of its base's copy.

`adapter_files` knows an adapter's files, and the runtime how its engine loads them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.prepare import obtain
from penstock.core.models.memory_need import MemoryEstimate
from penstock.errors import ModelError
from penstock.instance.loading.call import LoadCall
from penstock.instance.loading.load import brought
from penstock.instance.loading.loaded import Loaded
from penstock.instance.settings import InstanceSettings
from penstock.runtimes.generation.adapter_base import check_against_weights
from penstock.runtimes.generation.adapter_files import AdapterFiles, read_adapter
from penstock.runtimes.generation.base import adapters_unsupported
from penstock.runtimes.generation.runtime import GenerationRuntime

#: Weights of half the width are converted to whole ones, and joined.
_COPIES = 4


@dataclass(frozen=True, slots=True)
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
    warms = None

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
