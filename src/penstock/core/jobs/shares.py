"""Which copy does which span next: each has a share of neighbours, and steals when it is empty.

A copy works through its share in order, so that it reads neighbouring data. A copy with an empty
share takes the farther half of the longest share, as in work stealing schedulers (Blumofe and
Leiserson, 1999): copies of any speed end within about a span of each other, and few spans change
hands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from penstock.core.jobs.spec import SPAN_BYTES, Span

FIRST: Final = "next-in-share"
STOLEN: Final = "stolen"

#: Spans per instance: enough that a slower one can give some away.
_SPANS_EACH: Final = 16
#: Below this size the way to an instance and back costs too much.
_SPAN_BYTES_MIN: Final = 256 * 1024


def span_bytes_for(bytes_total: int, instances: int) -> int:
    """Bytes per span of a job: many spans for each instance, and none so large that much is lost
    when it must be done again."""
    wanted = bytes_total // (instances * _SPANS_EACH)
    return max(_SPAN_BYTES_MIN, min(wanted, SPAN_BYTES))


class SpanQueues:
    """Spans that have not begun, by the copy that is to do them."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._free: deque[Span] = deque(spans)  #: spans in no copy's share
        self._shares: dict[int, deque[Span]] = {}  #: by copy; no share is empty

    def __len__(self) -> int:
        return len(self._free) + sum(len(share) for share in self._shares.values())

    def keep(self, copies: Collection[int]) -> None:
        """Returns the shares of copies that are gone to the free spans."""
        for copy in sorted(self._shares.keys() - set(copies)):
            self._free.extend(self._shares.pop(copy))

    def take(self, copy: int, copies: int) -> tuple[Span, str] | None:
        """The next span of a copy, and the reason; None while there is none to begin.

        Args:
            copies: number of copies: each takes its part of the free spans.
        """
        reason = FIRST
        if copy not in self._shares:
            if self._free:
                self._take_part(copy, max(copies - len(self._shares), 1))
            elif self._shares:
                self._steal(copy)
                reason = STOLEN
            else:
                return None
        share = self._shares[copy]
        span = share.popleft()
        if not share:
            del self._shares[copy]
        return span, reason

    def drop(self, object_number: int) -> None:
        """No further span of this object is begun."""
        self._free = deque(one for one in self._free if one.object != object_number)
        for copy, share in list(self._shares.items()):
            left = deque(one for one in share if one.object != object_number)
            if left:
                self._shares[copy] = left
            else:
                del self._shares[copy]

    def clear(self) -> None:
        self._free.clear()
        self._shares.clear()

    def _take_part(self, copy: int, takers: int) -> None:
        count = -(-len(self._free) // takers)
        self._shares[copy] = deque(self._free.popleft() for _ in range(count))

    def _steal(self, copy: int) -> None:
        victim = min(self._shares, key=lambda one: (-len(self._shares[one]), one))
        share = self._shares[victim]
        count = (len(share) + 1) // 2
        stolen = deque(share.pop() for _ in range(count))
        stolen.reverse()
        if not share:
            del self._shares[victim]
        self._shares[copy] = stolen
