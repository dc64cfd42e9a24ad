"""The standard output of a child process, read on the running loop.

Instead of `connect_read_pipe`: uvloop's closes the pipe's number itself, and where the child ends
or the caller is cancelled while it connects it leaves the file object open. When that object is
collected it closes the same number again, which by then is somebody else's: a connection, or the
database. Here the file object alone closes it, on any loop.

The file that an instance's log is: appended to by several, private, and never larger than two of
its bounds on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import IO, BinaryIO, Final

from penstock.errors import NotNowError

_READ_BYTES: Final = 65536


class OutputPipe(asyncio.ReadTransport):
    """Reads `pipe` into `reader`, no faster than that is emptied, until its end or `close`."""

    def __init__(self, pipe: IO[bytes], reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._pipe = pipe
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        reader.set_transport(self)
        self.resume_reading()

    def pause_reading(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())

    def resume_reading(self) -> None:
        if not self._pipe.closed:
            self._loop.add_reader(self._pipe.fileno(), self._readable)

    def is_closing(self) -> bool:
        return self._pipe.closed

    def close(self) -> None:
        """Idempotent. Who reads learns of an end."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self._reader.feed_eof()

    def _readable(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._reader.feed_data(data)
        else:
            self.close()


#: A log that has grown past this is put aside (`.1`, one deep), whoever is still writing it.
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
    """Copies and empties: the instance goes on writing to the same file, at its end."""
    aside = path.with_name(path.name + ".1")
    try:
        shutil.copyfile(path, aside)
    except OSError:  # no room for two of them: the newer lines count
        aside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.truncate(path, 0)


def append(log: BinaryIO, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk must not end an instance
        log.write(data)
