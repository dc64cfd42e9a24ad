"""A port that several processes are going to share (SO_REUSEPORT), kept for them.

The kernel lets any process of the same user join such a port. So it is first taken as nobody else's
(a second server is told that the port is in use, and does not answer half of the first one's
requests), and then held by sockets that never listen: while gateways come and go its number is
given to nobody who asks for any free one, and each connection goes to a gateway that listens.

A server that may follow or lead has them listen (`listen`): who connects while one part of it has
ended and the next has not begun waits in the kernel, and is served by whoever takes `sockets`.
"""

from __future__ import annotations

import socket

from penstock.gateway.http.listener import BACKLOG, listen_error


class SharedPort:
    """Kept from its making until `close`."""

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
        """From now on nobody is refused. Raises CallerError: port-in-use."""
        try:
            for one in self._held:
                one.listen(BACKLOG)
        except OSError as cause:
            raise listen_error(cause, "", self.port) from cause
        self.listens = True

    @property
    def sockets(self) -> list[socket.socket]:
        """Those that listen: to be accepted at, by copies of them."""
        return self._held if self.listens else []

    def close(self) -> None:
        """Idempotent."""
        for one in self._held:
            one.close()
        self._held = []


def _bind(
    family: int, kind: int, protocol: int, address: tuple[object, ...], held: list[socket.socket]
) -> int:
    """The port that was taken at one address. Raises OSError."""
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
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: past connections
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made
