"""The routers of all endpoints, and the regions' reports for them.

An endpoint gets a `TrafficRouter` of its own once a region has reported it. Requests for no
endpoint, or for one that no region has, use the router without a name: any region can answer those.
The table records which regions have an endpoint, because a request must not go to a region that
would answer that it does not know the endpoint.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.clock import Clock
from penstock.core.deployment import served_names
from penstock.core.traffic.router import TrafficRouter
from penstock.core.traffic.spec import RegionObserved, TrafficSpec
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.served_names import ServedNames
from penstock.orchestrator.regions_file import Regions

#: Room of each region for the router without a name: its requests cost a region next to nothing.
_ROOM_UNNAMED: Final = 256
#: s after the last request in which reports without a change matter: one may be on its way there.
_ASKED_LATELY_S: Final = 5.0
#: Limit of endpoints, since regions' reports are trusted only so far: no region has as many.
ENDPOINTS_MAX: Final = 20_000


class EndpointTraffic:
    """The traffic of one endpoint, or of all unknown endpoints."""

    __slots__ = (
        "asked_at", "in_flight", "moving", "name", "router", "seen", "served", "serving", "waiting",
    )  # fmt: skip

    def __init__(self, name: str, router: TrafficRouter) -> None:
        self.name = name
        self.router = router
        self.in_flight = 0  #: requests for it
        self.seen: dict[str, RegionObserved] = {}  #: region -> its last report
        #: region -> the endpoint's other names there, each with its target
        self.served: dict[str, dict[str, str]] = {}
        self.serving: frozenset[str] = frozenset()  #: regions that have the endpoint
        self.asked_at = float("-inf")  #: monotonic s when a region was last chosen
        self.moving = ""  #: the last decision about automatic shares
        self.waiting: dict[int, Invocation] = {}  #: ticket -> the request that is held

    def allowed(self) -> frozenset[str] | None:
        """Regions that requests may go to, apart from the spec's own limits; None: any."""
        return self.serving if self.name else None


