"""A package as a file: a .tar.gz whose bytes follow from its contents alone.

Members are sorted by name and bear no time, user or group; gzip's header has no time and no name,
but a comment with the digest of the contents, so that the first bytes of a copy anywhere tell what
it is. The digest is over the contents, not over the compressed bytes: those are the same wherever
the same zlib compresses.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import struct
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.files.listing import SourceFile
from penstock.artifacts.sources.fetch import directory_digest
from penstock.errors import NotNowError

#: gzip: deflate, a comment follows; no time; no hint; unknown system (RFC 1952).
_HEAD = b"\x1f\x8b\x08\x10\x00\x00\x00\x00\x00\xff"
_COMMENT = re.compile(rb"penstock ([0-9a-f]{64})\0")
#: Bytes from the beginning of an archive in which the digest stands.
HEAD_BYTES = 128
#: zlib's own default: weights hardly shrink, and higher levels only cost time.
_LEVEL = 6
_COPY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """One file of a package, for its manifest."""

    path: str
    size: int
    sha256: str
    executable: bool


def packed_files(files: Sequence[SourceFile]) -> list[PackedFile]:
    """Reads every file. Raises `PenstockError` where one can't be read or changes meanwhile."""
    found = []
    for file in files:
        digest, size = hashlib.sha256(), 0
        for chunk in file.chunks():
            digest.update(chunk)
            size += len(chunk)
        found.append(
            PackedFile(
                path=file.name, size=size, sha256=digest.hexdigest(), executable=file.executable
            )
        )
    return found


def digest_of(files: Sequence[PackedFile]) -> str:
    """Of the contents: paths, bytes, and which may be executed."""
    return directory_digest((file.path, file.size, file.executable, file.sha256) for file in files)


def digest_in(head: bytes) -> str:
    """The digest that an archive's first `HEAD_BYTES` tell; empty if it is none of ours."""
    match = _COMMENT.match(head, len(_HEAD)) if head.startswith(_HEAD) else None
    return match[1].decode() if match else ""


def write_archive(
    path: Path, files: Sequence[SourceFile], packed: Sequence[PackedFile], *, digest: str
) -> None:
    """Writes the archive at `path`, onto the disk itself: a manifest will say that it is there.

    Raises OSError, or NotNowError `artifact-changed` where a file is no longer what `packed` says.
    """
    with (
        path.open("wb") as raw,
        _compressed(raw, digest) as stream,
        tarfile.open(
            fileobj=stream,
            mode="w|",
            bufsize=_COPY_BYTES,
            format=tarfile.PAX_FORMAT,
        ) as archive,
    ):
        for file, known in zip(files, packed, strict=True):
            info = tarfile.TarInfo(known.path)
            info.size = known.size
            info.mode = 0o755 if known.executable else 0o644
            archive.addfile(info, io.BufferedReader(_Checked(file, known), _COPY_BYTES))


class _Checked(io.RawIOBase):
    """A source file that still is what it was when it was described, or an error at its end."""

    def __init__(self, file: SourceFile, known: PackedFile) -> None:
        super().__init__()
        self._known = known
        self._chunks = file.chunks()
        self._digest = hashlib.sha256()
        self._rest = memoryview(b"")
        self._left = known.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest and not self._next():
            raise self._changed()
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        self._left -= size
        at_end = self._left <= 0
        if at_end and (self._next() or self._digest.hexdigest() != self._known.sha256):
            raise self._changed()
        return size

    def _next(self) -> bool:
        """Whether there is more. At the end the source itself sees whether it changed."""
        for chunk in self._chunks:
            self._digest.update(chunk)
            self._rest = memoryview(chunk)
            if chunk:
                return True
        return False

    def _changed(self) -> NotNowError:
        return NotNowError(
            "artifact-changed",
            f"{self._known.path} changed while it was packed",
            hint="Try again when its files are completely written.",
        )


class _Compressed(io.RawIOBase):
    """Takes the bytes of the archive and writes gzip."""

    def __init__(self, raw: io.BufferedWriter) -> None:
        super().__init__()
        self._raw = raw
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._crc = self._size = 0

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        self._raw.write(self._deflate.compress(data))
        return len(data)

    def finish(self) -> None:
        self._raw.write(self._deflate.flush())
        self._raw.write(struct.pack("<LL", self._crc, self._size & 0xFFFF_FFFF))


@contextmanager
def _compressed(raw: io.BufferedWriter, digest: str) -> Iterator[_Compressed]:
    raw.write(_HEAD + b"penstock " + digest.encode() + b"\0")
    stream = _Compressed(raw)
    yield stream
    stream.finish()
    raw.flush()
    os.fsync(raw.fileno())


def file_sha256(path: Path) -> str:
    """Of the archive's own bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
