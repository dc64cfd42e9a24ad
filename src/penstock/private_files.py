"""Files that only their user may read, and that are there whole or not at all.

What a server keeps of itself (keys, metrics) says who calls it and how much: it is nobody else's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Makes or replaces the file at `path`, mode 0600; after this it survives a power cut.

    One process at a time may do so. Raises OSError (disk full, no such folder): the old file is
    untouched.
    """
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # the draft of an older version may be there
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Else a power cut could take the new name back."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
