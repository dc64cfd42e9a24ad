"""How the requests of a region's users are sent, in the twin of regions.

`Pushing` is the platform's own: a `TrafficRouter` for each region's users, an `EndpointRouter` in
each region, and news of room between them. `Balanced` is what others do, at whatever settings: one
balancer for each region's users over the copies of its own region or of all, by a strategy of
`EndpointRouter`, which counts its own requests alone; with a bound it keeps in its queue what would
exceed it. `InTurn` is a balancer that sees no copies: each region is one address to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.core.deployment.deployment import (
    PREFIX_AWARE,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.traffic import AUTOMATIC, HealthSpec, RegionSpec, TrafficSpec
from penstock.sim.regions.regions_scenario import RegionsScenario

_UNBOUNDED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushing:
    """Selective pushing between regions, and by prefix within them."""

    strategy: str = PREFIX_AWARE  #: within a region
    slots: int = 0  #: of a copy, that count as room; 0 = what `core/traffic/push_room.py` says
    threshold: int = 0  #: of PREFIX_AWARE within a region; 0 = the sequences of an engine
    local: bool = False  #: to the home region alone
    room_on_answers: bool = True  #: each answer tells the room at its end
    hold_max: int = 1_000_000
    hold_s_max: float = 600.0
    mode: str = AUTOMATIC
    ratios: tuple[float, ...] = ()  #: with MANUAL; empty = by copies
    home_first: bool = True
    health: HealthSpec = field(default_factory=HealthSpec)

    def spec(self, scenario: RegionsScenario, home: int) -> TrafficSpec:
        ratios = self.ratios or tuple(float(one.copies) for one in scenario.regions)
        return TrafficSpec(
            regions=tuple(
                RegionSpec(name=one.name, ratio=ratio)
                for one, ratio in zip(scenario.regions, ratios, strict=True)
            ),
            mode=self.mode,
            pinned=frozenset({scenario.regions[home].name} if self.local else ()),
            home=scenario.regions[home].name if self.home_first else "",
            hold_max=self.hold_max,
            hold_s_max=self.hold_s_max,
            health=self.health,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """A balancer that knows neither rooms nor, but for what it sent itself, loads."""

    strategy: str
    everywhere: bool  #: over the copies of all regions; else of its own
    outstanding_max: int = 0  #: of a copy, as it counts them; 0 = no bound, engines queue
    threshold: int = 0  #: of PREFIX_AWARE; 0 = the sequences of an engine
    together: bool = False  #: one balancer for the users of all regions


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn:
    """A balancer for each region's users, over the addresses of all regions in turn."""

    strategy: str  #: within a region, over its copies
    in_region_max: int = 0  #: requests of one balancer in one region; more wait there; 0 = no bound
    threshold: int = 0  #: of PREFIX_AWARE within a region; 0 = the sequences of an engine


Policy = Pushing | Balanced | InTurn


def routes_of(
    scenario: RegionsScenario,
    copies: tuple[int, ...],
    *,
    strategy: str,
    threshold: int,
    outstanding_max: int = 0,
) -> EndpointRoutes:
    """One endpoint over these copies, which tell how much they keep of prompts."""
    return EndpointRoutes(
        endpoint="twin",
        variants=(
            VariantRoutes(
                name="all",
                weight=1.0,
                strategy=strategy,
                prefix_length_max=4 * scenario.prefix_tokens,
                concurrency_threshold=threshold,
                copies=tuple(
                    CopyRoute(
                        copy=copy,
                        instance_id=f"i-{copy}",
                        outstanding_max=outstanding_max or _UNBOUNDED,
                        cache_tokens=scenario.cache_tokens,
                    )
                    for copy in copies
                ),
            ),
        ),
    )


def with_rate(scenario: RegionsScenario, rate_rps: float) -> RegionsScenario:
    return replace(scenario, rate_rps=rate_rps)


def with_copies(scenario: RegionsScenario, copies: tuple[int, ...]) -> RegionsScenario:
    regions = tuple(
        replace(one, copies=count) for one, count in zip(scenario.regions, copies, strict=True)
    )
    return replace(scenario, regions=regions)
