"""TLS handshakes, limited in number and in time.

An event loop's own TLS server does not count a client until its handshake is done. A client that
never sends would hold a socket and OpenSSL's buffers for a minute. So this file accepts connections
itself. If too many handshakes are under way, the oldest is cut: it has had the most time, and a
real client needs two round trips.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable

log = logging.getLogger(__name__)

#: Limit of a handshake, in s: two lost packets and their repeats take 7. nginx's 60 suit modems.
HANDSHAKE_S_MAX = 10.0
#: Handshakes at once; each holds some 60 KB.
HANDSHAKES_MAX = 256
#: Time for the client's side of the TLS shutdown, in s; after it the socket closes.
SHUTDOWN_S_MAX = 5.0
#: Connections accepted in one turn of the event loop, so that others need not wait long.
ACCEPTS_MAX = 64
#: Pause in s after nothing could be accepted for lack of descriptors or memory.
EXHAUSTED_S = 0.25
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TlsAcceptor:
    """Accepts on its sockets and passes on connections whose handshake is done."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        room: Callable[[], int],
    ) -> None:
        """`room`: how many more connections may be open, including those in a handshake."""
        self._context = context
        self._make_protocol = make_protocol
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._pending: dict[asyncio.Task[None], None] = {}  #: oldest first

    def __len__(self) -> int:
        """The number of handshakes under way."""
        return len(self._pending)

    def listen(self, host: str, port: int, *, backlog: int, reuse_port: bool) -> int:
        """Returns the port. Raises OSError."""
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            self._sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(backlog)
            self._watch(listening)
        return int(self._sockets[0].getsockname()[1])

    def accept_at(self, listening: socket.socket) -> None:
        """Accepts at a listening socket, which this acceptor owns from now on."""
        listening.setblocking(False)
        self._sockets.append(listening)
        self._watch(listening)

    def close(self) -> None:
        """Accepts no more and ends the handshakes under way. Idempotent."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []
        for task in list(self._pending):
            task.cancel()

    def _watch(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                accepted, _peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as cause:
                if cause.errno not in _EXHAUSTED:
                    log.warning("a connection could not be accepted: %s", cause)
                    return
                # The socket stays readable: without a pause this would be called again at once.
                log.warning("no connection can be accepted: %s", cause)
                self._loop.remove_reader(listening)
                self._loop.call_later(EXHAUSTED_S, self._watch, listening)
                return
            self._begin(accepted)

    def _begin(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # the client has gone already
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._shake_hands(accepted))
        self._pending[task] = None
        task.add_done_callback(lambda done: self._pending.pop(done, None))
        if len(self._pending) > HANDSHAKES_MAX or self._room() < 0:
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.cancel()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        # Ssl.SSLError is an OSError too; these are the client's fault.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
                ssl_shutdown_timeout=SHUTDOWN_S_MAX,
            )
