"""What models took when they were loaded on this machine, beside the artifacts in the cache.

    <cache>/memory/<key>.json           of an instance with this model alone
    <cache>/memory-beside/<key>.json    of this model beside others

The key is made of all that decides: content, settings, share.

A record is a help, never needed: one that can't be read or written is none. Several instances may
write the same one; each replaces it as a whole.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from penstock.core.models.memory_need import MemorySeen
from penstock.runtimes.base import LoadContext


def record_path(
    cache_dir: Path, digest: str, context: LoadContext, *, folder: str = "memory"
) -> Path:
    """Where the record of this model, served in this way, is kept."""
    facts = (
        digest,
        repr(context.description),
        sorted(context.environment.items()),
        context.cores,
        context.memory_bytes_max,
        context.accelerators,
    )
    key = hashlib.sha256(repr(facts).encode()).hexdigest()
    return cache_dir / folder / f"{key}.json"


def read(path: Path) -> MemorySeen | None:
    try:
        fields = json.loads(path.read_text())
        return MemorySeen(
            load_bytes_max=int(fields["load_bytes_max"]),
            own_bytes_max=int(fields["own_bytes_max"]),
            ran=bool(fields["ran"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: Path, seen: MemorySeen) -> None:
    made = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(dataclasses.asdict(seen)))
        made.replace(path)
