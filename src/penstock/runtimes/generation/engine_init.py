"""The settings and the environment that an engine process starts with."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import EngineOptions
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext
from penstock.runtimes.environment import for_models
from penstock.runtimes.record import Interface

#: Default size of the cache: a part of the instance's memory, and at most this.
CACHE_BYTES_MAX = 4 << 30
_CACHE_SHARE = 4  #: divisor: a fourth of the memory


def init_message(context: LoadContext) -> dict[str, Any]:
    description = context.description
    options = description.engine or EngineOptions()
    return {
        "engine": description.runtime,
        "loader": registry.record(description.runtime).loaders[Interface.ENGINE],
        "model_dir": str(context.model_dir),
        "python": options.python,
        "settings": dataclasses.asdict(options)
        | {
            "cache_bytes": cache_bytes(context),
            "precision": description.precision,
            "threads": description.threads_per_lane or max(1, int(context.cores)),
            "accelerators": context.accelerators,
        },
    }


def cache_bytes(context: LoadContext) -> int:
    """Bytes for keys and values: the model's setting, else a part of the instance's memory."""
    options = context.description.engine or EngineOptions()
    if options.cache_bytes:
        return options.cache_bytes
    whole = context.memory_bytes_max or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(CACHE_BYTES_MAX, whole // _CACHE_SHARE)


def engine_environment(context: LoadContext, scratch: Path) -> dict[str, str]:
    """The server's variables that models may see, then the model's own.

    HOME stays as it is: engines keep compiled code there.
    """
    threads = context.description.threads_per_lane or max(1, int(context.cores))
    return {
        **for_models(),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # files that are not in the artifact must not be downloaded
        **context.variables,
        "PYTHONPATH": "",  # the engine's interpreter may be another than ours
    }
