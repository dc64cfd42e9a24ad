"""Requests that no region has room for, each with a deadline of its own.

Requests that may go to the same regions form one line (`core/waiting_lines.py`). A request that was
sent before and came back unanswered is older than all that were never sent: such requests form
lines of their own, which are ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from penstock.core.waiting_lines import WaitingLines


@dataclass(frozen=True, slots=True)
class RegionRequest:
    """What the choice of a region depends on, for one request."""

    allowed: tuple[str, ...]
    session: str | None
    prefix: bytes | None
    exclude: tuple[str, ...]
    again: bool = False  #: it was sent before


class HeldQueue(WaitingLines[tuple[tuple[str, ...], str], RegionRequest]):
    """The queue of held requests; its lines: (regions they may go to, their session's or "")."""

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        super().__init__()
        self._deadlines: list[tuple[float, int]] = []  #: may contain requests that are gone

    def hold(
        self, asked: RegionRequest, regions: tuple[str, ...], session_region: str, deadline: float
    ) -> int:
        """Puts a request at the end of its line, until `deadline` (s); returns its ticket."""
        ticket = self.add(asked, (regions, session_region), ahead=asked.again)
        heappush(self._deadlines, (deadline, ticket))
        return ticket

    def wait_for(self, region: str, *, again: bool) -> bool:
        """Whether a held request would go to this region before one that comes now."""
        return any(
            region == session_region if session_region else region in allowed
            for (allowed, session_region), sent_before in self.lines()
            if sent_before or not again
        )

    def next_deadline(self) -> float | None:
        """The earliest deadline of a held request."""
        while self._deadlines and self._deadlines[0][1] not in self._places:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expired(self, *, now: float) -> Iterator[tuple[int, RegionRequest]]:
        """Requests whose deadline has passed, by ticket; each is removed."""
        while True:
            deadline = self.next_deadline()
            if deadline is None or now < deadline:
                return
            ticket = heappop(self._deadlines)[1]
            asked = self.find(ticket)
            self.remove(ticket)
            yield ticket, asked

    def check_invariants(self) -> None:
        super().check_invariants()
        alive = [ticket for _, ticket in self._deadlines if ticket in self._places]
        assert sorted(alive) == sorted(self._places), "a request has no deadline, or two"
