"""Unpacks an untrusted archive (tar, tar.gz, zip) into a new folder of plain files and folders.

What an archive may not do: leave the folder, make links, devices or pipes, name one path twice, be
larger than it may, or pretend to be whole when it was cut short. Links to files inside the archive
become hard links of the unpacked file, so no symbolic link ever exists on disk and no path can be
redirected by one. Set-user bits and write permission are dropped; the execute bit is kept.

An archive is read as a stream of members. `tarfile` and `zipfile` parse the formats, and guards
here add what they lack: no single read of a header is huge, a tar file has its end mark, a gzip
stream has its checksum, and every way in which a broken archive makes them fail becomes one
`CallerError`. Members come in archive order, and each must be read before the next is requested.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import posixpath
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from penstock.artifacts.files.budget import Budget, disk_errors
from penstock.artifacts.files.listing import CHUNK_BYTES
from penstock.artifacts.files.paths import is_clutter, safe_path, shown
from penstock.errors import CallerError

#: Largest single read that a parser may ask for: an extended header or a zip directory. At 46 bytes
#: and more per entry, 4 MiB of zip directory are under 100,000 members.
HEADER_BYTES_MAX = 4 * 1024 * 1024
#: All headers of a tar file together, with names and padding. They belong to no file's content, so
#: the consumer's byte counts miss them. 20,000 members with names of 1 KiB have 50 MiB.
HEADERS_BYTES_MAX = 64 * 1024 * 1024
#: Keys of pax's global headers, which tarfile copies for each member.
GLOBAL_KEYS_MAX = 100
LINK_BYTES_MAX = 4096
_BLOCK = 512

Kind = Literal["file", "folder", "symlink", "hardlink", "other"]


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One entry of an archive, its name as written there."""

    name: str
    kind: Kind
    read: Callable[[int], bytes] = lambda size: b""  #: at most `size` bytes; b"" at the end
    link: str = ""  #: path that a link points to; "" for a member that is no link
    executable: bool = False


def archive_kind(path: Path) -> Literal["tar", "tar.gz", "zip", ""]:
    """The kind by the first bytes, never by the name; "" for any other file."""
    with open(path, "rb") as file:
        head = file.read(_BLOCK)
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head[257:262] == b"ustar" or _is_old_tar(head):
        return "tar"
    return ""


def _is_old_tar(head: bytes) -> bool:
    """A tar header of the seventh edition has no magic, but it has a checksum."""
    if len(head) < _BLOCK or not head[0]:
        return False
    try:
        checksum = int(head[148:156].strip(b" \0"), 8)
    except ValueError:
        return False
    return checksum == sum(head) - sum(head[148:156]) + 8 * 0x20


def tar_members(file: BinaryIO, *, gzipped: bool, what: str) -> Iterator[ArchiveMember]:
    """The members of a tar stream; raises `CallerError` where it is broken or cut short."""
    with _parser_errors(what):
        stream = _Forward(gzip.GzipFile(fileobj=file, mode="rb") if gzipped else file, what)
        with tarfile.open(fileobj=stream, mode="r:", errorlevel=2) as archive:
            while (info := archive.next()) is not None:
                if len(archive.pax_headers) > GLOBAL_KEYS_MAX:
                    raise _unreadable(what, f"more than {GLOBAL_KEYS_MAX} global headers")
                yield _tar_member(archive, info, stream, what)
                # tarfile keeps every header for lookups, which this code never makes.
                archive.members.clear()  # type: ignore[attr-defined]
        if stream.last_block.strip(b"\0") or len(stream.last_block) < _BLOCK:
            raise _truncated(what, "it has no end mark, or garbage in a header's place")
        stream.drain()  # gzip's checksum stands at the end of the stream


def _tar_member(
    archive: tarfile.TarFile, info: tarfile.TarInfo, stream: _Forward, what: str
) -> ArchiveMember:
    if info.isdir():
        return ArchiveMember(info.name, "folder")
    if info.issym():
        return ArchiveMember(info.name, "symlink", link=info.linkname)
    if info.islnk():
        return ArchiveMember(info.name, "hardlink", link=info.linkname)
    # A sparse file claims a size without having the bytes.
    if (
        not info.isreg()
        or info.issparse()
        or (content := archive.extractfile(info)) is None  # there is one for each of this kind
    ):
        return ArchiveMember(info.name, "other")
    executable = bool(info.mode & stat.S_IXUSR)

    def read(size: int) -> bytes:
        data = content.read(size)
        stream.content_bytes += len(data)
        return data

    return ArchiveMember(info.name, "file", read=_guarded(read, what), executable=executable)


