"""Requests that wait for a place, and the order in which they get one.

Requests that may go to the same places form one line. If the first of a line finds no place, nobody
behind it does, so a look costs one choice per line and not per request. Of the lines' first
requests the one that has waited longest goes first. Lines *ahead* go before all others.

`TrafficRouter` keeps requests for regions in such lines, a gateway (and its twin) those for copies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, Generic, TypeVar

# Results of a request's turn.
GONE: Final = "gone"  #: it waits no longer
STAYS: Final = "stays"
BLOCKS: Final = "blocks"  #: stays, and nobody behind it in its line finds a place either

Key = TypeVar("Key", bound=Hashable)
Request = TypeVar("Request")


_NOBODY: Final[OrderedDict[int, Any]] = OrderedDict()


class WaitingLines(Generic[Key, Request]):
    """The requests that wait. The caller limits their number."""

    __slots__ = ("_lines", "_places", "_ticket")

    def __init__(self) -> None:
        self._ticket = 0  #: the last ticket; they count up
        #: ticket -> (its line, whether that is ahead)
        self._places: dict[int, tuple[Key, bool]] = {}
        self._lines: dict[tuple[Key, bool], OrderedDict[int, Request]] = {}  #: by ticket

    def __len__(self) -> int:
        return len(self._places)

    def add(self, request: Request, key: Key, *, ahead: bool = False) -> int:
        """Puts a request at the end of a line; returns its ticket."""
        self._ticket = ticket = self._ticket + 1
        self._places[ticket] = place = (key, ahead)
        self._lines.setdefault(place, OrderedDict())[ticket] = request
        return ticket

    def find(self, ticket: int) -> Request:
        """A request that waits."""
        return self._lines[self._places[ticket]][ticket]

    def remove(self, ticket: int) -> bool:
        """Removes a request; False: it does not wait."""
        place = self._places.pop(ticket, None)
        if place is None:
            return False
        line = self._lines[place]
        del line[ticket]
        if not line:
            del self._lines[place]
        return True

    def lines(self) -> Collection[tuple[Key, bool]]:
        """Each line, and whether it is ahead."""
        return self._lines.keys()

    def line(self, key: Key) -> Collection[Request]:
        """The requests of a line that is not ahead, in order."""
        return self._lines.get((key, False), _NOBODY).values()

    def all(self) -> list[Request]:
        """All requests, line by line."""
        return [request for line in self._lines.values() for request in line.values()]

    def look(self, turn: Callable[[int, Request], str]) -> None:
        """Gives requests their turn, in order.

        `turn` gets ticket and request, and returns GONE, STAYS or BLOCKS. It removes a request that
        goes, and may remove and add others.
        """
        last = self._ticket
        firsts = [(not ahead, next(iter(line)), (key, ahead))
                  for (key, ahead), line in self._lines.items()]  # fmt: skip
        heapify(firsts)
        behind: dict[tuple[Key, bool], list[int]] = {}  #: where one stays: those after it, reversed
        while firsts:
            late, ticket, place = firsts[0]
            waits = self._places.get(ticket) == place
            result = turn(ticket, self._lines[place][ticket]) if waits else GONE
            if result == STAYS and place not in behind:
                behind[place] = [one for one in reversed(self._lines[place]) if one > ticket]
            following = None if result == BLOCKS else self._next(place, behind)
            if following is None or following > last:
                heappop(firsts)
            else:
                heapreplace(firsts, (late, following, place))

    def _next(
        self, place: tuple[Key, bool], behind: dict[tuple[Key, bool], list[int]]
    ) -> int | None:
        """The ticket whose turn is next in a line."""
        if place in behind:
            return behind[place].pop() if behind[place] else None
        line = self._lines.get(place)
        return next(iter(line)) if line else None

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables contradict each other."""
        tickets = [ticket for line in self._lines.values() for ticket in line]
        assert sorted(tickets) == sorted(self._places), "a request stands in no line, or in two"
        assert all(self._lines.values()), "an empty line"
        for place, line in self._lines.items():
            assert list(line) == sorted(line), "a line is out of order"
            assert all(self._places[ticket] == place for ticket in line), "it stands elsewhere"
