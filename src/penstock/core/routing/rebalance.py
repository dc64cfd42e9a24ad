"""Which copies give waiting requests back when another copy of their group has less to do.

A request waits in the queue of the copy that it was sent to. A copy that becomes ready later, or is
healthy again, would be idle beside those queues. So whenever that happens the copies of its group
are levelled: each should have its fair share of the outstanding requests, and a copy that has more
is asked to give back the difference. Only the copy knows how many of its requests have not begun:
it gives back at most as many as requested, and the gateway routes them again.

The returned requests are picked evenly from the queue, the oldest first (`evenly`). So those that
stay and those that go are served in the order in which they came, as if both copies shared a queue.

`Rebalancer` is a machine: call `changed` when copies or their health have changed, `answered` when
a copy has given back its requests, `gone` when it no longer can. While a copy is asked nothing else
is decided, for the counts are about to change; a change in the meantime is handled afterwards.

It does not know the routing strategy. It levels by counts, weighed by the cost of a request where
copies have different speeds. A returned request goes to another copy than it came from, chosen by
the strategy. A difference of one moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class CopyLoad(NamedTuple):
    """The load of a copy that may be picked."""

    copy: int
    outstanding: int
    outstanding_max: int
    cost: float = 1.0  #: relative cost of a request on it; 1 on the fastest


class GiveBack(NamedTuple):
    """Ask a copy for up to `requests` waiting requests."""

    copy: int
    requests: int
    reason: str = "above-fair-share"


def level(loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
    """What must be given back so that no copy has two more than another one with room."""
    if len(loads) < 2:
        return ()
    total = sum(load.outstanding for load in loads)
    shares = 1.0 / sum(1.0 / load.cost for load in loads)
    busiest_first = sorted(loads, key=lambda load: (-load.outstanding, load.copy))
    targets = {load.copy: int(total * shares / load.cost) for load in busiest_first}
    # The copies with most requests keep the remainder: nothing moves without need.
    for load in busiest_first[: total - sum(targets.values())]:
        targets[load.copy] += 1
    room = sum(
        max(0, min(targets[load.copy], load.outstanding_max) - load.outstanding) for load in loads
    )
    asked = []
    for load in busiest_first:
        above = min(load.outstanding - targets[load.copy], room)
        if above > 0:
            room -= above
            asked.append(GiveBack(load.copy, above))
    return tuple(asked)


def evenly(waiting: Sequence[T], count: int) -> list[T]:
    """`count` of the waiting items, spread evenly, the first included; all if there are no more."""
    if count >= len(waiting):
        return list(waiting)
    return [waiting[at * len(waiting) // count] for at in range(count)]


class Rebalancer:
    """The rebalancing of one group of copies."""

    __slots__ = ("_again", "_asked")

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}  #: copy -> number of requests that it was asked for
        self._again = False  #: something changed while copies were asked

    def changed(self, loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        """A copy became ready, or healthy again. Carry the actions out."""
        if self._asked:
            self._again = True
            return ()
        return self._level(loads)

    def answered(self, copy: int, loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        """A copy has given back all that it will; `loads` include these after routing."""
        if self._asked.pop(copy, None) is None or self._asked or not self._again:
            return ()
        return self._level(loads)

    def gone(self, copies: Sequence[int], loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        """The connection to these copies is lost: no answer will come from them."""
        lost = [copy for copy in copies if self._asked.pop(copy, None) is not None]
        if not lost or self._asked or not self._again:
            return ()
        return self._level(loads)

    def expects(self, copy: int) -> bool:
        """Whether a copy was asked and has not answered; other returns are no answers."""
        return copy in self._asked

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {"asked": dict(self._asked), "again": self._again}

    def _level(self, loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        self._again = False
        asked = level(loads)
        self._asked = {one.copy: one.requests for one in asked}
        return asked
