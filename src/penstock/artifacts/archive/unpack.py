"""Unpacks an untrusted archive (tar, tar.gz, zip) into a new folder of plain files and folders.

What an archive may not do: leave the folder, make links, devices or pipes, name one path twice, be
larger than it may, or pretend to be whole when it was cut short. Links to files inside the archive
become hard links of the unpacked file, so no symbolic link ever exists on disk and no path can be
redirected by one. Set-user bits and write permission are dropped; the execute bit is kept.

The formats are parsed by `tarfile` and `zipfile` in `readers.py`; the rules are here.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.artifacts.archive.readers import ArchiveMember, archive_kind, tar_members, zip_members
from penstock.artifacts.files.budget import Budget, disk_errors
from penstock.artifacts.files.listing import CHUNK_BYTES
from penstock.artifacts.files.paths import is_clutter, safe_path, shown
from penstock.errors import CallerError

#: Below this size no ratio is suspicious: a few megabytes of zeros harm nobody.
RATIO_FREE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackLimits:
    """Bounds beside the budget's bytes and seconds."""

    members_max: int = 20_000
    ratio_max: float = 200.0  #: unpacked bytes per archive byte, above RATIO_FREE_BYTES


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
    """The error for a file that should be an archive and is none that is read here."""
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
        self._links: dict[str, str] = {}  #: path -> path of its target, both inside
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
        if path in self._files or path in self._links or path in self._folders:
            raise self._unsafe(member.name, "the archive names this path twice")
        self._make_folder(posixpath.dirname(path))
        if member.kind == "file":
            self._files.add(path)
            self._write(member, path)
        else:
            self._links[path] = self._link_target(member, path)

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
        """Bytes that are not kept take time all the same, so they count like the others."""
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

    def _link_target(self, member: ArchiveMember, path: str) -> str:
        # A hard link counts from the archive's root, a symbolic link from its own folder.
        base = "" if member.kind == "hardlink" else posixpath.dirname(path)
        link = member.link
        if link.startswith("/") or "\\" in link or not link.isprintable():
            raise self._unsafe(member.name, f"it is a link to {shown(link)}")
        target = posixpath.normpath(posixpath.join(base, link))
        if target == ".." or target.startswith(("../", "/")):
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
                raise self._unsafe(
                    path, f"it is a link to {shown(first)}, which is not a file in the archive"
                )
            for passed in seen:  # none of a long chain of links is followed again
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