def _guarded(read: Callable[[int], bytes], what: str) -> Callable[[int], bytes]:
    """Wraps the parsers' errors: the consumer reads content outside the generator's handling."""

    def guarded_read(size: int) -> bytes:
        with _parser_errors(what):
            return read(size)

    return guarded_read


class _Forward(io.RawIOBase):
    """The file that tarfile reads: forward only, in bounded steps, with the last block remembered.

    A gzip stream would be unpacked again from its start for a single step back.
    """

    def __init__(self, source: BinaryIO | gzip.GzipFile, what: str) -> None:
        super().__init__()
        self._source = source
        self._what = what
        self._position = 0
        #: bytes of files' content that were read; all other bytes are headers
        self.content_bytes = 0
        self.last_block = b""

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise tarfile.ReadError("unexpected seek")
        if offset < self._position:
            raise tarfile.ReadError("a member points back into the archive")
        while self._position < offset:
            if not self._pull(min(offset - self._position, HEADER_BYTES_MAX)):
                break
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0 or size > HEADER_BYTES_MAX:
            raise _unreadable(self._what, f"a header of {size} bytes")
        data = self._pull(size)
        if self._position - self.content_bytes > HEADERS_BYTES_MAX + HEADER_BYTES_MAX:
            raise _unreadable(self._what, f"more than {HEADERS_BYTES_MAX} bytes of headers")
        if size == _BLOCK:
            self.last_block = data
        return data

    def drain(self) -> None:
        """Reads the padding that follows the end mark, at most as much as headers may have."""
        left = HEADER_BYTES_MAX
        while left > 0:
            data = self._pull(min(left, 1 << 16))
            if not data:
                return
            left -= len(data)
        raise _unreadable(self._what, "data after the end of the archive")

    def _pull(self, size: int) -> bytes:
        parts = []
        left = size
        while left:
            data = self._source.read(left)
            if not data:
                break
            parts.append(data)
            left -= len(data)
        data = b"".join(parts)
        self._position += len(data)
        return data


def zip_members(file: BinaryIO, *, what: str) -> Iterator[ArchiveMember]:
    """The members of a zip file; raises `CallerError` where it is broken or cut short."""
    with _parser_errors(what), zipfile.ZipFile(_BoundedReads(file, what)) as archive:
        for info in archive.infolist():
            if info.flag_bits & 0x1:
                raise _unreadable(what, f"the member {info.filename!r} is encrypted")
            # The other methods unpack with memory of the archive's choice.
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _unreadable(what, f"the member {info.filename!r} is not stored or deflated")
            mode = info.external_attr >> 16
            if info.is_dir():
                yield ArchiveMember(info.filename, "folder")
                continue
            if mode and not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or not stat.S_IFMT(mode)):
                yield ArchiveMember(info.filename, "other")
                continue
            with archive.open(info) as content:
                if stat.S_ISLNK(mode):
                    link = content.read(LINK_BYTES_MAX).decode()
                    yield ArchiveMember(info.filename, "symlink", link=link)
                else:
                    yield ArchiveMember(
                        info.filename,
                        "file",
                        read=_guarded(content.read, what),
                        executable=bool(mode & stat.S_IXUSR),
                    )


class _BoundedReads(io.RawIOBase):
    """A seekable file that refuses huge single reads: zipfile reads its directory in one."""

    def __init__(self, source: BinaryIO, what: str) -> None:
        super().__init__()
        self._source = source
        self._what = what

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        return self._source.tell()

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = HEADER_BYTES_MAX
        if size > HEADER_BYTES_MAX:
            raise _unreadable(self._what, f"a directory of {size} bytes")
        return self._source.read(size)


