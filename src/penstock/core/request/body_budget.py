"""One budget for the bodies of all requests, from their first byte until they are answered.

Both doors that take bodies off a wire, HTTP and gRPC, take from the one object; memory is bounded
by it whatever the number of connections. What does not fit is refused at once: a body that waits
for room can't be served in time either.

Bytes are taken as they come and not as they are announced: a head that promises a body holds
nothing. When there is no room, who sends is looked at (`UnfinishedBodies`): the peer with the most
unfinished bytes makes room first, so that few slow senders can't keep all others out. Bodies that
are whole are never cut, their requests are being served.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: A body that is still unfinished after this time makes room for others of its own sender. At 6 MiB
#: it has come with less than 5 Mbit/s, and the request that it delays would be there in one piece.
SLOW_S = 10.0


class BodyBudget:
    """Bytes of bodies that may be held. Not for threads: one event loop uses it.

    Attributes:
        bytes_taken: held now.
    """

    __slots__ = ("bytes_max", "bytes_taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0

    def take(self, n: int) -> bool:
        """Takes `n` bytes; False, and nothing is taken, where they don't fit."""
        taken = self.bytes_taken + n
        if taken > self.bytes_max:
            return False
        self.bytes_taken = taken
        return True

    def give(self, n: int) -> None:
        """Gives back what was taken."""
        self.bytes_taken -= n
        assert self.bytes_taken >= 0, "more was given back than taken"

    def missing(self, n: int) -> int:
        """How many bytes too few there are for `n` more; 0 = they fit."""
        return max(0, self.bytes_taken + n - self.bytes_max)


Sender = TypeVar("Sender", bound=Hashable)


@dataclass(slots=True)
class _Peer(Generic[Sender]):
    """The unfinished bodies of one peer."""

    bytes_held: int = 0
    #: sender -> (bytes, monotonic s of its first), in the order in which they began
    bodies: dict[Sender, tuple[int, float]] = field(default_factory=dict)


class UnfinishedBodies(Generic[Sender]):
    """Bodies that are not whole yet, and which of them make room. Decides, and cuts nothing."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer[Sender]] = {}

    def __len__(self) -> int:
        return sum(len(peer.bodies) for peer in self._peers.values())

    def grown(self, sender: Sender, name: str, size: int, *, now: float) -> None:
        """The body that `sender`, of the peer `name`, is sending has `size` bytes so far."""
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = _Peer()
        before, began = peer.bodies.get(sender, (0, now))
        peer.bodies[sender] = (size, began)
        peer.bytes_held += size - before

    def ended(self, sender: Sender, name: str) -> None:
        """It is whole, or refused, or its sender is gone. Harmless for one that is not known."""
        peer = self._peers.get(name)
        if peer is None:
            return
        size, _ = peer.bodies.pop(sender, (0, 0.0))
        peer.bytes_held -= size
        if not peer.bodies:
            del self._peers[name]

    def making_room(self, wanted: int, name: str, *, now: float) -> list[Sender]:
        """Whose bodies are to be cut so that the peer `name` gets `wanted` bytes; [] = nobody's.

        The peer that holds most is cut, its oldest bodies first: another than `name` if it holds
        more than `name` would, `name` itself only of what has been coming for `SLOW_S`.
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
                break  # those behind it are younger
            chosen.append(sender)
            freed += size
            if freed >= wanted:
                return chosen
        return []


def peer_name(address: str) -> str:
    """Who an address stands for: of IPv6 its network, since every host there has 2**64 of them."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
