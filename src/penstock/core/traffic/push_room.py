"""How many more requests an endpoint takes now without letting them wait long: what a region says.

Whoever pushes work from outside (`core/traffic/`) sends no more than this, so that nothing queues
up in a region while another could begin it at once. A copy has room for

    what it runs at once           lanes * rows of a batch; sequences of an engine
    + its rate * AHEAD_S           what its queue works off before a push from far away arrives

less what it has outstanding, and never for more than it may hold. The second term is next to
nothing for a model that takes seconds, and keeps one that takes a millisecond busy over a long way.
An engine that generates has none: beyond its sequences a request waits until another's whole answer
is written (in the twin of three regions, twice the sequences made P99 of the first token 6.1 s
instead of 0.6 s). All its sequences are told of. To keep one in eight back, for what is on its way
on older news, shortens the first token at half load (there, 0.58 s instead of 0.66 s) and costs an
eighth of the capacity where it is short: with a region lost, requests took up to 6.0 s to find
another place instead of 2.6 s (bench/regions.py).

What a copy holds beyond that waits: it takes the next places that fall free there (`overfull`).
An endpoint that is asleep and holds what comes has room for one request: the one that wakes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

#: A round trip between continents; what the queue works off meanwhile costs nobody a wait.
AHEAD_S: Final = 0.15


class CopyRoom(NamedTuple):
    """One copy that may be sent to."""

    outstanding: int
    outstanding_max: int
    at_once: int  #: requests that run together, of all lanes
    rate_rps: float = 0.0  #: answers a second at the best seen lately; 0 = nothing seen yet
    generates: bool = False  #: an engine with continuous batching
    slots: int = 0  #: set by hand, in place of what is worked out here


def slots_of(copy: CopyRoom) -> int:
    """Requests that a copy may hold so that none waits much longer than `AHEAD_S`.

    Before a rate was seen a second batch may wait behind the first.
    """
    if copy.slots:
        return min(copy.slots, copy.outstanding_max)
    if copy.generates:
        return min(copy.at_once, copy.outstanding_max)
    ahead = int(copy.rate_rps * AHEAD_S) if copy.rate_rps > 0 else copy.at_once
    return min(copy.at_once + ahead, copy.outstanding_max)


def room_of(copies: Iterable[CopyRoom], *, waiting: int, holds: bool) -> int:
    """Room of all copies together.

    Args:
        waiting: requests that wait for a copy: while any does there is no room.
        holds: what comes while there is no copy waits for one.
    """
    if waiting:
        return 0
    known = list(copies)
    if not known:
        return 1 if holds else 0
    return sum(max(0, slots_of(copy) - copy.outstanding) for copy in known)


def overfull(copies: Iterable[CopyRoom]) -> int:
    """Requests on copies that have more than they have slots: their next answers free no place."""
    return sum(max(0, copy.outstanding - slots_of(copy)) for copy in copies)
