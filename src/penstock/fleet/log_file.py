"""An instance's log file: private, with several writers, and at most twice its bound on disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import BinaryIO, Final

from penstock.errors import NotNowError

#: A log larger than this is moved aside (to `.1`, one old file), even while others write to it.
LOG_BYTES_MAX: Final = 64 * 2**20


def open_log(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_name(path.name + ".1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotNowError(
            "log-not-writable",
            f"the log file {path} can't be opened: {error.strerror}",
            hint="Free disk space or correct the permissions of the state directory.",
        ) from error
    return os.fdopen(descriptor, "ab", buffering=0)


def put_aside(path: Path) -> None:
    """Copies the log and empties it: the instance goes on writing at the end of the same file."""
    aside = path.with_name(path.name + ".1")
    try:
        shutil.copyfile(path, aside)
    except OSError:  # no room for two files: the newer lines matter more
        aside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.truncate(path, 0)


def append(log: BinaryIO, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk must not end an instance
        log.write(data)