class TrafficTable:
    """The routers by endpoint."""

    def __init__(self, regions: Regions, rng: random.Random, clock: Clock) -> None:
        self._regions = regions
        self._rng = rng
        self._monotonic = clock.monotonic
        self._accepting: dict[str, bool] = {}
        self._asleep: dict[str, set[str]] = {}  #: endpoint -> regions where it is scaled to zero
        self.unnamed = EndpointTraffic("", TrafficRouter(regions.spec, rng))
        self.endpoints: dict[str, EndpointTraffic] = {}
        self.served = ServedNames(self.endpoints)

    def of(self, endpoint: str) -> EndpointTraffic:
        """The traffic that a request for `endpoint` belongs to."""
        return self.endpoints.get(endpoint) or self.unnamed

    def pinned(self, endpoint: str) -> frozenset[str] | None:
        """Regions that an endpoint's data may go to, also if no region has it; None: any."""
        spec = self._regions.endpoints.get(endpoint)
        return spec.pinned or None if spec is not None else None

    def all(self) -> list[EndpointTraffic]:
        """All with a name, then the one without."""
        return [*self.endpoints.values(), self.unnamed]

    def heard(self, region: str, event: Mapping[str, Any], *, way_s: float, whole: bool) -> None:
        """Handles an event of a region's feed, which was sent at most `way_s` ago.

        `whole`: it covers every endpoint that the region has.
        """
        now = self._monotonic()
        said_at = now - way_s
        accepting = event.get("accepting") is not False
        self._accepting[region] = accepting
        told = event.get("endpoints")
        changes: Mapping[str, Any] = told if isinstance(told, dict) else {}
        for name, load in changes.items():
            if isinstance(load, dict):
                self._take(region, name, load, said_at=said_at, now=now)
            else:
                self._gone(region, name, now)
        for one in self.endpoints.values():
            if region in one.serving and one.name not in changes:
                if whole:
                    self._gone(region, one.name, now)
                elif now < one.asked_at + _ASKED_LATELY_S:
                    self._tell(one, region, replace(one.seen[region], said_at=said_at), now)
        unnamed = RegionObserved(
            name=region, room=_ROOM_UNNAMED if accepting else 0, said_at=said_at
        )
        self.unnamed.seen[region] = unnamed
        self.unnamed.router.heard(unnamed, now=now)

    def room_told(self, one: EndpointTraffic, region: str, room: int, *, way_s: float) -> None:
        """A region reported with an answer how many more requests it takes."""
        before = one.seen.get(region)
        if before is not None and one.name:
            now = self._monotonic()
            self._tell(one, region, replace(before, room=room, said_at=now - way_s), now)

    def probed(self, region: str, *, ok: bool) -> None:
        """A probe of a region was answered in time, or was not."""
        now = self._monotonic()
        for one in (*self.endpoints.values(), self.unnamed):
            one.router.probed(region, ok, now=now)

    def replace(self, endpoint: str, spec: TrafficSpec) -> None:
        """Sets ratios or a mode by hand; "": for all endpoints that have none of their own."""
        if endpoint:
            self._regions.endpoints[endpoint] = spec
        else:
            self._regions = Regions(self._regions.access, spec, self._regions.endpoints)
        for one in (*self.endpoints.values(), self.unnamed):
            own = one.name in self._regions.endpoints
            if one.name == endpoint or not (endpoint or own):
                one.router.replace(self._regions.spec_of(one.name))

    def spec_of(self, endpoint: str) -> TrafficSpec:
        """The current spec, including shares that moved automatically."""
        found = self.endpoints.get(endpoint)
        return found.router.spec if found is not None else self._regions.spec_of(endpoint)

    def _take(
        self, region: str, name: str, load: dict[str, Any], *, said_at: float, now: float
    ) -> None:
        one = self.endpoints.get(name)
        if one is None:
            if len(self.endpoints) >= ENDPOINTS_MAX:
                return
            router = TrafficRouter(self._regions.spec_of(name), self._rng)
            one = self.endpoints[name] = EndpointTraffic(name, router)
        asleep = self._asleep.setdefault(name, set())
        if _count(load.get("copies")):
            asleep.discard(region)
        else:
            asleep.add(region)
        one.serving |= {region}
        self._name(one, region, _names(load.get("served_names")))
        seen = RegionObserved(
            name=region,
            room=_count(load.get("room")),
            said_at=said_at,
            waiting=_count(load.get("waiting")),
            in_flight=_count(load.get("in_flight")),
            p50_s=_number(load.get("p50_s")),
            p99_s=_number(load.get("p99_s")),
            error_share=min(1.0, _number(load.get("error_share"))),
            capacity_rps=_number(load.get("capacity_rps")),
            cache_tokens=_count(load.get("cache_tokens")),
        )
        self._tell(one, region, seen, now)

    def _tell(self, one: EndpointTraffic, region: str, seen: RegionObserved, now: float) -> None:
        """Passes a report to the router. A region where the endpoint is scaled to zero has no room
        while another has copies; a region that drains has no room at all."""
        one.seen[region] = seen
        asleep = self._asleep[one.name]
        sleeps = region in asleep and bool(one.serving - asleep)
        if sleeps or not self._accepting[region]:
            seen = replace(seen, room=0)
        one.router.heard(seen, now=now)

    def _name(self, one: EndpointTraffic, region: str, names: dict[str, str]) -> None:
        """A region reported an endpoint's other names. Any region's are served here, since each
        resolves them by itself."""
        if names != one.served.get(region, {}):
            before = _all_of(one.served)
            one.served[region] = names
            self.served.take(one.name, before, _all_of(one.served))

    def _gone(self, region: str, name: str, now: float) -> None:
        one = self.endpoints.get(name)
        if one is None or region not in one.serving:
            return
        one.serving -= {region}
        self._asleep[name].discard(region)
        one.seen.pop(region, None)
        self._name(one, region, {})
        one.router.heard(RegionObserved(name=region, room=0, said_at=now), now=now)

    def forget_unserved(self) -> None:
        """Removes endpoints that no region has any more, once nothing waits for them."""
        for one in list(self.endpoints.values()):
            if not one.serving and not one.waiting:
                del self.endpoints[one.name]
                del self._asleep[one.name]


def _all_of(served: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {name: target for region in sorted(served) for name, target in served[region].items()}


def _names(value: object) -> dict[str, str]:
    """Of a region's report, which is trusted only so far."""
    given = value.items() if isinstance(value, dict) else ()
    texts = ((name, target) for name, target in given if isinstance(target, str))
    return served_names.of_tags(
        {served_names.TAG: " ".join(f"{name}={target}" for name, target in texts)}
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < 1e12 else 0.0
