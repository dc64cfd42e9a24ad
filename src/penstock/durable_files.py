"""Files that exist as a whole or not at all, even after a full disk or a power cut."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import CallerError

#: Mode of a server's own files (keys, metrics): they show who calls it and how much, so only its
#: user may read them.
PRIVATE = 0o600


def replace_file(
    path: Path, parts: Iterable[bytes], *, mode: int | None = PRIVATE, draft: str = ""
) -> None:
    """Creates or replaces the file at `path`; after this it survives a power cut.

    Only one process at a time may use the same draft name. Raises OSError (disk full, no such
    folder): then the old file is unchanged, and no draft is left.

    Args:
        mode: permissions, reduced by the user's umask; None = the umask decides alone.
        draft: name of the file while it is written.
    """
    beside = path.with_name(draft or f".{path.name}.new")
    # An existing draft may be a link to another file, so it is never written to.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, flags, 0o666 if mode is None else mode)
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:  # an error while the parts are made, too
        with contextlib.suppress(OSError):  # the error of the writing is the one to report
            beside.unlink(missing_ok=True)
        raise
    sync(path.parent)  # else a power cut could take the new name back


def check_output(path: Path) -> None:
    """Checks a file that a command will write, before its work begins.

    Raises CallerError `output-impossible`.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise _impossible(path, f"there is no folder {folder}")
    if path.is_dir():
        raise _impossible(path, "it is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise _impossible(path, "it may not be written to")


@contextmanager
def output(path: Path) -> Iterator[None]:
    """Writes such a file. Raises CallerError `output-impossible` for an error of the disk."""
    check_output(path)
    try:
        yield
    except OSError as error:
        raise _impossible(path, error.strerror or str(error)) from error


def _impossible(path: Path, why: str) -> CallerError:
    return CallerError(
        "output-impossible",
        f"{path} can't be written: {why}",
        hint="Make the folder first, or give another file.",
    )


def sync(path: Path) -> None:
    """Writes a file's bytes, or a folder's names, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Locks an open file or folder for this process, unless another one has it locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_abandoned(folders: Iterable[Path]) -> None:
    """Removes folders that no process has locked: whoever made them was killed."""
    for folder in folders:
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                if try_lock(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
