"""The standard output of a child process, read on the running loop.

Instead of `connect_read_pipe`: uvloop's closes the pipe's number itself, and where the child ends
or the caller is cancelled while it connects it leaves the file object open. When that object is
collected it closes the same number again, which by then is somebody else's: a connection, or the
database. Here the file object alone closes it, on any loop.
"""

from __future__ import annotations

import asyncio
import os
from typing import IO, Final

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
