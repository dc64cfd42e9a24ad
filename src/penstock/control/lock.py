"""One server per state directory.

An advisory lock on a file in it: the operating system frees it when its holder dies, by whatever
means, so there is no stale lock to clean up. The holder's pid is in the file, for the message only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from penstock.control.state_dir import make_state_dir
from penstock.errors import CallerError, NotNowError


class StateDirLock:
    """Held from construction to `release`. The file itself stays.

    Raises:
        CallerError: `state-dir-in-use`, naming the other server's pid.
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
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the pid
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
