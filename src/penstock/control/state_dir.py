"""A server's state directory: private to its user, and used by one server at a time.

An advisory lock on a file in it keeps other servers out. The operating system frees the lock when
its process ends in any way, so there is no stale lock to clean up. The file holds the process id,
only for the error message.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from penstock.errors import CallerError, NotNowError

#: Files that only a state directory of ours has.
_OURS: Final = ("penstock.db", "lock")


def make_private(path: Path) -> None:
    """Makes a directory below the state directory, mode 0700.

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
    """Makes the directory, mode 0700, or makes a state directory of ours private again. Raises
    OSError.

    A directory with other people's files keeps its mode: `--state-dir /tmp` must not lock everybody
    else out of it. Our files in it are private in any case.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        ours = any((path / name).exists() for name in _OURS)
        if ours or not any(path.iterdir()):
            path.chmod(0o700)


class StateDirLock:
    """Locked from construction to `release`. The file itself stays.

    Raises:
        CallerError: `state-dir-in-use`, with the other server's pid.
        NotNowError: `state-not-writable`.
    """

    def __init__(self, state_dir: Path) -> None:
        path = state_dir / "lock"
        try:
            make_state_dir(state_dir)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotNowError(
                "state-not-writable",
                f"the state directory {state_dir} can't be written: {error.strerror}",
                hint="Choose another with --state-dir, or correct its permissions.",
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise CallerError(
                "state-dir-in-use",
                f"the state directory {state_dir} is in use by another server"
                + (f" (pid {holder})" if holder else ""),
                hint="Stop that server, or choose another directory with --state-dir.",
            ) from None
        with contextlib.suppress(OSError):  # if the disk is full, the lock works without the pid
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
