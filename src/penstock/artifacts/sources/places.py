"""Which places of this machine a URI may name: one check for all front doors, readers and writers.

A caller's URI is read and written with the server's rights, so the server's own files are closed to
all callers: its state directory, keys, sockets and temporary folders, and the kernel's views of
processes and devices. A URI into a bucket that is mapped to a folder (`s3_local`) can't leave it.

Names prove nothing: links, `..`, `/proc/self/root` and bind mounts give the same folder other
names. So a path is resolved before it is compared, folders are also compared by device and inode,
and an opened file is checked again, since a link may have appeared in between.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.artifacts.files.paths import shown
from penstock.errors import CallerError

#: The kernel shows processes and devices there: no data, and some of it secret.
_OF_THE_SYSTEM: Final = ("/proc", "/sys", "/dev")
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a folder as others are
#: Prefixes of our folders in the machine's folder of temporary files: sockets, models' processes,
#: objects that are being read.
_TEMPORARY: Final = ("penstock-run-", "penstock-model-", "penstock-input-")

_Identity = tuple[int, int]  #: device and inode


@dataclass(frozen=True, slots=True)
class Fence:
    """Places that a path must stay out of, and folders that it must stay in."""

    closed: tuple[str, ...] = ()  #: folders and files that no caller may name
    within: tuple[str, ...] = ()  #: folders that no link may lead out of, none of them

    def inside(self, folder: Path) -> Fence:
        """The same fence for a place below a folder."""
        return replace(self, within=(*self.within, os.path.realpath(folder)))

    def check(self, path: Path, what: str) -> None:
        """Checks a path, which need not exist. Raises `CallerError` (`place-refused`,
        `artifact-link-refused`)."""
        # POSIX lets a path begin with two slashes of special meaning; to Linux they are one.
        _check_system("/" + os.path.normpath(path).lstrip("/"), what)
        self._check_real(path, "/" + os.path.realpath(path).lstrip("/"), what)

    def check_open(self, descriptor: int, path: Path, what: str) -> os.stat_result:
        """Checks a file that was opened by `path`, which may have changed since; returns its facts.

        Raises as `check` does, and OSError.
        """
        facts = os.fstat(descriptor)
        if stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode):
            self._check_real(path, os.readlink(f"/proc/self/fd/{descriptor}"), what)
        if (
            stat.S_ISREG(facts.st_mode) and not facts.st_nlink
        ):  # a file in memory, or a deleted one that some process still has open
            raise _refused(what, "it is a file without a name")
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1 and _id(facts) in self._own_files():
            raise _refused(what, "it is another name of a file of the server's own")
        return facts

    @contextmanager
    def folder(self, path: Path, what: str) -> Iterator[Path]:
        """The folder itself, created if missing, under a path that no link can change.

        A file put below that path lands in this very folder. Raises as `check` does, and
        OSError.
        """
        self.check(path, what)
        make_folders(path)
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.check_open(descriptor, path, what)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def _check_real(self, path: Path, real: str, what: str) -> None:
        """Checks `real`, which `path` became when its links were resolved."""
        _check_system(real, what)
        if self._is_closed(real):
            raise _refused(what, "it is a place of the server's own")
        for folder in self.within:
            if not _is_in(real, folder):
                raise CallerError(
                    "artifact-link-refused",
                    f"{what}: {shown(str(path))} leads to {shown(real)}, outside {shown(folder)}",
                    hint="Copy what the link leads to in its place.",
                )

    def _is_closed(self, real: str) -> bool:
        for folder in {os.path.realpath(tempfile.gettempdir()), "/tmp"}:  # noqa: S108 - compared
            name = real.removeprefix(f"{folder}/").partition("/")[0] if _is_in(real, folder) else ""
            if name == f"penstock-{os.getuid()}" or name.startswith(_TEMPORARY):
                return True
        if any(_is_in(real, os.path.realpath(each)) for each in self.closed):
            return True
        closed = set(_identities(self.closed))
        return bool(closed) and not closed.isdisjoint(_identities(_upwards(real)))

    def _own_files(self) -> set[_Identity]:
        """Identities of the files directly in closed folders: keys and the database are among
        them."""
        found = set(_identities(self.closed))
        for folder in self.closed:
            try:
                with os.scandir(folder) as entries:
                    found.update(_id(entry.stat()) for entry in entries if entry.is_file())
            except OSError:
                continue  # a file, or missing
        return found


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A checked path that a URI means, and the fence to check again when it is opened."""

    path: Path
    fence: Fence


def make_folders(path: Path) -> None:
    """Creates a folder and its parents, none with more rights than the folder that contains it.

    Raises OSError.
    """
    if path.is_dir():
        return
    make_folders(path.parent)
    path.mkdir(mode=0o777 & _granted(path.parent), exist_ok=True)


def file_mode(folder: Path) -> int:
    """Mode of a new file there, before the umask: a reader needs the right to enter its folder.

    Raises OSError.
    """
    return 0o666 & _granted(folder)


def _granted(folder: Path) -> int:
    """All rights of the owner, and the rights of others who may enter the folder."""
    mode = folder.stat().st_mode
    return 0o700 | sum(bits for bits in (0o070, 0o007) if mode & bits & 0o555)


def _check_system(path: str, what: str) -> None:
    if any(_is_in(path, each) for each in _OF_THE_SYSTEM) and not _is_in(path, _SHARED_MEMORY):
        raise _refused(what, "it is a place of the system's")


def _is_in(real: str, folder: str) -> bool:
    return real == folder or real.startswith(folder.rstrip(os.sep) + os.sep)


def _upwards(real: str) -> Iterator[str]:
    yield real
    yield from map(str, Path(real).parents)


def _identities(paths: Iterator[str] | tuple[str, ...]) -> Iterator[_Identity]:
    for path in paths:
        try:
            yield _id(os.stat(path))
        except OSError:
            continue  # a missing place belongs to nobody


def _id(facts: os.stat_result) -> _Identity:
    return facts.st_dev, facts.st_ino


def _refused(what: str, cause: str) -> CallerError:
    return CallerError(
        "place-refused",
        f"{what}: nothing is read or written there: {cause}",
        hint="Name a folder of your own, outside of the server's state directory and not above it.",
    )
