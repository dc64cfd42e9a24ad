"""Which copies give waiting requests back when another one of their variant has less to do.

A request waits in the queue of the copy that it was sent to. A copy that becomes ready later, or is
well again, would stand idle beside those queues; so whenever that happens the copies of its variant
are levelled: each is to have its fair share of what is outstanding, and one that has more is asked
to give back the difference. How many of its requests have not begun only the copy knows: it gives
back those, at most as many as it was asked for, and the gateway routes them again.

Of what waits every so-manieth goes, the oldest first (`evenly`): those that stay and those that go
are served side by side in the order in which they came, as if both copies had shared one queue.

`Rebalancer` is a machine: `changed` when copies or their health have changed, `answered` when a
copy has given back what it had, `gone` when it can't any more. While one is asked nothing else is
decided, for the counts are about to change; a change meanwhile is looked at afterwards.

It does not know what strategy routes, and levels by counts alone, and by what a request costs where
copies are of different speed: what is given back goes to another copy than it came from, the
strategy's choice. Nothing is moved for a difference of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

#: (variant, inference component or ""): copies that any request of theirs may go to.
Group = tuple[str, str]


class CopyLoad(NamedTuple):
    """A copy that may be picked."""

    copy: int
    outstanding: int
    outstanding_max: int
    cost: float = 1.0  #: of a request on it; 1 on the fastest


class GiveBack(NamedTuple):
    """Ask a copy for up to `requests` that wait."""

    copy: int
    requests: int
    reason: str = "above-fair-share"


def level(loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
    """What is to be given back so that no copy has two more than another one with room."""
    if len(loads) < 2:
        return ()
    total = sum(load.outstanding for load in loads)
    shares = 1.0 / sum(1.0 / load.cost for load in loads)
    busiest_first = sorted(loads, key=lambda load: (-load.outstanding, load.copy))
    targets = {load.copy: int(total * shares / load.cost) for load in busiest_first}
    # Who has most keeps what does not divide: nothing moves that need not.
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
    """`count` of those that wait, spread over them, the first included; all where there are no
    more."""
    if count >= len(waiting):
        return list(waiting)
    return [waiting[at * len(waiting) // count] for at in range(count)]


class Rebalancer:
    """Of one variant."""

    __slots__ = ("_again", "_asked")

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}  #: copy -> requests it was asked for
        self._again = False  #: something changed while copies were asked

    def changed(self, loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        """A copy became ready, or well again. Carry the actions out."""
        if self._asked:
            self._again = True
            return ()
        return self._level(loads)

    def answered(self, copy: int, loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        """A copy has given back all that it will; `loads` with these routed again."""
        if self._asked.pop(copy, None) is None or self._asked or not self._again:
            return ()
        return self._level(loads)

    def gone(self, copies: Sequence[int], loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        """The connection to these copies is lost: they give back nothing more in answer."""
        lost = [copy for copy in copies if self._asked.pop(copy, None) is not None]
        if not lost or self._asked or not self._again:
            return ()
        return self._level(loads)

    def expects(self, copy: int) -> bool:
        """Whether a copy was asked and has not answered: what else it gives back is no answer."""
        return copy in self._asked

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {"asked": dict(self._asked), "again": self._again}

    def _level(self, loads: Sequence[CopyLoad]) -> tuple[GiveBack, ...]:
        self._again = False
        asked = level(loads)
        self._asked = {one.copy: one.requests for one in asked}
        return asked
