"""The content of a source before any copy: files with names, sizes and stamps.

`local_files.py` and `object_store.py` make listings; `fetch.py` copies their files. A stamp changes
when the content may have changed, so equal listings mean that nothing must be read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

CHUNK_BYTES = 1024 * 1024
_STAMP_CHARS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a source."""

    name: str  #: safe relative path, "/" between the parts
    size: int
    stamp: str  #: etag, or time and inode; "" = the source gives none
    executable: bool = False
    #: Yields the content once; raises `PenstockError` when it can't be read, or when the file no
    #: longer has this stamp.
    chunks: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All files of a source, sorted by name."""

    files: tuple[SourceFile, ...]
    single: bool  #: the URI names one object, which may be an archive
    #: False: the newest file is so young that it may still change under an equal stamp.
    settled: bool = True
    changed_at: float = 0.0  #: last change of the newest file, s since the epoch; 0 = unknown

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def fingerprint(self) -> str:
        """Equal for equal content; "" when the stamps can't prove it."""
        return self._digest() if self.settled and self._is_stamped() else ""

    def stamp(self) -> str:
        """A text that is different after each change; "" when the source gives no stamps.

        The stamp of a young file changes once more when the file has settled, changed or not.
        """
        young = "" if self.settled else "-young"
        return self._digest()[:_STAMP_CHARS] + young if self._is_stamped() else ""

    def is_as(self, other: Listing) -> bool:
        """Whether both list the same files, as far as the stamps show."""
        return self._digest() == other._digest()

    def _is_stamped(self) -> bool:
        return all(file.stamp for file in self.files)

    def _digest(self) -> str:
        facts = [[file.name, file.size, file.stamp, file.executable] for file in self.files]
        return hashlib.sha256(json.dumps([self.single, facts]).encode()).hexdigest()
