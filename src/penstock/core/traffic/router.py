"""Which region a request goes to; its slot there is reserved in the same step.

    filter   regions it is allowed to go to, that serve, that did not fail this very request
    room     only where there is room now (selective pushing): a request waits here, where any
             region that frees a slot can take it, and not in a distant queue that was short when
             it was last reported (Xia et al., EuroSys 2026, "SkyWalker")
    pick     the region of its session; the home region; the one that knows its prefix; by ratio

* A session stays in its region while that serves, and waits for room there; it is moved only where
  the region is gone.
* With a home region and mode AUTOMATIC a request goes home as long as there is room (`home`), as
  nothing is nearer; else to a region that knows its prefix, else to the one with the most room
  (`spill`).
* Otherwise by ratios: the region that is furthest behind its ratio (smooth weighted round robin). A
  region that knows the prefix comes before it, as long as it is not too far ahead of its own ratio.
  A ratio of 0 set by hand means that no new request goes there. A ratio that moved to 0 by itself
  means that none goes there while another region has room.
* Where no region is in use, those that answer with errors are used all the same (`last-resort`):
  the caller should see the error itself, and it may be the request's own.
* A request that finds no room is held here, in order, up to a number and a time. None is overtaken:
  a request that could take the place of a waiting one waits too. But a request that was sent before
  and came back unanswered is older than all that were never sent, and goes first.

The driver calls `released` after each `heard`, `release`, `probed` and `replace`, and at
`next_deadline`, and carries out what it returns. For every `Routed`, `release` is called once.

It must not know who listens to it, what is in a request, or what time it is. Prefixes and sessions
are kept in bounded tables, `core/routing`'s own, with regions in the place of copies.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from penstock.core.routing.copies import NoRoute, Routed
from penstock.core.routing.prefixes import PrefixIndex, is_alive
from penstock.core.routing.sessions import Sessions
from penstock.core.traffic.health import ANSWERS_STILL
from penstock.core.traffic.regions import CREDIT_MAX, RegionState
from penstock.core.traffic.spec import (
    AUTOMATIC,
    NO_REGION_SERVES,
    HeldForRegion,
    RegionObserved,
    TrafficSpec,
)
from penstock.core.waiting_lines import BLOCKS, GONE, WaitingLines

#: Bytes of a prompt that are compared: about a thousand tokens, the longest system prompts in use.
PREFIX_BYTES_MAX = 4096
#: s. Slots become free within tenths of a second; an earlier retry finds the same queue.
_RETRY_AFTER_S = 1.0

_NOT_ALLOWED = NoRoute("no-region-allowed", None)
_TOO_MANY = NoRoute("held-too-many", _RETRY_AFTER_S)
_TOO_LONG = NoRoute("held-too-long", _RETRY_AFTER_S)
#: A request that waited for a region that does not serve did not wait for room.
_NO_REGION = NoRoute(NO_REGION_SERVES, _RETRY_AFTER_S)


@dataclass(frozen=True, slots=True)
class RegionRequest:
    """What the choice of a region depends on, for one request."""

    allowed: tuple[str, ...]
    session: str | None
    prefix: bytes | None
    exclude: tuple[str, ...]
    again: bool = False  #: it was sent before


class HeldQueue(WaitingLines[tuple[tuple[str, ...], str], RegionRequest]):
    """Requests that no region has room for; lines: (regions they may go to, their session's or "").

    A request that was sent before and came back unanswered is older than all that were never sent:
    such requests form lines of their own, which are ahead. Each has a deadline of its own.
    """

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


class TrafficRouter:
    """The traffic of one spec, as one orchestrator sends it."""

    def __init__(
        self,
        spec: TrafficSpec,
        rng: random.Random,
        *,
        sessions: Sessions | None = None,
        prefixes: PrefixIndex | None = None,
    ) -> None:
        """`sessions`, `prefixes`: empty tables; the default has the bounds of their modules."""
        self._rng = rng
        self._sessions = sessions if sessions is not None else Sessions()
        self._prefixes = prefixes if prefixes is not None else PrefixIndex(PREFIX_BYTES_MAX)
        self._held = HeldQueue()
        self._regions: dict[str, RegionState] = {}
        #: the regions that the traffic is pinned to, or all
        self._usable: frozenset[str] = frozenset()
        self._gone: dict[str, RegionState] = {}  #: removed from the spec, with requests in flight
        self._order = 0
        self.spec = spec
        self.replace(spec)

    # inputs

    def pick(
        self,
        *,
        session: str | None = None,
        prefix: bytes | None = None,
        exclude: Collection[str] = (),
        allowed: frozenset[str] | None = None,
        again: bool = False,
        deadline: float | None = None,
        now: float,
    ) -> Routed | HeldForRegion | NoRoute:
        """Chooses a region and reserves a slot there, or holds the request.

        Returns:
            `Routed`, whose variant is the region's name; its reason: session | session-moved | home
            | spill | prefix-match | ratio | only-region | last-resort. `HeldForRegion`: no region
            has room now. `NoRoute`: no-region-allowed | no-region-serves | held-too-many |
            held-too-long, or where holding is off the reason of `HeldForRegion`.

        Args:
            session: it stays in the region that was picked for it first.
            prefix: the prompt from its first byte; equal beginnings go together.
            exclude: regions that failed this request; used only if no other one serves.
            allowed: only these, of those that the spec allows; None: all of them.
            again: it was sent before: it goes before all held requests that never were.
            deadline: s; it is not held any longer.
            now: seconds.
        """
        names = self._allowed(allowed)
        if not names:
            return _NOT_ALLOWED
        asked = RegionRequest(names, session, prefix, tuple(sorted(exclude)), again)
        region, reason = self._choose(asked, now)
        if region is not None and not self._held.wait_for(region.name, again=again):
            return self._send(region, asked, reason, now)
        return self._hold(asked, "others-wait" if region is not None else reason, deadline, now)

    def release(
        self, region: str, *, ok: bool | None, first_byte_s: float | None = None, now: float
    ) -> None:
        """The last byte of an answer is written, or the attempt failed.

        Args:
            region: the region that it was sent to.
            ok: False: it failed by the region's fault; None: the client went away.
            first_byte_s: s since it was sent; None: there was no answer.
            now: seconds.
        """
        state = self._regions.get(region) or self._gone[region]
        state.release(ok, now=now)
        if first_byte_s is not None:
            state.began(first_byte_s)
        if not state.in_flight:
            self._gone.pop(region, None)

    def heard(self, seen: RegionObserved, *, now: float) -> None:
        """A region sent a report. Unknown regions are ignored: the report may be late."""
        state = self._regions.get(seen.name)
        if state is not None:
            state.heard(seen, now=now)

    def probed(self, region: str, ok: bool, *, now: float) -> None:
        """A probe of a region was answered, or was not answered in time."""
        state = self._regions.get(region)
        if state is not None:
            state.health.probed(ok, now=now)

    def released(self, *, now: float) -> list[tuple[int, Routed | NoRoute]]:
        """Held requests that may go now, or have waited too long: (ticket, result)."""
        out: list[tuple[int, Routed | NoRoute]] = [
            (ticket, self._turned_away(asked, _TOO_LONG, now))
            for ticket, asked in self._held.expired(now=now)
        ]

        def turn(ticket: int, asked: RegionRequest) -> str:
            region, reason = self._choose(asked, now)
            if region is None:
                return BLOCKS
            self._held.remove(ticket)
            out.append((ticket, self._send(region, asked, reason, now)))
            return GONE

        self._held.look(turn)
        return out

    def waits_for(self, ticket: int, *, now: float) -> str:
        """Why a held request can't go now."""
        return self._choose(self._held.find(ticket), now)[1]

    def withdraw(self, ticket: int) -> bool:
        """The client of a held request went away; False: it is not held any more."""
        return self._held.remove(ticket)

    def next_deadline(self) -> float | None:
        """When to call `released` at the latest; None while nothing is held."""
        return self._held.next_deadline()

    def bind_session(self, session: str, region: str, *, now: float) -> None:
        """A region opened the session, which stays there from now on, unless the table is full."""
        state = self._regions.get(region)
        if state is not None and not self._sessions.is_full(session):
            self._sessions.bind(session, state.place, now=now)

    def close_session(self, session: str, *, now: float) -> bool:
        """Ends a session; False: it is unknown."""
        return self._sessions.close(session, now=now)

    def replace(self, spec: TrafficSpec) -> None:
        """Sets another spec, at once. What is known of regions that stay is kept."""
        before, self._regions, self.spec = self._regions, {}, spec
        self._usable = frozenset(region.name for region in spec.usable())
        for name, ratio in spec.ratios().items():
            told = next(one for one in spec.regions if one.name == name)
            state = before.get(name) or self._gone.pop(name, None)
            if state is None:
                self._order += 1
                state = RegionState(self._order, told, spec.health)
            state.spec = told
            if state.ratio != ratio:
                state.ratio = ratio
                # Several orchestrators with the same ratios should not begin with the same region.
                state.credit = self._rng.random() * ratio
            self._regions[name] = state
        for name, state in before.items():
            if name not in self._regions:
                state.place.life += 1
                if state.in_flight:
                    self._gone[name] = state

    # the choice

    def _allowed(self, allowed: frozenset[str] | None) -> tuple[str, ...]:
        return tuple(
            region.name
            for region in self.spec.usable()
            if allowed is None or region.name in allowed
        )

    def _choose(self, asked: RegionRequest, now: float) -> tuple[RegionState | None, str]:
        """The region and the reason, or why there is none. Reserves nothing."""
        serving, last_resort = self._serving(asked, now)
        if not serving:
            return None, NO_REGION_SERVES
        kept = self._of_session(asked, now)
        if kept is not None and kept in serving:
            if kept.room(now=now) > 0:
                return kept, "last-resort" if last_resort else "session"
            return None, "session-region-full"
        with_room = [one for one in serving if one.room(now=now) > 0]
        roomy = [one for one in with_room if one.ratio > 0]
        if not roomy and self.spec.mode == AUTOMATIC:  # nobody set this share to 0
            roomy = [one for one in with_room if one.spec.ratio_max > 0]
        if not roomy:
            return None, "no-room"
        region, reason = self._pick(roomy, asked, now)
        if last_resort:
            reason = "last-resort"
        elif kept is not None:
            reason = "session-moved"
        return region, reason

    def _known(self, asked: RegionRequest) -> list[RegionState]:
        """Regions that it still may go to, also by a spec that came while it was held."""
        return [self._regions[name] for name in asked.allowed if name in self._usable]

    def _serving(self, asked: RegionRequest, now: float) -> tuple[list[RegionState], bool]:
        """(regions that may be used, whether none of them is healthy)"""
        regions = self._known(asked)
        serving = [one for one in regions if one.serves(now=now)]
        last_resort = not serving
        if last_resort:
            serving = [one for one in regions if one.health.reason(now=now) in ANSWERS_STILL]
        fresh = [one for one in serving if one.name not in asked.exclude]
        return fresh or serving, last_resort

    def _of_session(self, asked: RegionRequest, now: float) -> RegionState | None:
        if asked.session is None:
            return None
        found = self._sessions.find(asked.session, now=now)
        return None if isinstance(found, NoRoute) else self._regions.get(found.instance_id)

    def _pick(
        self, roomy: list[RegionState], asked: RegionRequest, now: float
    ) -> tuple[RegionState, str]:
        spec = self.spec
        by_home = spec.mode == AUTOMATIC and bool(spec.home)
        if by_home:
            for state in roomy:
                if state.name == spec.home:
                    return state, "home"
        if len(roomy) == 1:
            return roomy[0], "spill" if by_home else "only-region"
        known = self._knows_prefix(roomy, asked, by_credit=not by_home)
        if known is not None:
            return known, "prefix-match"
        if by_home:
            return max(roomy, key=lambda one: (one.room(now=now), -one.order)), "spill"
        gains = self._gains(asked, now)
        return max(roomy, key=lambda one: (one.credit + gains[one.name], -one.order)), "ratio"

    def _gains(self, asked: RegionRequest, now: float) -> dict[str, float]:
        """The credit that each region gets for one request: its ratio among those that serve."""
        shares = {
            one.name: one.ratio * one.health.share(now=now)
            for one in self._known(asked)
            if one.serves(now=now)
        }
        total = sum(shares.values())
        return {name: shares.get(name, 0.0) / total if total else 0.0 for name in self._regions}

    def _knows_prefix(
        self, roomy: list[RegionState], asked: RegionRequest, *, by_credit: bool
    ) -> RegionState | None:
        """The region that was sent most of the prompt, at least half of the compared part."""
        if asked.prefix is None:
            return None
        index = self._prefixes
        found = index.holders(index.keys(asked.prefix, None))
        length = min(len(asked.prefix), index.prefix_length_max)
        while found and 2 * index.ends[len(found) - 1] >= length:
            for holder in found.pop():
                state = self._regions.get(holder[0].instance_id)
                if state not in roomy or not is_alive(holder):
                    continue
                if not by_credit or state.credit > -CREDIT_MAX:
                    return state
        return None

    def _send(self, region: RegionState, asked: RegionRequest, reason: str, now: float) -> Routed:
        for name, gained in self._gains(asked, now).items():
            state = self._regions[name]
            state.credit = min(CREDIT_MAX, state.credit + gained)
        region.credit = max(-CREDIT_MAX, region.credit - 1.0)
        region.send(now=now)
        if asked.prefix is not None:
            keys = self._prefixes.keys(asked.prefix, None)
            self._prefixes.remember(keys, region.place, len(asked.prefix))
        session = asked.session
        if session is not None and not self._sessions.is_full(session):
            self._sessions.bind(session, region.place, now=now)
        return Routed(region.place, region.name, reason, region.in_flight)

    def _hold(
        self, asked: RegionRequest, reason: str, deadline: float | None, now: float
    ) -> HeldForRegion | NoRoute:
        if deadline is not None and now >= deadline:
            return self._turned_away(asked, _TOO_LONG, now)
        if len(self._held) >= self.spec.hold_max:
            if not self.spec.hold_max:
                return NoRoute(reason, _RETRY_AFTER_S)
            return self._turned_away(asked, _TOO_MANY, now)
        until = now + self.spec.hold_s_max
        until = until if deadline is None else min(until, deadline)
        kept = self._of_session(asked, now)
        fresh = tuple(name for name in asked.allowed if name not in asked.exclude)
        session_region = kept.name if kept is not None else ""
        ticket = self._held.hold(asked, fresh or asked.allowed, session_region, until)
        return HeldForRegion(ticket, reason)

    def _turned_away(self, asked: RegionRequest, refused: NoRoute, now: float) -> NoRoute:
        serving, _ = self._serving(asked, now)
        return refused if serving else _NO_REGION

    # views

    def serves(self, region: str, *, now: float) -> bool:
        """Whether a region is in use, with or without room."""
        state = self._regions.get(region)
        return state is not None and state.serves(now=now)

    def is_reachable(self, *, now: float) -> bool:
        """Whether any region is in use, or at least answers, if with errors."""
        return any(
            one.serves(now=now) or one.health.reason(now=now) in ANSWERS_STILL
            for one in self._regions.values()
        )

    def snapshot(self, *, now: float) -> dict[str, Any]:
        """JSON-ready state for `explain`."""
        return {
            "endpoint": self.spec.endpoint,
            "mode": self.spec.mode,
            "held": len(self._held),
            "sessions": len(self._sessions),
            "blocks_known": len(self._prefixes),
            "regions": [one.snapshot(now=now) for one in self._regions.values()],
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables contradict each other."""
        assert all(one.in_flight for one in self._gone.values()), "a region that is gone and idle"
        for state in (*self._regions.values(), *self._gone.values()):
            state.check_invariants()
        self._held.check_invariants()
        self._sessions.check_invariants()
        self._prefixes.check_invariants()
