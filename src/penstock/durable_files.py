"""Files that are there whole or not at all, also behind a full disk or a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

#: What a server keeps of itself (keys, metrics) says who calls it and how much: nobody else's.
PRIVATE = 0o600


def replace_file(path: Path, parts: Iterable[bytes], *, mode: int | None = PRIVATE) -> None:
    """Makes or replaces the file at `path`; after this it survives a power cut.

    One process at a time may do so. Raises OSError (disk full, no such folder): the old file is
    untouched, and nothing lies beside it.

    Args:
        mode: who may read it; None = as the user's umask has it.
    """
    draft = path.with_name(f".{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        descriptor = os.open(draft, flags, 0o666 if mode is None else mode)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)  # a draft may have been left by an older version
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:  # also what making the parts raises
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)  # else a power cut could take the new name back


def sync(path: Path) -> None:
    """Brings a file's bytes, or a folder's names, onto the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
