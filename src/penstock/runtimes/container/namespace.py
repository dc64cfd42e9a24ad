"""Connections to a container's server over sockets that were made in its network namespace.

The attendant's child makes them and passes them here. They are connected to the container's own
loopback, so no port of this machine, no bridge and no process lies between. Where the namespace
can't be entered (the engine's daemon is another user's, or another machine's), connections go to a
published port, if there is one.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

import orjson

_LOOPBACK: Final = "127.0.0.1"
_MESSAGE_BYTES_MAX: Final = 4096
#: Most sockets of a message; with fewer than the second number left, more are asked for.
_SOCKETS_MAX, _SOCKETS_LOW = 64, 4


class NamespaceSockets:
    """Use `connected` as `HttpClientSpec.opened`, and `close` when the container has ended."""

    def __init__(
        self,
        attendant: socket.socket,
        *,
        port_inside: int,
        published: int,
        runs: Callable[[int], None],
    ) -> None:
        """
        Args:
            attendant: the connection to the attendant and its child.
            published: port of this machine that leads to `port_inside`; 0 = none.
            runs: called with the id of the container's first process, once it is there.
        """
        self._attendant = attendant
        self._port_inside = port_inside
        self._published = published
        self._runs = runs
        self._made: deque[socket.socket] = deque()
        self._own_address = ""  #: the container's; "" = it has none
        self._asked = True  #: the first come unasked
        self._entered = self._ended = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        attendant.setblocking(False)
        self._loop.add_reader(attendant.fileno(), self._hear)

    async def wait_known(self) -> None:
        """Waits until it is known which way connections go: from then on `connected` is of use."""
        while not self._entered and not self._ended:
            await self._heard()

    async def connected(self) -> socket.socket:
        """Raises OSError: nobody listens, or the container has ended."""
        await self.wait_known()
        if not self._entered and self._published:
            return await self._connect(socket.socket(), _LOOPBACK, self._published)
        made = await self._socket()
        try:
            return await self._connect(made, _LOOPBACK, self._port_inside)
        except ConnectionRefusedError:
            if not self._own_address:
                raise
            return await self._connect(await self._socket(), self._own_address, self._port_inside)

    async def _connect(self, made: socket.socket, address: str, port: int) -> socket.socket:
        made.setblocking(False)
        try:
            await self._loop.sock_connect(made, (address, port))
        except BaseException:
            made.close()
            raise
        return made

    async def _socket(self) -> socket.socket:
        while not self._made:
            if self._ended:
                raise ConnectionRefusedError("the container has ended")
            self._ask()
            await self._heard()
        made = self._made.popleft()
        if len(self._made) < _SOCKETS_LOW:
            self._ask()
        return made

    def _ask(self) -> None:
        if self._asked or self._ended:
            return
        self._asked = True
        try:
            self._attendant.send(b"+")
        except OSError:
            self.close()

    async def _heard(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _hear(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._attendant, _MESSAGE_BYTES_MAX, _SOCKETS_MAX
            )
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            made = socket.socket(fileno=descriptor)
            made.set_inheritable(False)
            self._made.append(made)
        if not data:
            self.close()
            return
        told = orjson.loads(data)
        if "pid" in told:
            self._runs(told["pid"])
        else:
            self._own_address = told["address"]
            self._entered, self._asked = True, False
        self._news.set()

    def close(self) -> None:
        """Idempotent. Connections that were made go on."""
        if self._ended:
            return
        self._ended = True
        self._loop.remove_reader(self._attendant.fileno())
        self._attendant.close()
        while self._made:
            self._made.pop().close()
        self._news.set()
