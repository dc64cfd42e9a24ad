"""Regions of a twin: their users, distances, requests and faults, and the policies to compare.

Demand in a region follows its day: rate * share * (1 + swing * cos), highest at its own `peak`.
A prompt begins with one of the prefixes of its region, or, for a share of the prompts, with one
that all regions share.

A policy says how the requests of a region's users are sent.

`Pushing` is the platform's own: a `TrafficRouter` for each region's users, an `EndpointRouter` in
each region, and reports of room between them. `Balanced` is a common balancer, with any settings:
one for each region's users over the copies of its own region or of all, by a strategy of
`EndpointRouter`. It counts only its own requests; with a bound, requests beyond it wait in its
queue. `InTurn` is a balancer that sees no copies: it knows each region as one address.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import accumulate

from penstock.core.batching.generation_steps import GenerationSpec
from penstock.core.deployment.deployment import (
    PREFIX_AWARE,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.traffic import AUTOMATIC, HealthSpec, RegionSpec, TrafficSpec
from penstock.sim.workload import Arrival, Mix, filler_text

REGION_LOST = "region-lost"  #: everything in it dies, and connections are refused
CUT = "cut"  #: no connection in or out, except between the region's own users and copies
KINDS = (REGION_LOST, CUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionScenario:
    name: str
    copies: int
    share: float  #: share of all users, 0 to 1
    peak: float = 0.0  #: time of the highest demand, as a fraction of the day


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFault:
    at_s: float
    region: int
    kind: str = REGION_LOST  #: one of KINDS
    back_after_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsScenario:
    """All inputs of a run except the policy and the seed."""

    regions: tuple[RegionScenario, ...]
    delay_s: tuple[tuple[float, ...], ...]  #: one way, from a region's users to a region's copies
    generation: GenerationSpec
    rate_rps: float  #: all regions together, mean over the day
    length_s: float  #: end of the arrivals; requests in flight are still answered
    day_s: float
    swing: float = 0.0  #: strength of the demand's daily change: 0 = constant; below 1
    length: Mix = ((16, 0.5), (48, 0.3), (128, 0.2))  #: tokens of a prompt after its prefix
    answer_tokens: Mix = ((8, 0.35), (32, 0.3), (128, 0.25), (512, 0.1))
    prefixes: int = 24  #: number for each region
    prefixes_shared: int = 8  #: number for all regions together
    shared_fraction: float = 0.2  #: share of the requests that begin with a shared prefix
    prefix_tokens: int = 384
    prefix_skew: float = 0.8  #: the k-th prefix is used k ** -skew as often as the first
    news_s: float = 0.1  #: interval of a region's reports of room, if it has changed
    probe_s: float = 0.25  #: interval of the probes of each region
    faults: tuple[RegionFault, ...] = ()

    @property
    def cache_tokens(self) -> int:
        """Tokens of prompts that a copy's cache holds."""
        return self.generation.prefixes_cached_max * self.prefix_tokens

    def rate_at(self, region: int, at: float) -> float:
        """Demand of a region's users, requests/s."""
        told = self.regions[region]
        phase = 2.0 * math.pi * (at / self.day_s - told.peak)
        return self.rate_rps * told.share * (1.0 + self.swing * math.cos(phase))


class Demand:
    """The requests of one run: times, users' regions, and properties."""

    def __init__(self, scenario: RegionsScenario, seed: object) -> None:
        self._scenario = scenario
        self._seed = seed
        self._what = random.Random(f"{seed}/requests")
        self._lengths = _weights(scenario.length)
        self._answers = _weights(scenario.answer_tokens)
        skew = scenario.prefix_skew
        self._own = list(accumulate((k + 1.0) ** -skew for k in range(scenario.prefixes)))
        self._shared = list(accumulate((k + 1.0) ** -skew for k in range(scenario.prefixes_shared)))
        self._texts: dict[int, bytes] = {}

    def arrivals(self) -> Iterator[tuple[float, int]]:
        """(moment, region), ascending."""
        return merge(*(self._of_region(each) for each in range(len(self._scenario.regions))))

    def _of_region(self, region: int) -> Iterator[tuple[float, int]]:
        """Poisson arrivals with a changing rate, by thinning (Lewis and Shedler, 1979)."""
        scenario, rng = self._scenario, random.Random(f"{self._seed}/arrivals/{region}")
        highest = scenario.rate_rps * scenario.regions[region].share * (1.0 + scenario.swing)
        if not highest:
            return
        at = rng.expovariate(highest)
        while at < scenario.length_s:
            if rng.random() * highest < scenario.rate_at(region, at):
                yield at, region
            at += rng.expovariate(highest)

    def sample(self, region: int) -> Arrival:
        scenario, rng = self._scenario, self._what
        of_all = self._shared and rng.random() < scenario.shared_fraction
        sums = self._shared if of_all else self._own
        which = bisect_right(sums, rng.random() * sums[-1], 0, len(sums) - 1)
        prefix = which if of_all else len(self._shared) + region * len(self._own) + which
        length = self._lengths[0][_drawn(self._lengths[1], rng)]
        answer = self._answers[0][_drawn(self._answers[1], rng)]
        return Arrival(1, length, 0, None, None, None, answer, prefix, scenario.prefix_tokens)

    def prompt(self, number: int, arrival: Arrival) -> bytes:
        """Four bytes per token; the part after the prefix is unique to the request."""
        shared = self._texts.get(arrival.prefix)
        if shared is None:
            shared = filler_text(b"prefix %d " % arrival.prefix, arrival.prefix_tokens)
            self._texts[arrival.prefix] = shared
        return shared + b"request %d" % number


def _weights(mix: Mix) -> tuple[list[int], list[float]]:
    return [value for value, _ in mix], list(accumulate(weight for _, weight in mix))


def _drawn(sums: list[float], rng: random.Random) -> int:
    return bisect_right(sums, rng.random() * sums[-1], 0, len(sums) - 1)


_UNBOUNDED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushing:
    """Selective pushing between regions, and by prefix within them."""

    strategy: str = PREFIX_AWARE  #: strategy within a region
    #: requests per copy that count as room; 0 = as `core/traffic/push_room.py` derives
    slots: int = 0
    threshold: int = 0  #: for PREFIX_AWARE in a region; 0 = the sequences of an engine
    local: bool = False  #: whether requests stay in their home region
    room_on_answers: bool = True  #: whether each answer reports the room at its end
    hold_max: int = 1_000_000
    hold_s_max: float = 600.0
    mode: str = AUTOMATIC
    ratios: tuple[float, ...] = ()  #: shares of regions with MANUAL; empty = by copies
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
    """A balancer that knows no room, and no load but that of its own requests."""

    strategy: str
    everywhere: bool  #: over the copies of all regions; else of its own region
    outstanding_max: int = 0  #: per copy, by its own count; 0 = no bound, so that engines queue
    threshold: int = 0  #: for PREFIX_AWARE; 0 = the sequences of an engine
    together: bool = False  #: whether the users of all regions share one balancer


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn:
    """A balancer for each region's users that takes the addresses of all regions in turn."""

    strategy: str  #: strategy within a region, over its copies
    in_region_max: int = 0  #: one balancer's requests in one region; others wait; 0 = no bound
    threshold: int = 0  #: for PREFIX_AWARE in a region; 0 = the sequences of an engine


Policy = Pushing | Balanced | InTurn


def routes_of(
    scenario: RegionsScenario,
    copies: tuple[int, ...],
    *,
    strategy: str,
    threshold: int,
    outstanding_max: int = 0,
) -> EndpointRoutes:
    """One endpoint over these copies, which report the size of their prompt caches."""
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
