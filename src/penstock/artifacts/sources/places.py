"""Which places of this machine a URI may name: the one check of every door, reader and writer.

A caller's URI is read and written with the server's rights, so what is the server's own is closed
to all of them: its state directory, keys, sockets and temporary folders, and what the system shows
of processes and devices. A place in a bucket that is mapped to a folder (`s3_local`) stays in it.

Names are no proof: links, `..`, `/proc/self/root` and bind mounts lead to the same folder by other
names. So a path is resolved before it is compared, folders are compared by device and inode as
well, and what was opened is looked at again: a link may have come since.
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

#: What the kernel shows there of processes and devices is no data; some of it are secrets.
_OF_THE_SYSTEM: Final = ("/proc", "/sys", "/dev")
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a folder as others are
#: Names of our own folders in the machine's folder of temporary files: of sockets, of models'
#: processes, of objects that are being read.
_TEMPORARY: Final = ("penstock-run-", "penstock-model-", "penstock-input-")

_Identity = tuple[int, int]  #: device and inode


@dataclass(frozen=True, slots=True)
class Fence:
    """Where a place must not be, and what it must not leave."""

    closed: tuple[str, ...] = ()  #: folders and files that nobody names
    within: tuple[str, ...] = ()  #: folders that no link may lead out of, none of them

    def inside(self, folder: Path) -> Fence:
        """The same, for what lies below a folder."""
        return replace(self, within=(*self.within, os.path.realpath(folder)))

    def check(self, path: Path, what: str) -> None:
        """Of a path, which need not exist. Raises `CallerError` (`place-refused`,
        `artifact-link-refused`)."""
        # POSIX lets two slashes at the start mean something else; to Linux they are one.
        _check_system("/" + os.path.normpath(path).lstrip("/"), what)
        self._check_real(path, "/" + os.path.realpath(path).lstrip("/"), what)

    def check_open(self, descriptor: int, path: Path, what: str) -> os.stat_result:
        """Of what was opened by that path, whatever has become of the path since; its facts.

        Raises as `check` does, and OSError.
        """
        facts = os.fstat(descriptor)
        if stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode):
            self._check_real(path, os.readlink(f"/proc/self/fd/{descriptor}"), what)
        if (
            stat.S_ISREG(facts.st_mode) and not facts.st_nlink
        ):  # of a file in memory, or one that somebody else still has open
            raise _refused(what, "it is a file without a name")
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1 and _id(facts) in self._own_files():
            raise _refused(what, "it is another name of a file of the server's own")
        return facts

    @contextmanager
    def folder(self, path: Path, what: str) -> Iterator[Path]:
        """The folder itself, made if it is not there, by a path that no link can change.

        What is put below that path is put into this very folder. Raises as `check` does, and
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
        """`path` is `real`, where links have led."""
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
        """Of the files that lie right in what is closed: keys and the database are among them."""
        found = set(_identities(self.closed))
        for folder in self.closed:
            try:
                with os.scandir(folder) as entries:
                    found.update(_id(entry.stat()) for entry in entries if entry.is_file())
            except OSError:
                continue  # a file, or not there
        return found


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A path that a URI means, checked, and the fence that holds when it is opened."""

    path: Path
    fence: Fence


def make_folders(path: Path) -> None:
    """Makes a folder and those on the way to it, none open to more than the one it lies in.

    Raises OSError.
    """
    if path.is_dir():
        return
    make_folders(path.parent)
    path.mkdir(mode=0o777 & _granted(path.parent), exist_ok=True)


def file_mode(folder: Path) -> int:
    """Of a new file there, before the umask: nobody may read it who may not enter its folder.

    Raises OSError.
    """
    return 0o666 & _granted(folder)


def _granted(folder: Path) -> int:
    """All of the owner's, and what others have of whom the folder is open to."""
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
            continue  # what is not there is nobody's


def _id(facts: os.stat_result) -> _Identity:
    return facts.st_dev, facts.st_ino


def _refused(what: str, cause: str) -> CallerError:
    return CallerError(
        "place-refused",
        f"{what}: nothing is read or written there: {cause}",
        hint="Name a folder of your own, outside of the server's state directory and not above it.",
    )
