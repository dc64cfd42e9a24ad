"""Files that are there whole or not at all, also behind a full disk or a power cut."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import CallerError

#: What a server keeps of itself (keys, metrics) says who calls it and how much: nobody else's.
PRIVATE = 0o600


def replace_file(
    path: Path, parts: Iterable[bytes], *, mode: int | None = PRIVATE, draft: str = ""
) -> None:
    """Makes or replaces the file at `path`; after this it survives a power cut.

    One process at a time may do so under one name of a draft. Raises OSError (disk full, no such
    folder): the old file is untouched, and nothing lies beside it.

    Args:
        mode: who may read it, as far as the user's umask lets them; None = as that has it.
        draft: what it is called while it is written.
    """
    beside = path.with_name(draft or f".{path.name}.new")
    # A draft that is there may be anybody's link to another file: it is not written to.
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
    except BaseException:  # also what making the parts raises
        with contextlib.suppress(OSError):  # what went wrong with the writing is what is told
            beside.unlink(missing_ok=True)
        raise
    sync(path.parent)  # else a power cut could take the new name back


def check_output(path: Path) -> None:
    """For a file that a person names for what a command makes: before the work, not behind it.

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
    """Writing such a file. Raises CallerError `output-impossible` for what the disk says."""
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
    """Brings a file's bytes, or a folder's names, onto the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
