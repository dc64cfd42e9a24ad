"""Forwards connections to the server of a container that has no network.

`python forward.py FD PID`: FD is a listening socket, made outside; PID is the container's first
process. A socket stays in the network namespace in which it was made: so this process enters the
container's, goes on accepting outside, and connects inside. The container itself gets no way out.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PORT = 8080  #: `command.PORT_INSIDE`


def enter(pid: str) -> None:
    """Raises OSError. An engine without root has its containers in a user namespace, which gives
    the right to enter theirs."""
    if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
        _set(f"/proc/{pid}/ns/user", _CLONE_NEWUSER)
    _set(f"/proc/{pid}/ns/net", _CLONE_NEWNET)


def _set(place: str, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, kind):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(Path(place)))
    finally:
        os.close(descriptor)


class Half(asyncio.Protocol):
    """One end of a forwarded connection. Each reads no faster than the other can write."""

    def __init__(self, other: Half | None = None) -> None:
        """`other`: the end outside, for which this one is made inside."""
        self._inside = other is not None
        self.other = other
        self.transport: asyncio.Transport | None = None
        if other is not None:
            other.other = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._inside:
            transport.pause_reading()
            self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        assert self.transport is not None
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: Half(self), "127.0.0.1", _PORT)
        except OSError:
            self.transport.abort()  # nobody listens yet, or any more
        else:
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Plain servers write head and body apart, and Nagle's algorithm holds the second until the
        first is acknowledged: 40 ms later, unless the kernel is told not to wait."""
        if self._inside and self.transport is not None:
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """A client may close its half and still read. Where the server closes, all is over."""
        if self._inside:
            return False
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """What was read before is written first, unless the end was a reset."""
        if self.other is not None and self.other.transport is not None:
            (self.other.transport.close if exc is None else self.other.transport.abort)()


async def forward(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(Half, sock=listener)
    await server.serve_forever()


def main() -> int:
    descriptor, pid = sys.argv[1:]
    listener = socket.socket(fileno=int(descriptor))
    try:
        enter(pid)
    except OSError as error:
        print(f"penstock: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    asyncio.run(forward(listener))
    return 0


if __name__ == "__main__":
    sys.exit(main())
