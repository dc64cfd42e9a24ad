"""The directory that holds a server's state: private to its user."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.errors import NotNowError

#: What only a state directory of ours holds.
_OURS: Final = ("penstock.db", "lock")


def make_private(path: Path) -> None:
    """Makes a directory of ours below the state directory, mode 0700.

    Raises NotNowError `state-not-writable`.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise NotNowError(
            "state-not-writable",
            f"{path} can't be made: {error.strerror}",
            hint="Free disk space, or correct the permissions of the state directory.",
        ) from error


def make_state_dir(path: Path) -> None:
    """Makes the directory, mode 0700, or makes one of ours private again. Raises OSError.

    A directory that holds other people's things keeps its mode: `--state-dir /tmp` must not lock
    everybody else out of it. The files in it are private in any case.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        ours = any((path / name).exists() for name in _OURS)
        if ours or not any(path.iterdir()):
            path.chmod(0o700)
