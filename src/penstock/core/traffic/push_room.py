"""How many more requests an endpoint can begin soon: the room that a region reports.

Whoever pushes work from outside (`core/traffic/`) sends no more than this, so that nothing queues
in one region while another could begin it at once. The room of a copy is

    what it runs at once           lanes * rows of a batch; sequences of an engine
    + its rate * AHEAD_S           what its queue completes before a push from far away arrives

less its outstanding requests, and never more than it may hold. The second term is close to nothing
for a model that takes seconds, and keeps a model that takes a millisecond busy over a long
distance. An engine that generates has no second term: beyond its sequences a request waits until
another's whole answer is written (in the twin of three regions, twice the sequences made P99 of the
first token 6.1 s instead of 0.6 s). All its sequences are reported. Keeping one in eight back, for
requests on their way on older reports, shortens the first token at half load (there, 0.58 s instead
of 0.66 s) and costs an eighth of the capacity where it is scarce: with a region lost, requests took
up to 6.0 s to find another place instead of 2.6 s (bench/regions.py).

What a copy holds beyond that waits: it takes the next places that become free there (`overfull`).
An endpoint that has scaled to zero and holds requests has room for one: the one that wakes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

#: s; a round trip between continents. What the queue completes meanwhile costs nobody a wait.
AHEAD_S: Final = 0.15


class CopyRoom(NamedTuple):
    """One copy that requests may be sent to."""

    outstanding: int
    outstanding_max: int
    at_once: int  #: requests that run together, over all lanes
    rate_rps: float = 0.0  #: answers per second at the best rate seen lately; 0 = none seen yet
    generates: bool = False  #: an engine with continuous batching
    slots: int = 0  #: set by hand; replaces the computed value; 0 = computed


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
        waiting: requests that wait for a copy: while there are any, there is no room.
        holds: requests that come while there is no copy wait for one.
    """
    if waiting:
        return 0
    known = list(copies)
    if not known:
        return 1 if holds else 0
    return sum(max(0, slots_of(copy) - copy.outstanding) for copy in known)


def overfull(copies: Iterable[CopyRoom]) -> int:
    """Requests beyond their copies' slots: the next answers of these copies free no place."""
    return sum(max(0, copy.outstanding - slots_of(copy)) for copy in copies)
