"""Where packages go: a store holds the archives of one location.

A store lists its contents by name, size and the digest in an archive's first bytes, so it needs no
index that could disagree: an archive is recognised whoever copied it there. Uploading is atomic: a
reader sees the old archive or the new one.

In a folder, an archive is written to a draft, synced, and renamed.

A draft has a name that servers leave out of every listing, and its writer locks it. The operating
system frees the lock when the writer dies, in whatever way; so a draft that is left over differs
from one that another run is writing. Nothing is ever written outside of the folder, even if a link
in it leads there.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.sources.places import file_mode, make_folders
from penstock.core.apply.plan import Content
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.packaging.archive import HEAD_BYTES, digest_in

#: Prefix of drafts: listings of artifacts leave out names that begin with "._", as on macOS.
DRAFT_PREFIX = "._penstock-upload-"


class DirectoryStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def contents(self, names: frozenset[str], *, all_of_ours: bool) -> Mapping[str, Content]:
        found = {}
        try:
            for name in self._names() if all_of_ours else names:
                content = _content(self._folder / name)
                if content is not None and (name in names or content.digest):
                    found[name] = content
        except OSError as error:
            raise self._failed("read", error) from error
        return found

    def left_over(self) -> list[str]:
        try:
            return [
                name
                for name in self._names()
                if name.rpartition("/")[2].startswith(DRAFT_PREFIX)
                and not _in_use(self._folder / name)
            ]
        except OSError as error:
            raise self._failed("read", error) from error

    def put(self, name: str, source: Path) -> None:
        try:
            target = self._at(name)
            self._check_inside(target.parent)
            make_folders(target.parent)
            draft = target.with_name(f"{DRAFT_PREFIX}{secrets.token_hex(8)}")
            _put(source, draft, target)
        except OSError as error:
            raise self._failed("written", error) from error

    def remove(self, name: str) -> None:
        try:
            target = self._at(name)
            self._check_inside(target.parent)
            target.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed("written", error) from error

    def _at(self, name: str) -> Path:
        path = safe_path(name, where=str(self._folder))
        assert path, "an artifact has a name"
        return self._folder / path

    def _names(self) -> Iterator[str]:
        """Names of all files below the folder. Links are not followed."""
        for top, folders, files in os.walk(self._folder):
            folders.sort()
            for file in sorted(files):
                yield Path(top, file).relative_to(self._folder).as_posix()

    def _check_inside(self, folder: Path) -> None:
        if not folder.resolve().is_relative_to(self._folder.resolve()):
            raise CallerError(
                "location-link-refused",
                f"{folder} leads out of {self._folder}",
                hint="Remove the link; artifacts are written below their location only.",
            )

    def _failed(self, verb: str, error: OSError) -> PenstockError:
        return NotNowError(
            "location-failed",
            f"{self._folder} can't be {verb}: {error.strerror or error}",
            hint="Check the folder's permissions and the disk that holds it, and run it again.",
        )


def _content(path: Path) -> Content | None:
    """Size and digest of a plain file; None where there is none. A link does not count, since a
    change of its target would change the archive."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if path.is_symlink():
            return Content(digest="", size=0)
        if path.exists():
            raise
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return Content(digest="", size=0)
        return Content(digest=digest_in(file.read(HEAD_BYTES)), size=facts.st_size)


def _put(source: Path, draft: Path, target: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(draft, flags, file_mode(draft.parent))
    try:
        with os.fdopen(descriptor, "wb") as file, source.open("rb") as original:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            shutil.copyfileobj(original, file, 1024 * 1024)
            file.flush()
            os.fsync(descriptor)
            draft.replace(target)  # still locked, so that it does not look left over
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _in_use(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True  # the upload has finished since
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class PackageStore(Protocol):
    """One location. Several threads may call its methods; each raises `PenstockError`."""

    def contents(self, names: frozenset[str], *, all_of_ours: bool) -> Mapping[str, Content]:
        """The files under `names`; with `all_of_ours`, every archive with a digest too."""

    def left_over(self) -> list[str]:
        """Names of drafts whose run died before the upload ended."""

    def put(self, name: str, source: Path) -> None:
        """Uploads the archive, replacing one that exists."""

    def remove(self, name: str) -> None:
        """Removes an archive or a left-over draft; does nothing if it is gone."""


def open_store(location: str) -> PackageStore:
    """The store of a location: s3://BUCKET/PREFIX/ or file:///FOLDER/."""
    if location.startswith("s3://"):
        from penstock.packaging.s3_store import S3Store  # noqa: PLC0415 - obstore, when it is used

        return S3Store(location)
    return DirectoryStore(Path(unquote(urlsplit(location).path)))