@contextmanager
def _parser_errors(what: str) -> Iterator[None]:
    """Every way in which the parsers fail on bad bytes, as one error; anything else is our bug."""
    try:
        yield
    except EOFError as error:
        raise _truncated(what, str(error) or "it ends early") from error
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        text = str(error)
        # A zip file is known by its first bytes here, so only its end can be missing.
        if any(sign in text for sign in ("unexpected end", "truncated", "CRC", "not a zip file")):
            raise _truncated(what, text) from error
        raise _unreadable(what, text) from error
    except (
        zlib.error,
        struct.error,
        UnicodeError,
        ValueError,
        OverflowError,
        IndexError,
        KeyError,
        NotImplementedError,
        RecursionError,
    ) as error:
        raise _unreadable(what, f"{type(error).__name__}: {error}") from error


def _truncated(what: str, cause: str) -> CallerError:
    return CallerError(
        "archive-truncated",
        f"{what}: the archive is cut short or damaged: {cause[:200]}",
        hint="Upload it again and compare its size and checksum with the original.",
    )


def _unreadable(what: str, cause: str) -> CallerError:
    return CallerError(
        "archive-unreadable",
        f"{what}: the archive can't be read: {cause[:200]}",
        hint="Pack it as .tar.gz (tar -czf model.tar.gz -C my_model .), .tar or .zip.",
    )


#: Below this size no ratio is suspicious: a few megabytes of zeros harm nobody.
RATIO_FREE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackLimits:
    """Bounds besides the budget's bytes and seconds."""

    members_max: int = 20_000
    ratio_max: float = 200.0  #: unpacked bytes per archive byte, above RATIO_FREE_BYTES
    #: Links that lead out of the archive, or to no file in it, are left out and not refused: a
    #: packed Python environment has such to the machine it was made on.
    drops_links: bool = False
    #: A file that is named again is left out and not refused: venv-pack writes pyvenv.cfg twice.
    drops_repeats: bool = False


def unpack(archive: Path, to: Path, *, budget: Budget, limits: UnpackLimits) -> dict[str, str]:
    """Unpacks `archive` into `to`, which must not exist; returns the SHA-256 of each file.

    On an error `to` is removed again.

    Raises `CallerError`: `archive-unreadable`, `archive-truncated`, `archive-unsafe`,
    `archive-bomb`, `artifact-path-unsafe`, `artifact-too-large`, `artifact-disk-full`.
    """
    kind = archive_kind(archive)
    if kind == "":
        raise not_an_archive(budget.what)
    try:
        with disk_errors(budget.what, to.parent):
            to.mkdir(mode=0o755)
        with open(archive, "rb") as file:
            members = (
                zip_members(file, what=budget.what)
                if kind == "zip"
                else tar_members(file, gzipped=kind == "tar.gz", what=budget.what)
            )
            unpacking = _Unpacking(to, archive.stat().st_size, budget, limits)
            unpacking.run(members)
            return unpacking.digests
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise


def not_an_archive(what: str) -> CallerError:
    """The error for a file that should be an archive, but is of no known kind."""
    return CallerError(
        "archive-unreadable",
        f"{what}: this is not an archive that Penstock reads",
        hint="Pack it as .tar.gz (tar -czf model.tar.gz -C my_model .), .tar or .zip.",
    )


