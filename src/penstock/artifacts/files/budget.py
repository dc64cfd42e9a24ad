"""How much time and disk one artifact may take.

Each preparation has one `Budget`. Fetching and unpacking call `take` for the bytes that they write
and `check` wherever they may go on for long. A budget knows neither the source nor the target.
nor where to.
"""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.clock import Clock, SystemClock
from penstock.core.request.storage_failures import storage_error
from penstock.errors import CallerError, NotNowError

#: Space that stays free beside an artifact, for the database and the logs on the same disk.
DISK_RESERVE_BYTES = 64 * 1024 * 1024


class Budget:
    """The bounds of one preparation; raises when one is passed."""

    def __init__(
        self,
        what: str,
        *,
        bytes_max: int,
        seconds_max: float,
        clock: Clock | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self.what = what  #: the artifact's URI, without secrets
        self.bytes_max = bytes_max
        self._bytes_taken = 0
        self._seconds_max = seconds_max
        self._clock = clock or SystemClock()
        self._deadline = self._clock.monotonic() + seconds_max
        self._cancelled = cancelled

    def remaining_s(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._deadline - self._clock.monotonic())

    def check(self) -> None:
        """Raises `NotNowError` when the time is over or the caller no longer wants the artifact."""
        if self._cancelled is not None and self._cancelled.is_set():
            raise NotNowError(
                "artifact-cancelled", f"{self.what}: given up, the model is no longer wanted"
            )
        if self._clock.monotonic() >= self._deadline:
            raise NotNowError(
                "artifact-timeout",
                f"{self.what}: not ready after {self._seconds_max:g} s",
                hint="Check the speed of the source, or raise "
                "ModelDataDownloadTimeoutInSeconds of the variant.",
            )

    def take(self, size: int) -> None:
        """Accounts for `size` more bytes on disk; raises `CallerError` beyond the bound."""
        self._bytes_taken += size
        if self._bytes_taken > self.bytes_max:
            raise too_large(self.what, f"more than {self.bytes_max} bytes", self.bytes_max)
        self.check()

    def expect(self, size: int, folder: Path) -> None:
        """Refuses, before the first byte, an announced size beyond the bound or the disk's free
        space."""
        if size > self.bytes_max - self._bytes_taken:
            raise too_large(self.what, f"{size} bytes", self.bytes_max)
        free = shutil.disk_usage(folder).free
        if size + DISK_RESERVE_BYTES > free:
            cause = f"{size} bytes are needed, {DISK_RESERVE_BYTES} are to stay free, {free} are"
            raise _disk_full(self.what, folder, cause)


def too_large(what: str, size: str, bytes_max: int) -> CallerError:
    """The error for an artifact beyond its bound."""
    return CallerError(
        "artifact-too-large",
        f"{what}: the artifact is {size}; the bound is {bytes_max} bytes",
        hint="Leave out of the artifact what serving does not need, or raise the bound.",
    )


@contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Turns a full or failing disk below `folder` into an error that names it: NotNowError where
    the disk may have room, or work, again; CallerError where the folder can't be written at all."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(what, folder, str(error.strerror)) from error
        raise storage_error(
            error,
            "artifact-disk-failed",
            f"{what}: cannot write {error.filename or folder}: {error.strerror or error}",
            hint=f"Check the permissions and the health of the disk that holds {folder}.",
        ) from error


def _disk_full(what: str, folder: Path, cause: str) -> NotNowError:
    return NotNowError(
        "artifact-disk-full",
        f"{what}: no room for the artifact in {folder}: {cause}",
        hint="Free space on that disk, delete models that are not used, or start the server with "
        "--state-dir on a larger disk.",
    )
