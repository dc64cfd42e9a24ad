"""Regions of a twin: who lives where, how far they are apart, what they ask for, what breaks.

Demand in a region follows its day: rate * share * (1 + swing * cos), highest at its own `peak`.
Prompts begin with one of the prefixes of their region, or, a part of them, with one that all
regions share.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate

from penstock.core.batching.generation_steps import GenerationSpec
from penstock.sim.workload import Arrival, Mix

REGION_LOST = "region-lost"  #: everything there dies; connections are refused
CUT = "cut"  #: nobody outside reaches it, nor it them; its own users do
KINDS = (REGION_LOST, CUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionScenario:
    name: str
    copies: int
    share: float  #: of all users
    peak: float = 0.0  #: when its demand is highest, as a part of the day


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFault:
    at_s: float
    region: int
    kind: str = REGION_LOST  #: one of KINDS
    back_after_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsScenario:
    """All that a run is made of, but for the policy and the seed."""

    regions: tuple[RegionScenario, ...]
    delay_s: tuple[tuple[float, ...], ...]  #: one way, from the users of one to the copies of one
    generation: GenerationSpec
    rate_rps: float  #: of all regions, the mean of the day
    length_s: float  #: arrivals stop then; what is in flight is still answered
    day_s: float
    swing: float = 0.0  #: 0 = the same at any time; below 1
    length: Mix = ((16, 0.5), (48, 0.3), (128, 0.2))  #: tokens of a prompt behind its prefix
    answer_tokens: Mix = ((8, 0.35), (32, 0.3), (128, 0.25), (512, 0.1))
    prefixes: int = 24  #: of each region
    prefixes_shared: int = 8  #: of all regions
    shared_fraction: float = 0.2  #: of requests that begin with one of these
    prefix_tokens: int = 384
    prefix_skew: float = 0.8  #: the k-th most popular is asked k ** -skew as often as the first
    news_s: float = 0.1  #: a region tells of its room so often, if it has changed
    probe_s: float = 0.25  #: and is asked whether it lives so often
    faults: tuple[RegionFault, ...] = ()

    @property
    def cache_tokens(self) -> int:
        """Of prompts that a copy keeps."""
        return self.generation.prefixes_cached_max * self.prefix_tokens

    def rate_at(self, region: int, at: float) -> float:
        """Demand of a region's users, requests/s."""
        told = self.regions[region]
        phase = 2.0 * math.pi * (at / self.day_s - told.peak)
        return self.rate_rps * told.share * (1.0 + self.swing * math.cos(phase))


class Demand:
    """The requests of one run: when, whose, and what they are like."""

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
        """Poisson with a rate that changes, by thinning (Lewis and Shedler, 1979)."""
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
        """Four bytes for a token; what follows the prefix is no other request's."""
        shared = self._texts.get(arrival.prefix)
        if shared is None:
            word = b"prefix %d " % arrival.prefix
            length = 4 * arrival.prefix_tokens
            shared = self._texts[arrival.prefix] = (word * (length // len(word) + 1))[:length]
        return shared + b"request %d" % number


def _weights(mix: Mix) -> tuple[list[int], list[float]]:
    return [value for value, _ in mix], list(accumulate(weight for _, weight in mix))


def _drawn(sums: list[float], rng: random.Random) -> int:
    return bisect_right(sums, rng.random() * sums[-1], 0, len(sums) - 1)
