"""A package as a file: a .tar.gz whose bytes depend on its contents alone.

Members are sorted by name and carry no time, user or group. gzip's header has no time and no name,
but a comment with the digest of the contents, so that the first bytes of any copy identify it. The
digest is over the contents, not over the compressed bytes, which depend on the version of zlib.

A package contains the files below the root folder of the package file, each with its path in the
archive, and no others.

A link is replaced by the file that it leads to; a link that leads out of the listed folder is
refused. Clutter of desktop systems, Python and git is left out, as it is when a server reads a
folder.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import SourceFile
from penstock.artifacts.sources.fetch import directory_digest
from penstock.artifacts.sources.local_files import list_local
from penstock.clock import SystemClock
from penstock.errors import NotNowError
from penstock.packaging.package_spec import LATEST, Code, PackageSpec, PackageTemplate, Placed
from penstock.packaging.spec_file import filled_text, inside, relative_path

#: gzip's header: deflate, a comment follows; no time; no hint; unknown system (RFC 1952).
_HEAD = b"\x1f\x8b\x08\x10\x00\x00\x00\x00\x00\xff"
_COMMENT = re.compile(rb"penstock ([0-9a-f]{64})\0")
#: First bytes of an archive that contain the digest.
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
    """Reads every file. Raises `PenstockError` if one can't be read or changes meanwhile."""
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
    """The digest of the contents: paths, bytes, and execute bits."""
    return directory_digest((file.path, file.size, file.executable, file.sha256) for file in files)


def digest_in(head: bytes) -> str:
    """The digest in an archive's first `HEAD_BYTES`; empty if it is not one of ours."""
    match = _COMMENT.match(head, len(_HEAD)) if head.startswith(_HEAD) else None
    return match[1].decode() if match else ""


def write_archive(
    path: Path, files: Sequence[SourceFile], packed: Sequence[PackedFile], *, digest: str
) -> None:
    """Writes the archive at `path` and syncs the disk, because a manifest will refer to it.

    Raises OSError, or NotNowError `artifact-changed` where a file no longer matches `packed`.
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
    """A source file that must stay as it was described; its end raises an error if it changed."""

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
        """Whether there is more. At its end the source checks whether it changed."""
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
    """Takes the archive's bytes and writes gzip."""

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
    """The SHA-256 of the archive's own bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_FILES_MAX = 20_000  #: most members that a server unpacks from one archive
BYTES_MAX = 256 * 1024**3
SECONDS_MAX = 24 * 3600.0
_TEMPLATE_BYTES_MAX = 1024 * 1024
_NUMBERED = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,7}\Z")


def contents(spec: PackageSpec) -> tuple[list[SourceFile], str]:
    """The files, sorted by path, and the version of the code among them ("" without code).

    Raises CallerError `spec-invalid` for mistakes in the file, and those of local artifacts
    (`artifact-link-refused`, `artifact-access-denied` ...) for faults of a source.
    """
    found: list[SourceFile] = []
    code_version = ""
    for placed in spec.keys.files:
        found += _files(spec, placed, spec.file.path_of(placed))
    if (code := spec.keys.code) is not None:
        code_version = _code_version(spec, code)
        folder = f"{code.folder}/{code_version}"
        found += _files(spec, Placed(source=folder, to=f"{code.to}/"), "code")
    known = {
        "package": spec.name,
        "version": spec.keys.version,
        "kind": spec.keys.kind,
        "code_version": code_version,
    }
    for placed in spec.keys.templates:
        found.append(_template(spec, placed, known))
    files = sorted(found, key=lambda file: file.name)
    _check_paths(spec, files)
    return files, code_version


def _files(spec: PackageSpec, placed: Placed, path: str) -> Iterator[SourceFile]:
    fail = spec.file.fail
    real = inside(spec.file.root, placed.source, fail, f"{path}.from")
    to = relative_path(placed.to, fail, f"{path}.to")
    budget = Budget(placed.source, bytes_max=BYTES_MAX, seconds_max=SECONDS_MAX)
    listing = list_local(real, budget=budget, files_max=_FILES_MAX, clock=SystemClock())
    for file in listing.files:
        name = to
        if not listing.single or placed.to.endswith("/"):
            name = f"{to}/{file.name}" if to else file.name
        yield replace(file, name=relative_path(name, fail, f"{path}.to"))


def _template(spec: PackageSpec, placed: PackageTemplate, known: dict[str, str]) -> SourceFile:
    fail, path = spec.file.fail, spec.file.path_of(placed)
    values = known | spec.file.row_of(placed) | placed.values
    key = f"{path}.from"
    real = inside(spec.file.root, placed.source, fail, key)
    to = relative_path(placed.to, fail, f"{path}.to")
    if not real.is_file() or real.stat().st_size > _TEMPLATE_BYTES_MAX:
        raise fail(
            key, f"{placed.source} is no file of at most 1 MiB", "Put large files under files."
        )
    try:
        text = real.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise fail(
            key, f"{placed.source} can't be read as text: {error}", "Write UTF-8."
        ) from error
    content = filled_text(text, values, fail, key).encode()
    return SourceFile(name=to, size=len(content), stamp="", chunks=lambda: iter((content,)))


def _code_version(spec: PackageSpec, code: Code) -> str:
    """The requested version; `latest` is the highest in numeric order, not in alphabetical
    order."""
    folder = inside(spec.file.root, code.folder, spec.file.fail, "code.from")
    if code.version != LATEST:
        return code.version
    there = folder.iterdir() if folder.is_dir() else ()
    found = [path.name for path in there if path.is_dir() and _NUMBERED.match(path.name)]
    if not found:
        raise spec.file.fail(
            "code.from",
            f"{code.folder} has no folder that is named as a version, such as 1.2",
            "Put each version of the code into a folder of its number.",
        )
    return max(found, key=lambda name: ([int(part) for part in name.split(".")], name))


def _check_paths(spec: PackageSpec, files: list[SourceFile]) -> None:
    """Refuses a path that occurs twice, or that is both a file and a folder."""
    names = {file.name for file in files}
    for at, file in enumerate(files):
        parents = {str(parent) for parent in Path(file.name).parents}
        if not file.name or (at and files[at - 1].name == file.name) or names & parents:
            raise spec.file.fail(
                "files",
                f"the package {spec.name} has {file.name!r} twice, or as a file and a folder",
                "Each file needs a path of its own; a folder's `to` is the folder it becomes.",
            )
