"""What the router knows of one region: its room, the requests sent there, its health."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from penstock.core.routing.copies import CopyState
from penstock.core.routing.prefixes import TOKEN_BYTES
from penstock.core.traffic.health import RegionHealth
from penstock.core.traffic.spec import HealthSpec, RegionObserved, RegionSpec

#: Requests by which a region may be ahead of its ratio or behind it: room for prefixes that stay
#: together, and no debt that would be paid back in one burst.
CREDIT_MAX = 8.0
#: Weight of the newest answer in the average: some twenty answers count.
_NEWEST = 0.1


class RegionState:
    """One region. Only the router changes it."""

    __slots__ = (
        "_room", "_sends", "_waiting", "credit", "first_byte_s", "health", "in_flight", "order",
        "place", "ratio", "seen", "spec",
    )  # fmt: skip

    def __init__(self, order: int, spec: RegionSpec, health: HealthSpec) -> None:
        self.order = order  #: index in the spec: the tie-break
        self.spec = spec
        self.ratio = 0.0
        self.credit = 0.0  #: requests that it should have got by its ratio, minus those that it got
        #: average seen here, with network and work; None: no answer yet
        self.first_byte_s: float | None = None
        self.in_flight = 0  #: requests sent, not released
        self.health = RegionHealth(health)
        self.seen: RegionObserved | None = None  #: the last report
        #: how the tables of sessions and prefixes name it
        self.place = CopyState(order, spec.name, "", 0)
        self._room = 0  #: reported, less what was sent since, plus what came back since
        self._waiting = 0  #: reported: requests waiting there, which take the next free slots
        self._sends: deque[float] = deque()  #: times of sent requests that no report counts yet

    @property
    def name(self) -> str:
        return self.spec.name

    def serves(self, *, now: float) -> bool:
        """Whether requests may be sent there, as far as there is room. A region that answers probes
        but has reported nothing refuses the orchestrator, or is no region."""
        return self.seen is not None and self.health.is_open(now=now)

    def room(self, *, now: float) -> int:
        """Requests that may be sent there now."""
        room = self._room
        if self.spec.slots_max:
            room = min(room, self.spec.slots_max - self.in_flight)
        share = self.health.share(now=now)
        if share < 1.0:
            room = min(room, math.ceil(share * (self.in_flight + room)) - self.in_flight)
        return max(0, room)

    def heard(self, seen: RegionObserved, *, now: float) -> None:
        """Handles a report. One older than the last only shows that the region lives."""
        self.health.heard(now=now)
        if self.seen is not None and seen.said_at < self.seen.said_at:
            return
        self.seen = seen
        self.place.cache_bytes = TOKEN_BYTES * seen.cache_tokens
        sends = self._sends
        while sends and sends[0] <= seen.said_at:
            sends.popleft()
        self._room = seen.room - len(sends)
        self._waiting = seen.waiting

    def send(self, *, now: float) -> None:
        """Reserves a slot."""
        self.in_flight += 1
        self._room -= 1
        self._sends.append(now)

    def release(self, ok: bool | None, *, now: float) -> None:
        """Frees a slot; `ok` None: the client went away, which says nothing about the region."""
        assert self.in_flight > 0, f"more came back from {self.name} than was sent there"
        self.in_flight -= 1
        if len(self._sends) > self.in_flight:
            # a request that came back takes no room, whether it was counted or not
            self._sends.popleft()
        if self._waiting > 0:
            self._waiting -= 1
        else:
            self._room += 1
        if ok is not None:
            self.health.answered(ok, now=now)

    def began(self, first_byte_s: float) -> None:
        """The first byte of an answer came `first_byte_s` after the request was sent."""
        before = self.first_byte_s
        self.first_byte_s = (
            before + _NEWEST * (first_byte_s - before) if before is not None else first_byte_s
        )

    def snapshot(self, *, now: float) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {
            "region": self.name,
            "ratio": round(self.ratio, 4),
            "room": self.room(now=now),
            "in_flight": self.in_flight,
            "first_byte_s": self.first_byte_s,
            "sent_since_news": len(self._sends),
            **self.health.snapshot(now=now),
        }

    def check_invariants(self) -> None:
        assert self.in_flight >= len(self._sends), "more sends than requests"
        assert list(self._sends) == sorted(self._sends), "sends are not in their order"
        self.health.check_invariants()
