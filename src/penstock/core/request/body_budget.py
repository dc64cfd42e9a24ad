"""One budget for the bodies of all requests, from their first byte until they are answered.

Both doors that read bodies from the network, HTTP and gRPC, use the same object; so memory is
bounded whatever the number of connections. What does not fit is refused at once: a body that waits
for room can't be served in time either.

Bytes are counted as they come and not as they are announced: a head that promises a body takes
nothing. When there is no room, `UnfinishedBodies` looks at the senders: the peer with the most
unfinished bytes makes room first, so that a few slow senders can't keep all others out. Complete
bodies are never cut, as their requests are being served.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: s. A body that is unfinished after this time makes room for others of its own peer. A body of 6
#: MiB then came with less than 5 Mbit/s, and the request that it delays could come in one piece.
SLOW_S = 10.0


class BodyBudget:
    """Bytes of bodies that may be held. Not thread-safe: one event loop uses it.

    Attributes:
        bytes_taken: held now.
    """

    __slots__ = ("bytes_max", "bytes_taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0

    def take(self, n: int) -> bool:
        """Takes `n` bytes; if they don't fit, returns False and takes nothing."""
        taken = self.bytes_taken + n
        if taken > self.bytes_max:
            return False
        self.bytes_taken = taken
        return True

    def give(self, n: int) -> None:
        """Gives back `n` bytes."""
        self.bytes_taken -= n
        assert self.bytes_taken >= 0, "more was given back than taken"

    @property
    def bytes_free(self) -> int:
        return self.bytes_max - self.bytes_taken

    def missing(self, n: int) -> int:
        """How many of `n` more bytes do not fit; 0 = they fit."""
        return max(0, self.bytes_taken + n - self.bytes_max)


Sender = TypeVar("Sender", bound=Hashable)


@dataclass(slots=True)
class _Peer(Generic[Sender]):
    """The unfinished bodies of one peer."""

    bytes_held: int = 0
    #: sender -> (bytes, monotonic s of the first byte), in the order in which they began
    bodies: dict[Sender, tuple[int, float]] = field(default_factory=dict)


class UnfinishedBodies(Generic[Sender]):
    """Unfinished bodies, and which of them must make room. It only decides; the caller cuts."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer[Sender]] = {}

    def __len__(self) -> int:
        return sum(len(peer.bodies) for peer in self._peers.values())

    def grown(self, sender: Sender, name: str, size: int, *, now: float) -> None:
        """The body of `sender`, which belongs to the peer `name`, has `size` bytes so far."""
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = _Peer()
        before, began = peer.bodies.get(sender, (0, now))
        peer.bodies[sender] = (size, began)
        peer.bytes_held += size - before

    def ended(self, sender: Sender, name: str) -> None:
        """The body is complete or refused, or its sender is gone. Unknown ones are ignored."""
        peer = self._peers.get(name)
        if peer is None:
            return
        size, _ = peer.bodies.pop(sender, (0, 0.0))
        peer.bytes_held -= size
        if not peer.bodies:
            del self._peers[name]

    def making_room(self, wanted: int, name: str, *, now: float) -> list[Sender]:
        """The senders whose bodies to cut so that the peer `name` gets `wanted` bytes; [] = none.

        The peer that holds most is cut, its oldest bodies first. That is another peer than `name`
        if it holds more than `name` would. Of `name` itself only bodies older than `SLOW_S` are
        cut.
        """
        if not self._peers:
            return []
        largest = max(self._peers, key=lambda each: (self._peers[each].bytes_held, each))
        own = self._peers.get(name)
        with_it = wanted + (own.bytes_held if own is not None else 0)
        fair = largest != name and self._peers[largest].bytes_held > with_it
        chosen: list[Sender] = []
        freed = 0
        for sender, (size, began) in self._peers[largest].bodies.items():
            if not fair and now - began < SLOW_S:
                break  # the others are younger
            chosen.append(sender)
            freed += size
            if freed >= wanted:
                return chosen
        return []


def peer_name(address: str) -> str:
    """The peer of an address: for IPv6 its network, since every host has 2**64 addresses there."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