class _Unpacking:
    """One archive on its way to disk."""

    def __init__(self, to: Path, archive_bytes: int, budget: Budget, limits: UnpackLimits) -> None:
        self._to = to
        self._what = budget.what
        self._archive_bytes = archive_bytes
        self._budget = budget
        self._limits = limits
        self._files: set[str] = set()
        self._folders: set[str] = {""}
        self._links: dict[str, str] = {}  #: path -> path of its target, both inside the folder
        self._bytes = 0
        self.digests: dict[str, str] = {}  #: SHA-256 of each file, by its path

    def run(self, members: Iterator[ArchiveMember]) -> None:
        for count, member in enumerate(members, start=1):
            self._budget.check()
            if count > self._limits.members_max:
                raise CallerError(
                    "archive-bomb",
                    f"{self._what}: more than {self._limits.members_max} members",
                    hint="Pack only the model; packages belong into the server's environment.",
                )
            path = safe_path(member.name, where=self._what)
            if is_clutter(path):
                self._skip(member)
            else:
                self._place(member, path)
        self._make_links()
        if not self._files and not self._links:
            raise CallerError(
                "artifact-empty",
                f"{self._what}: the archive holds no files",
                hint="Pack the model's files: tar -czf model.tar.gz -C my_model .",
            )

    def _place(self, member: ArchiveMember, path: str) -> None:
        if member.kind == "other":
            raise self._unsafe(member.name, "it is a device, a pipe or of an unknown type")
        if member.kind == "folder":
            if path in self._files or path in self._links:
                raise self._unsafe(member.name, "the archive names this path twice")
            self._make_folder(path)
            return
        if not path:
            raise self._unsafe(member.name, "it has no name")
        if self._limits.drops_repeats and member.kind == "file" and path in self._files:
            self._skip(member)
            return
        if path in self._files or path in self._links or path in self._folders:
            raise self._unsafe(member.name, "the archive names this path twice")
        self._make_folder(posixpath.dirname(path))
        if member.kind == "file":
            self._files.add(path)
            self._write(member, path)
        else:
            target = self._link_target(member, path)
            if target is not None:
                self._links[path] = target

    def _make_folder(self, path: str) -> None:
        if path in self._folders:
            return
        parent = posixpath.dirname(path)
        self._make_folder(parent)  # at most paths.DEPTH_MAX deep
        if path in self._files or path in self._links:
            raise self._unsafe(path, "it is both a file and a folder")
        with disk_errors(self._what, self._to):
            os.mkdir(self._to / path, 0o755)
        self._folders.add(path)

    def _skip(self, member: ArchiveMember) -> None:
        """Reads content that is not kept. It takes time too, so its bytes count like others."""
        while chunk := member.read(CHUNK_BYTES):
            self._count(len(chunk))

    def _write(self, member: ArchiveMember, path: str) -> None:
        target_path = self._to / path
        with disk_errors(self._what, self._to):
            descriptor = os.open(
                target_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644
            )
        digest = hashlib.sha256()
        with open(descriptor, "wb", buffering=0) as target:
            while chunk := member.read(CHUNK_BYTES):
                self._count(len(chunk))
                digest.update(chunk)
                self._write_all(target, chunk)
            os.fchmod(descriptor, 0o555 if member.executable else 0o444)
        self.digests[path] = digest.hexdigest()

    def _write_all(self, target: BinaryIO, chunk: bytes) -> None:
        view = memoryview(chunk)
        with disk_errors(self._what, self._to):
            while view:
                view = view[target.write(view) :]

    def _count(self, size: int) -> None:
        self._budget.take(size)
        self._bytes += size
        allowed = max(RATIO_FREE_BYTES, self._limits.ratio_max * self._archive_bytes)
        if self._bytes > allowed:
            raise CallerError(
                "archive-bomb",
                f"{self._what}: {self._archive_bytes} bytes unpack to more than {int(allowed)}; "
                f"a ratio above {self._limits.ratio_max:g} is refused",
                hint="If the model really holds that many equal bytes, use an uncompressed .tar.",
            )

    def _link_target(self, member: ArchiveMember, path: str) -> str | None:
        """None: it is left out."""
        # A hard link counts from the archive's root, a symbolic link from its own folder.
        base = "" if member.kind == "hardlink" else posixpath.dirname(path)
        link = member.link
        if link.startswith("/") or "\\" in link or not link.isprintable():
            if self._limits.drops_links:
                return None
            raise self._unsafe(member.name, f"it is a link to {shown(link)}")
        target = posixpath.normpath(posixpath.join(base, link))
        if target == ".." or target.startswith(("../", "/")):
            if self._limits.drops_links:
                return None
            raise self._unsafe(member.name, f"it is a link to {shown(link)}, outside the archive")
        return target

    def _make_links(self) -> None:
        for path, first in self._links.items():
            target = first
            seen = {path}
            while target in self._links:
                if target in seen:
                    raise self._unsafe(path, "it is a link to itself")
                seen.add(target)
                target = self._links[target]
            if target not in self._files:
                if self._limits.drops_links:
                    continue
                raise self._unsafe(
                    path, f"it is a link to {shown(first)}, which is not a file in the archive"
                )
            for passed in seen:  # shorten a long chain of links, so that it is followed once
                self._links[passed] = target
            with disk_errors(self._what, self._to):
                os.link(self._to / target, self._to / path, follow_symlinks=False)
            self.digests[path] = self.digests[target]

    def _unsafe(self, name: str, cause: str) -> CallerError:
        return CallerError(
            "archive-unsafe",
            f"{self._what}: the member {shown(name)} is refused: {cause}",
            hint="Pack plain files and folders only: tar -czhf model.tar.gz -C my_model . "
            "(-h stores what links point to).",
        )
