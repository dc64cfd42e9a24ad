"""What gRPC connections have sent of messages that are not complete, and which calls it ends.

grpcio delivers messages only as a whole, and does not say how much of one has come. But the kernel
counts the bytes of each connection (TCP_INFO). `core/request/arriving.py` makes of it what is
unfinished, which is taken from the budget for bodies. Where that is more than gRPC's half of the
budget, the connection that has sent most loses its calls whose messages have not come.

The counts are read every `LOOK_S` while a message is awaited, of many connections less often, so
what comes in that time may be held beside the budget.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote

from penstock.core.request.arriving import ArrivingMessages
from penstock.core.request.body_budget import BodyBudget

LOOK_S: Final = 0.1
#: Of so many connections the counts are read in `LOOK_S`: less than a hundredth of a processor.
_LOOKED_AT_MAX: Final = 100
#: Where `tcpi_bytes_received` is in the kernel's `struct tcp_info` (linux/tcp.h), and its size.
_RECEIVED_AT, _RECEIVED_BYTES = 128, 8
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)

Address = tuple[str, int]


class AwaitedMessage:
    """A call whose next message is awaited. `cut` ends the call."""

    __slots__ = ("cut", "peer")

    def __init__(self, peer: str, cut: Callable[[], None]) -> None:
        self.peer = peer
        self.cut = cut


class _Arriving:
    """One connection with calls whose messages are awaited."""

    __slots__ = ("bytes_taken", "messages", "socket")

    def __init__(self, found: PeerSocket) -> None:
        self.socket = found
        self.messages = ArrivingMessages[AwaitedMessage]()
        self.bytes_taken = 0  #: of the budget


class Arrivals:
    """The connections of one server. `free_bytes`: of each awaited message so many are not
    counted."""

    def __init__(self, budget: BodyBudget, free_bytes: int) -> None:
        self._budget = budget
        self._free_bytes = free_bytes
        self._bytes_max = budget.bytes_max // 2  # the other doors need room as well
        self._bytes_taken = 0
        self._peers: dict[str, _Arriving] = {}
        self._timer: asyncio.TimerHandle | None = None

    def await_message(self, awaited: AwaitedMessage) -> bool:
        """From now on counts what comes of its next message. False: that can't be counted."""
        peer = self._peers.get(awaited.peer)
        if peer is None:
            found = find_socket(awaited.peer)
            if found is None:
                return False
            peer = _Arriving(found)
        received = peer.socket.received()
        if received is None:
            return False
        self._peers[awaited.peer] = peer
        peer.messages.awaits(awaited, received=received)
        if self._timer is None:
            self._look_later()
        return True

    def delivered(self, peer: str, size: int) -> None:
        """A message of this connection has come."""
        found = self._peers.get(peer)
        if found is not None:
            found.messages.delivered(size)

    def ended(self, awaited: AwaitedMessage) -> None:
        """Its message is not awaited any more. Idempotent."""
        peer = self._peers.get(awaited.peer)
        if peer is None:
            return
        peer.messages.ended(awaited)
        if not len(peer.messages):
            self._take(peer, 0)
            del self._peers[awaited.peer]

    def _look(self) -> None:
        self._timer = None
        for peer in list(self._peers.values()):
            received = peer.socket.received()
            if received is not None:
                free = self._free_bytes * len(peer.messages)
                unfinished = peer.messages.unfinished(received=received) - free
                if not self._take(peer, max(0, unfinished)):
                    self._cut(max(self._peers.values(), key=lambda one: one.bytes_taken))
                    break
        if self._peers:
            self._look_later()

    def _look_later(self) -> None:
        pause_s = LOOK_S * max(1.0, len(self._peers) / _LOOKED_AT_MAX)
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._look)

    def _take(self, peer: _Arriving, size: int) -> bool:
        """Takes so much of the budget for a connection. False: there is not so much; then it has
        what there is."""
        more = size - peer.bytes_taken
        room = min(self._bytes_max - self._bytes_taken, self._budget.bytes_free)
        taken = min(more, max(0, room))
        if taken > 0:
            self._budget.take(taken)
        elif taken < 0:
            self._budget.give(-taken)
        peer.bytes_taken += taken
        self._bytes_taken += taken
        return taken == more

    def _cut(self, peer: _Arriving) -> None:
        for awaited in peer.messages.streams:
            awaited.cut()


class PeerSocket:
    """A connection of grpcio's, which may close it and give its number to another at any time."""

    __slots__ = ("_descriptor", "_inode")

    def __init__(self, descriptor: int, inode: int) -> None:
        self._descriptor = descriptor
        self._inode = inode

    def received(self) -> int | None:
        """The bytes that it has received; None where it is closed."""
        try:
            if os.fstat(self._descriptor).st_ino != self._inode:
                return None
            with _borrowed(self._descriptor) as found:
                size = _RECEIVED_AT + _RECEIVED_BYTES
                info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        except OSError:
            return None
        return int.from_bytes(info[_RECEIVED_AT:], "little") if len(info) == size else None


def countable(peer: str) -> bool:
    """Whether a name of a connection, as grpcio has it, is that of a TCP connection."""
    return peer.startswith(("ipv4:", "ipv6:"))


def find_socket(peer: str) -> PeerSocket | None:
    """This process's socket of a connection; None where it is not found."""
    wanted = _address(peer)
    if wanted is None:
        return None
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed meanwhile, or is no connection
            descriptor = int(name)
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            inode = os.fstat(descriptor).st_ino
            with _borrowed(descriptor) as found:
                if found.family in _FAMILIES and _plain(found.getpeername()) == wanted:
                    return PeerSocket(descriptor, inode)
    return None


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()  # it belongs to grpcio


def _address(peer: str) -> Address | None:
    """Of a name as grpcio has it, such as `ipv4:127.0.0.1:5000` or `ipv6:[::1]:5000`."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _plain((host.strip("[]"), int(port)))


def _plain(name: tuple[object, ...]) -> Address | None:
    """An address of a socket, where IPv4 is always written as such."""
    try:
        host = ipaddress.ip_address(str(name[0]).partition("%")[0])
    except (ValueError, IndexError):
        return None
    mapped = getattr(host, "ipv4_mapped", None)
    return str(mapped or host), int(str(name[1]))
