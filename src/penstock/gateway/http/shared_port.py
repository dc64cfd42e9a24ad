"""A port that several processes share (SO_REUSEPORT), reserved for them.

The kernel lets any process of the same user join such a port. So the port is first bound
exclusively: a second server gets the error that the port is in use, and does not take half of the
first one's requests. Then sockets that never listen hold it: while gateways come and go, nobody who
asks for any free port gets its number, and each connection goes to a gateway that listens.

In a server that may follow or lead, the sockets listen too (`listen`). If a client connects after
one part of the server has ended and before the next has begun, it waits in the kernel, and whoever
accepts at `sockets` serves it.
"""

from __future__ import annotations

import socket

from penstock.gateway.http.listener import BACKLOG, listen_error


class SharedPort:
    """Reserves the port from construction until `close`."""

    def __init__(self, host: str, port: int) -> None:
        """Raises CallerError: port-in-use, address-unknown, port-forbidden."""
        self.port = port
        self._held: list[socket.socket] = []
        self.listens = False
        try:
            found = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, kind, protocol, _, address in dict.fromkeys(found):
                at = (address[0], self.port, *address[2:])
                self.port = _bind(family, kind, protocol, at, self._held)
        except OSError as cause:
            self.close()
            raise listen_error(cause, host, port) from cause

    def listen(self) -> None:
        """From now on no client is refused. Raises CallerError: port-in-use."""
        try:
            for one in self._held:
                one.listen(BACKLOG)
        except OSError as cause:
            raise listen_error(cause, "", self.port) from cause
        self.listens = True

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening sockets; copies of them accept connections."""
        return self._held if self.listens else []

    def close(self) -> None:
        """Idempotent."""
        for one in self._held:
            one.close()
        self._held = []


def _bind(
    family: int, kind: int, protocol: int, address: tuple[object, ...], held: list[socket.socket]
) -> int:
    """Binds one address and returns the port. Raises OSError."""
    with _socket(family, kind, protocol) as alone:
        alone.bind(address)
        address = (address[0], alone.getsockname()[1], *address[2:])
    kept = _socket(family, kind, protocol)
    held.append(kept)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind(address)
    return int(kept.getsockname()[1])


def _socket(family: int, kind: int, protocol: int) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    # As servers do, so that closed connections do not block the port.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made
