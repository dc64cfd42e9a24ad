"""Unpacked artifacts on disk, each under the digest of its content, shared by every process.

    <root>/<sha256>/entry.json     written before the entry appears: what it must hold
    <root>/<sha256>/checked.json   when its bytes were last compared with that (`cache_contents`)
    <root>/<sha256>/files/...      the artifact, read-only by convention
    <root>/.sources/<key>.json     source and stamp -> digest, so that nothing is read twice
    <root>/.staging/<random>/      entries being made or thrown away, each locked by its process
    <root>/.locks/<key>            one process fetches a source, the others wait for it

An entry appears by one rename, once all of it is on the disk, and is never changed, so a reader
needs no lock. `find` compares names, sizes and bytes with `entry.json`, as often as it takes, and
drops what is damaged: it is fetched again. Files that a running model adds (compiled Python, for
one) are not looked at. Processes may be killed anywhere; locks are the kernel's and die with them.
This module does not know how artifacts are fetched or what they mean.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import durable_files
from penstock.artifacts.cache import cache_contents
from penstock.artifacts.files.budget import Budget, disk_errors
from penstock.clock import Clock, SystemClock

_LOCK_POLL_S = 0.05
_log = logging.getLogger(__name__)
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One complete artifact."""

    digest: str
    root: Path  #: the folder with its files
    size: int  #: bytes of its files
    #: Stamp of the source that the entry was fetched from; empty where it gives none.
    stamp: str = field(default="", compare=False)


