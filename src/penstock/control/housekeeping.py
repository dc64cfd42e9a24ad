"""Limits what a server leaves on its disk: artifacts, compiled models, pulled images, old logs.

It blocks (disk access) and runs on a thread from time to time. The caller passes what is in use,
and that is never removed. Everything else can be fetched or made again, or is an old log.
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
from penstock.artifacts.pull_image import pulled_dir
from penstock.clock import Clock
from penstock.metrics.item_failures import apart
from penstock.runtimes.container import engine, images
from penstock.runtimes.container.settings import ContainerSettings

_log = logging.getLogger(__name__)

_LOOP: Final = "housekeeping"  #: the label of this loop in the count of failures

#: Age of logs of deleted endpoints and former generations: somebody may still need them.
LOG_AGE_S_MAX: Final = 7 * 86_400.0

#: If together they are larger or more than this, the oldest go earlier.
LOG_BYTES_MAX: Final = 2**30
LOGS_MAX: Final = 5_000

#: A folder that was empty for this long is not one in which an instance is just starting.
EMPTY_S_MIN: Final = 3_600.0

#: Size of the records of what models took, some 80 bytes each; without one the need is estimated.
MEMORY_RECORD_BYTES_MAX: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """What running instances need."""

    digests: frozenset[str]  #: of loaded artifacts
    logs: frozenset[Path]
    loading: bool  #: a load is under way, and which artifacts of the cache it uses is not known yet


class Housekeeping:
    """Cleans up for one server. Call `tidy` from time to time."""

    def __init__(
        self,
        *,
        cache_dir: Path,
        cache_bytes_max: int,
        log_dir: Path,
        clock: Clock,
        containers: ContainerSettings,
    ) -> None:
        self._cache_dir = cache_dir
        self._images_dir = pulled_dir(cache_dir)
        self._containers = containers
        self._cache_bytes_max = cache_bytes_max
        self._log_dir = log_dir
        self._clock = clock

    def tidy(self, in_use: InUse) -> None:
        """Never raises for a full or read-only disk: a later call may succeed."""
        if not in_use.loading:
            with apart(_LOOP, "artifacts"):
                self._trim_cache(in_use.digests)
        with apart(_LOOP, "logs"):
            self._prune_logs(in_use.logs)
        with apart(_LOOP, "memory records"):
            records = list(self._cache_dir.glob("memory*/*"))
            _remove_oldest(records, bytes_max=MEMORY_RECORD_BYTES_MAX)

    def pulled_images(self) -> frozenset[str]:
        """Names of the images that were pulled onto this machine."""
        return frozenset(one.image for one in images.pulled(self._images_dir))

    def remove_images(self, named: Collection[str]) -> None:
        """Removes pulled images, except `named`, which a model, an endpoint or a job names. Never
        raises, as `tidy`."""
        program = shutil.which(engine.decide(self._containers).engine)
        if program is None:
            return
        with apart(_LOOP, "images"):
            for image in images.remove_unused(program, self._images_dir, named):
                _log.info("image %s removed from the engine: no model names it", image)

    def _trim_cache(self, digests: Collection[str]) -> None:
        artifacts = self._cache_dir / "artifacts"
        if not artifacts.is_dir():
            return
        cache = ArtifactCache(artifacts, clock=self._clock)
        for digest in cache.evict(digests, self._cache_bytes_max):
            _log.info("artifact %s removed from the cache: it was the least recently used", digest)
        # A compiled model in use is an open file: it stays readable after its name is removed.
        compiled = [path for path in self._cache_dir.glob("compiled/**/*") if path.is_file()]
        _remove_oldest(compiled, bytes_max=self._cache_bytes_max)
        self._trim_compiled_models(digests)

    def _trim_compiled_models(self, digests: Collection[str]) -> None:
        """Removes compiled models. Each entry is named after the digest of its weights."""
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
            # So that nobody finds a half-removed entry.
            leaving = entry.with_name(f".leaving-{entry.name}")
            with apart(_LOOP, entry.name):
                shutil.rmtree(leaving, ignore_errors=True)
                entry.rename(leaving)
                shutil.rmtree(leaving, ignore_errors=True)
                total -= size
                _log.info("compiled model %s removed: it was the least recently used", entry.name)

    def _prune_logs(self, logs: Collection[Path]) -> None:
        """Removes old logs. An instance's previous log, kept as `.1`, is removed with its log."""
        old = [
            path
            for path in self._log_dir.glob("*/*.log*")
            if path.with_name(path.name.removesuffix(".1")) not in logs
        ]
        before = self._clock.wall() - LOG_AGE_S_MAX
        _remove_oldest(old, bytes_max=LOG_BYTES_MAX, count_max=LOGS_MAX, written_before=before)
        changed_before = self._clock.wall() - EMPTY_S_MIN
        for folder in self._log_dir.glob("*"):
            with suppress(OSError):  # the folder is not empty
                if folder.stat().st_mtime < changed_before:
                    folder.rmdir()


def _remove_oldest(
    paths: list[Path], *, bytes_max: int, count_max: int = 0, written_before: float = 0.0
) -> None:
    """Removes files, oldest first, until at most `bytes_max` and `count_max` (0: any) remain, and
    all that are older than `written_before`."""
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
        with apart(_LOOP, path.name):  # a file that can't be removed must not stop the others
            path.unlink(missing_ok=True)
            total -= size
