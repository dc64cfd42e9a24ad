"""Keeps what a server leaves on its disk within bounds: artifacts, compiled models, old logs.

Blocks (the disk), and is called on a thread now and then. It is told what is in use and never
removes that; everything else can be fetched or made again, or has told its story long ago.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.clock import Clock
from penstock.metrics.item_failures import apart

_log = logging.getLogger(__name__)

_LOOP: Final = "housekeeping"  #: in the count of failures

#: Logs of deleted endpoints and of former generations: somebody may still ask what went wrong.
LOG_AGE_S_MAX: Final = 7 * 86_400.0

#: ... unless together they are larger, or more, than this; the oldest go first.
LOG_BYTES_MAX: Final = 2**30
LOGS_MAX: Final = 5_000

#: A folder that has been empty for as long is not one that an instance is just starting in.
EMPTY_S_MIN: Final = 3_600.0

#: Records of what models took, some eighty bytes each; one that is gone is an estimate again.
MEMORY_RECORD_BYTES_MAX: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """What running instances need."""

    digests: frozenset[str]  #: of loaded artifacts
    logs: frozenset[Path]
    loading: bool  #: some load is under way: what it has found in the cache is not known yet


class Housekeeping:
    """The bounds of one server. `tidy` is called again and again."""

    def __init__(
        self, *, cache_dir: Path, cache_bytes_max: int, log_dir: Path, clock: Clock
    ) -> None:
        self._cache_dir = cache_dir
        self._cache_bytes_max = cache_bytes_max
        self._log_dir = log_dir
        self._clock = clock

    def tidy(self, in_use: InUse) -> None:
        """Never raises for a disk that is full or read-only: the next time may go better."""
        if not in_use.loading:
            with apart(_LOOP, "artifacts"):
                self._trim_cache(in_use.digests)
        with apart(_LOOP, "logs"):
            self._prune_logs(in_use.logs)
        with apart(_LOOP, "memory records"):
            records = list(self._cache_dir.glob("memory*/*"))
            _remove_oldest(records, bytes_max=MEMORY_RECORD_BYTES_MAX)

    def _trim_cache(self, digests: Collection[str]) -> None:
        artifacts = self._cache_dir / "artifacts"
        if not artifacts.is_dir():
            return
        cache = ArtifactCache(artifacts, clock=self._clock)
        for digest in cache.evict(digests, self._cache_bytes_max):
            _log.info("artifact %s removed from the cache: it was the least recently used", digest)
        # A compiled model that is in use is open there, and stays so without its name.
        compiled = [path for path in self._cache_dir.glob("compiled/**/*") if path.is_file()]
        _remove_oldest(compiled, bytes_max=self._cache_bytes_max)
        self._trim_compiled_models(digests)

    def _trim_compiled_models(self, digests: Collection[str]) -> None:
        """What weights were compiled to; entries are named after the digest of the weights."""
        entries = []
        for entry in (self._cache_dir / "compiled-models").glob("[!.]*-*"):
            with suppress(FileNotFoundError):
                size = sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())
                entries.append((entry.stat().st_mtime, size, entry))
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self._cache_bytes_max:
                break
            if entry.name.partition("-")[0] in digests:
                continue
            leaving = entry.with_name(f".leaving-{entry.name}")  # nobody finds half of it
            with apart(_LOOP, entry.name):
                shutil.rmtree(leaving, ignore_errors=True)
                entry.rename(leaving)
                shutil.rmtree(leaving, ignore_errors=True)
                total -= size
                _log.info("compiled model %s removed: it was the least recently used", entry.name)

    def _prune_logs(self, logs: Collection[Path]) -> None:
        """An instance's log of before, put aside as `.1`, goes with it."""
        old = [
            path
            for path in self._log_dir.glob("*/*.log*")
            if path.with_name(path.name.removesuffix(".1")) not in logs
        ]
        before = self._clock.wall() - LOG_AGE_S_MAX
        _remove_oldest(old, bytes_max=LOG_BYTES_MAX, count_max=LOGS_MAX, written_before=before)
        changed_before = self._clock.wall() - EMPTY_S_MIN
        for folder in self._log_dir.glob("*"):
            with suppress(OSError):  # it is not empty
                if folder.stat().st_mtime < changed_before:
                    folder.rmdir()


def _remove_oldest(
    paths: list[Path], *, bytes_max: int, count_max: int = 0, written_before: float = 0.0
) -> None:
    """Removes files, oldest first, until `bytes_max` and `count_max` (0: any) remain; all that are
    older than the time."""
    facts = []
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.stat()
            facts.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in facts)
    for left, (written, size, path) in zip(count(len(facts), -1), sorted(facts)):
        few = not count_max or left <= count_max
        if written >= written_before and total <= bytes_max and few:
            break
        with apart(_LOOP, path.name):  # one that can't be removed keeps no other
            path.unlink(missing_ok=True)
            total -= size