class ArtifactCache:
    """The cache in one folder. Safe for many threads and processes at once."""

    def __init__(self, root: Path, *, clock: Clock | None = None) -> None:
        """Makes the folders and removes what dead processes left behind.

        Raises `CallerError` (`artifact-disk-full`, `artifact-disk-failed`).
        """
        self.root = root
        self._clock = clock or SystemClock()
        with disk_errors("artifact cache", root):
            for folder in (root, self._sources, self._staging, self._locks):
                folder.mkdir(parents=True, exist_ok=True)
        durable_files.remove_abandoned(self._staging.iterdir())

    @property
    def _sources(self) -> Path:
        return self.root / ".sources"

    @property
    def _staging(self) -> Path:
        return self.root / ".staging"

    @property
    def _locks(self) -> Path:
        return self.root / ".locks"

    def find(self, digest: str) -> CacheEntry | None:
        """The entry, if it is there and whole. Marks it as used now; drops it if it is broken.

        Raises NotNowError (`artifact-disk-failed`) where the disk does not answer now.
        """
        if not _DIGEST.match(digest):
            return None
        folder = self.root / digest
        with disk_errors("artifact cache", self.root):
            if not folder.exists():
                return None
            listed = _read_json(folder / "entry.json") or {}
            checked = _read_json(folder / "checked.json")
            damage = cache_contents.damage(folder / "files", listed, checked)
        if damage:
            if folder.exists():  # nobody has evicted it meanwhile
                _log.warning("artifact %s is damaged and is fetched again: %s", digest, damage)
                self._discard(folder)
            return None
        self._note_checked(folder, listed, checked)
        used = self._clock.wall()
        with suppress(OSError):  # another user's cache can't be marked, but can be read
            os.utime(folder / "entry.json", (used, used))
        return CacheEntry(digest, folder / "files", _size(listed))

    @staticmethod
    def _note_checked(
        folder: Path, listed: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> None:
        with suppress(OSError):  # another user's cache can't record it, and is compared every time
            stamps = cache_contents.stamps(folder / "files", listed)
            if stamps != before:
                _write_json(folder, "checked.json", stamps)

    def find_source(self, key: str, fingerprint: str) -> CacheEntry | None:
        """The entry that `remember` recorded for this source, if the source is unchanged."""
        known = self._known(key)
        if not fingerprint or known is None or known.get("fingerprint") != fingerprint:
            return None
        return self.find(str(known.get("digest")))

    def find_last(self, key: str) -> CacheEntry | None:
        """The entry that this source had when it was last read, changed or not since then."""
        known = self._known(key)
        return None if known is None else self.find(str(known.get("digest")))

    def _known(self, key: str) -> dict[str, object] | None:
        with disk_errors("artifact cache", self.root):
            return _read_json(self._sources / f"{key}.json")

    def remember(self, key: str, fingerprint: str, digest: str, *, uri: str) -> None:
        """Records that this source had this content. Without a fingerprint there is no record."""
        if not fingerprint:
            return
        record = {"fingerprint": fingerprint, "digest": digest, "uri": uri}
        with disk_errors(uri, self.root):
            _write_json(self._sources, f"{key}.json", record)

    @contextmanager
    def staging(self, what: str) -> Iterator[Path]:
        """A fresh folder on the cache's own disk, removed on leaving; `commit` takes from it."""
        with disk_errors(what, self.root):
            folder, lock = self._locked_folder()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def commit(
        self, files: Path, digest: str, *, what: str, digests: Mapping[str, str] | None = None
    ) -> CacheEntry:
        """Turns the folder `files`, inside a staging folder, into the entry of `digest`.

        `digests`: the SHA-256 of files where it is known already, by path. If another process was
        faster, its entry is used, and the staging folder's exit removes ours.
        """
        made = files.parent / f"entry-{digest}"
        with disk_errors(what, self.root):
            record = cache_contents.record(files, digests or {})
            made.mkdir()
            files.rename(made / "files")
            _write_json(made, "entry.json", record)
            self._note_checked(made, record, None)
            cache_contents.sync(made)
            while True:
                try:
                    made.rename(self.root / digest)
                except OSError:
                    found = self.find(digest)  # moves a broken entry out of the way
                    if found is not None:
                        return found
                    if (self.root / digest).exists():
                        raise
                else:
                    break
            durable_files.sync(self.root)
        return CacheEntry(digest, self.root / digest / "files", _size(record))

    @contextmanager
    def source_lock(self, key: str, budget: Budget) -> Iterator[None]:
        """Locks the source while it is fetched; waits within the budget's time."""
        with disk_errors(budget.what, self.root):
            # Never deleted: two processes could then lock two files under one name.
            lock = os.open(self._locks / key, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            pause = threading.Event()
            while not durable_files.try_lock(lock):
                budget.check()
                pause.wait(_LOCK_POLL_S)
            yield
        finally:
            os.close(lock)

    def entries(self) -> list[tuple[str, int, float]]:
        """(digest, bytes, last use in s since the epoch) of every entry, least recent first."""
        found = []
        for folder in self.root.iterdir():
            listed = _read_json(folder / "entry.json")
            if folder.name.startswith(".") or listed is None:
                continue
            with suppress(OSError):
                used = (folder / "entry.json").stat().st_mtime
                found.append((folder.name, _size(listed), used))
        return sorted(found, key=lambda entry: (entry[2], entry[0]))

    def evict(
        self, keep: Collection[str], bytes_max: int, *, idle_s_min: float = 300.0
    ) -> list[str]:
        """Removes entries, least recently used first, until at most `bytes_max` bytes remain.

        Never removes a digest of `keep`, nor one used in the last `idle_s_min` seconds: another
        process may have found it and be about to open its files. Returns the removed digests.
        """
        entries = self.entries()
        total = sum(size for _, size, _ in entries)
        now = self._clock.wall()
        removed = []
        for digest, size, used in entries:
            if total <= bytes_max:
                break
            if digest not in keep and now >= used + idle_s_min:
                self._discard(self.root / digest)
                total -= size
                removed.append(digest)
        return removed

    def _discard(self, folder: Path) -> None:
        """Takes an entry away in one step; files that are open somewhere stay readable there."""
        with suppress(OSError), self.staging("artifact cache") as staging:
            folder.rename(staging / "discarded")

    def _locked_folder(self) -> tuple[Path, int]:
        while True:
            folder = self._staging / secrets.token_hex(8)
            folder.mkdir()
            # A cleaner may take the folder between these steps; then another one is made.
            with suppress(FileNotFoundError):
                lock = os.open(folder, os.O_RDONLY)
                if durable_files.try_lock(lock) and folder.exists():
                    return folder, lock
                os.close(lock)


def _size(listed: Mapping[str, object]) -> int:
    size = listed.get("size")
    return size if isinstance(size, int) else 0


def _read_json(path: Path) -> dict[str, object] | None:
    """The file's object; None where there is none. Raises OSError where the disk fails for now."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return None
    except OSError as error:
        if cache_contents.says_nothing(error):
            raise
        return None
    return value if isinstance(value, dict) else None


def _write_json(folder: Path, name: str, value: Mapping[str, object]) -> None:
    temporary = folder / f".{name}.{secrets.token_hex(4)}"
    temporary.write_text(json.dumps(dict(value)))
    temporary.rename(folder / name)
