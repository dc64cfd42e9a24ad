"""Notes which models of a host are at work, so that after a crash of its process the cause is
known.

Only models whose library runs in this process are noted: others crash in processes of their own.
The note is a memory-mapped file: each request writes one byte at its start and end, and the file
survives the process.
"""

from __future__ import annotations

import logging
import mmap
import os
from pathlib import Path

from penstock.wire.work_note import AT_WORK, FREE, IDLE, SLOT_BYTES, NotedModel, slot

_LOG = logging.getLogger(__name__)
_SLOTS_MIN = 64


class Mark:
    """The entry of one model. Without a note it does nothing."""

    __slots__ = ("_at", "_note")

    def __init__(self, note: WorkNote | None = None, at: int = 0) -> None:
        self._note = note
        self._at = at

    def works(self, working: bool) -> None:
        if self._note is not None:
            self._note.set(self._at, AT_WORK if working else IDLE)

    def remove(self) -> None:
        """Idempotent."""
        if self._note is not None:
            self._note.free(self._at)
            self._note = None


class WorkNote:
    """The file; it is made when there is something to note."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None = nobody reads it, and nothing is noted."""
        self._path = path
        self._map: mmap.mmap | None = None
        self._file = -1
        self._free: list[int] = []

    def mark(self, model: NotedModel) -> Mark:
        """The model's entry; it counts as at work from here on. If the disk is full, the model is
        loaded all the same, without an entry."""
        written = slot(model)
        if self._path is None or written is None:
            return Mark()
        try:
            at = self._slot(self._path)
        except (OSError, ValueError) as error:
            _LOG.warning("what models do is not noted: %s: %s", self._path, error)
            self._path = None
            return Mark()
        assert self._map is not None
        self._map[at + 1 : at + 1 + len(written)] = written
        self._map[at] = AT_WORK
        return Mark(self, at)

    def set(self, at: int, state: int) -> None:
        if self._map is not None:
            self._map[at] = state

    def free(self, at: int) -> None:
        self.set(at, FREE)
        self._free.append(at)

    def close(self) -> None:
        """The process ends on purpose: no model is suspected."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._map is not None:
            self._map.close()
            self._map = None
            os.close(self._file)

    def _slot(self, path: Path) -> int:
        if self._map is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._grow(0, _SLOTS_MIN * SLOT_BYTES)
        if not self._free:
            assert self._map is not None
            self._grow(len(self._map), 2 * len(self._map))
        return self._free.pop()

    def _grow(self, before: int, size: int) -> None:
        """Allocates its disk blocks: writing to a mapping would crash the process if the disk is
        full."""
        os.posix_fallocate(self._file, 0, size)
        if self._map is None:
            self._map = mmap.mmap(self._file, size)
        else:
            self._map.resize(size)
        self._free += range(size - SLOT_BYTES, before - 1, -SLOT_BYTES)
