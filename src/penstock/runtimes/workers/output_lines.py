"""The standard output of a worker process, cut into lines for the instance's log."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

_LINE_BYTES_MAX = 8192  #: longer lines are cut there


class OutputLines:
    """Reads a pipe until its end on the running loop and hands over each line."""

    def __init__(self, read_end: int, log: Callable[[str], None]) -> None:
        self._fd = read_end
        self._log = log
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(read_end, False)
        self._loop.add_reader(read_end, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._log(line[:_LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r"))

    def close(self) -> None:
        """Hands over an unfinished last line. Idempotent."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(fd)
        os.close(fd)
        if self._rest:
            self._log(self._rest.decode("utf-8", "replace"))
            self._rest = b""
