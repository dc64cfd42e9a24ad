"""Requests that no region has room for, in the order in which they came.

Requests that may go to the same regions form one line. Only the first of each line is looked at,
and of these the oldest goes first. A request that was sent before and came back unanswered is older
than all that were never sent: such requests form lines of their own, which go first. Each request
has a deadline of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

#: (regions that a request may go to, region of its session or "", whether it was sent before).
Line = tuple[tuple[str, ...], str, bool]


@dataclass(frozen=True, slots=True)
class RegionRequest:
    """What the choice of a region depends on, for one request."""

    allowed: tuple[str, ...]
    session: str | None
    prefix: bytes | None
    exclude: tuple[str, ...]
    again: bool = False  #: it was sent before


@dataclass(slots=True)
class HeldRequest:
    ticket: int
    asked: RegionRequest
    line: Line
    deadline: float  #: s; the request is refused at this time


class HeldQueue:
    """The queue of held requests; the caller limits its size."""

    __slots__ = ("_deadlines", "_lines", "_requests")

    def __init__(self) -> None:
        self._requests: dict[int, HeldRequest] = {}
        self._lines: dict[Line, OrderedDict[int, HeldRequest]] = {}
        self._deadlines: list[tuple[float, int]] = []  #: may contain requests that are gone

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: HeldRequest) -> None:
        self._requests[request.ticket] = request
        self._lines.setdefault(request.line, OrderedDict())[request.ticket] = request
        heappush(self._deadlines, (request.deadline, request.ticket))

    def asked(self, ticket: int) -> RegionRequest:
        return self._requests[ticket].asked

    def remove(self, ticket: int) -> bool:
        """Removes a request; False: it is not here."""
        request = self._requests.pop(ticket, None)
        if request is None:
            return False
        line = self._lines[request.line]
        del line[ticket]
        if not line:
            del self._lines[request.line]
        return True

    def firsts(self) -> list[HeldRequest]:
        """The first of each line, in the order in which they go."""
        firsts = [next(iter(line.values())) for line in self._lines.values()]
        return sorted(firsts, key=lambda request: (not request.asked.again, request.ticket))

    def wait_for(self, region: str, *, again: bool) -> bool:
        """Whether a held request would go to this region before one that comes now."""
        return any(
            region == session_region if session_region else region in allowed
            for allowed, session_region, sent_before in self._lines
            if sent_before or not again
        )

    def next_deadline(self) -> float | None:
        """The earliest deadline of a held request."""
        while self._deadlines and self._deadlines[0][1] not in self._requests:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expired(self, *, now: float) -> Iterator[HeldRequest]:
        """Requests whose deadline has passed; each is removed."""
        while True:
            deadline = self.next_deadline()
            if deadline is None or now < deadline:
                return
            ticket = heappop(self._deadlines)[1]
            request = self._requests[ticket]
            self.remove(ticket)
            yield request

    def check_invariants(self) -> None:
        tickets = [ticket for line in self._lines.values() for ticket in line]
        assert sorted(tickets) == sorted(self._requests), "a request stands in no line, or in two"
        assert all(self._lines.values()), "an empty line"
        for line in self._lines.values():
            assert list(line) == sorted(line), "a line is out of order"
        alive = [entry for entry in self._deadlines if entry[1] in self._requests]
        assert len(alive) == len(self._requests), "a request has no deadline, or two"
