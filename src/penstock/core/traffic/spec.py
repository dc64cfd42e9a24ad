"""What is wanted of the traffic of one endpoint between regions.

What a region tells of itself.

What comes of a request: it is sent to a region, held here, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from penstock.errors import CallerError

MANUAL: Final = "manual"  #: shares are as they were set
AUTOMATIC: Final = "automatic"  #: shares move by what is seen; the home region comes first
MODES: Final = (MANUAL, AUTOMATIC)

#: Bounds are exact, but for what binary fractions are not.
_SUM_TOLERANCE = 1e-6
#: Shares that people type are rounded: three times 0.33 is all.
_TYPED_TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSpec:
    """One region as a target. Shares are of all requests that may go to any region."""

    name: str
    #: >= 0; against the others' sum; 0 by hand: nothing but sessions that are there
    ratio: float = 1.0
    ratio_min: float = 0.0  #: bounds of what moves by itself; a ratio set by hand may pass them
    ratio_max: float = 1.0
    cost_per_hour: float = 0.0  #: of one of its slots, in any money; cheaper ones are filled first
    slots_max: int = 0  #: requests at once that are sent there; 0: as many as it has room for


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSpec:
    """When a region is left alone, and how it comes back."""

    #: Failures in a row, of real requests. Envoy takes 5 of one host; regions are few and each
    #: failure is a client's, who is then served elsewhere.
    failures_max: int = 3
    #: Share of failures among the answers of `window_s`, where there are at least `answers_min`.
    failure_share_max: float = 0.5
    answers_min: int = 20
    window_s: float = 10.0
    #: Probes without an answer, in a row: one each 250 ms, each with half a second, give a region
    #: up in 1.25 s.
    probes_max: int = 3
    #: Without news, answer or probe; it speaks each second even when nothing changes.
    silence_s_max: float = 3.0
    #: Left alone so long at first, each time twice as long while it fails again within as long
    #: again, up to the most.
    eject_s: float = 2.0
    eject_s_max: float = 60.0
    #: After its return its room and its share grow from `slow_start_from` to all of it.
    slow_start_s: float = 10.0
    slow_start_from: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSpec:
    """The traffic of one endpoint, or of all that have no spec of their own.

    Raises `CallerError` (code `invalid-traffic`) where it contradicts itself.
    """

    endpoint: str = ""  #: none: all others
    regions: tuple[RegionSpec, ...]
    mode: str = AUTOMATIC
    pinned: frozenset[str] = frozenset()  #: data stays in these regions; none: anywhere
    home: str = ""  #: the region this orchestrator stands in; with AUTOMATIC it comes first
    step_max: float = 0.1  #: the most a share moves at once by itself
    settle_s: float = 2.0  #: between two such moves: what the last one did must be seen first
    hold_max: int = 1024  #: requests kept here while no region has room; 0: none
    hold_s_max: float = 10.0  #: each of them, at most
    health: HealthSpec = field(default_factory=HealthSpec)

    def __post_init__(self) -> None:
        names = [region.name for region in self.regions]
        for good, what in (
            (bool(names), "no region is listed"),
            (len(set(names)) == len(names), "a region is listed twice"),
            (all(names), "a region has no name"),
            (self.mode in MODES, f"mode is {self.mode!r}, not {' or '.join(MODES)}"),
            (not self.home or self.home in names, f"home is {self.home!r}, which is no region"),
            (self.pinned <= set(names), "an endpoint is pinned to what is no region"),
            (all(map(_is_bounded, self.regions)), "0 <= ratio_min <= ratio_max <= 1 does not hold"),
            (any(region.ratio > 0 for region in self.usable()), "no region has a ratio above 0"),
            (
                sum(region.ratio_min for region in self.usable()) <= 1 + _SUM_TOLERANCE,
                "the lower bounds sum to more than 1",
            ),
            (
                self.mode == MANUAL
                or sum(region.ratio_max for region in self.usable()) >= 1 - _SUM_TOLERANCE,
                "the upper bounds sum to less than 1",
            ),
            (0 < self.step_max <= 1 and self.settle_s > 0, "step_max or settle_s is out of range"),
            (self.hold_max >= 0 and self.hold_s_max >= 0, "hold_max or hold_s_max is below 0"),
        ):
            if not good:
                raise _wrong(self.endpoint, what)

    def usable(self) -> tuple[RegionSpec, ...]:
        """The regions that requests may go to, in their order."""
        return tuple(one for one in self.regions if not self.pinned or one.name in self.pinned)

    def ratios(self) -> dict[str, float]:
        """The share of each region, 0 of those it is not pinned to; the sum is 1."""
        usable = self.usable()
        total = sum(region.ratio for region in usable)
        shares = dict.fromkeys((region.name for region in self.regions), 0.0)
        shares.update((region.name, region.ratio / total) for region in usable)
        return shares

    def shared(self, shares: Mapping[str, float], *, mode: str | None = None) -> TrafficSpec:
        """The same with the shares that a person typed: all of them, so a region that is not named
        has none.

        Raises CallerError (`invalid-traffic`): they do not sum to 1, or are not the endpoint's.
        """
        every = dict.fromkeys((region.name for region in self.regions), 0.0) | dict(shares)
        self._check_known(shares)
        total = sum(every.values())
        if round(abs(total - 1.0), 6) > _TYPED_TOLERANCE:
            raise _wrong(
                self.endpoint,
                f"the shares sum to {total:.4g}, not to 1: {_typed(every)}",
                hint=_typed_hint(shares, total),
            )
        usable = {region.name for region in self.usable()}
        lost = [name for name, share in every.items() if share and name not in usable]
        if lost:
            raise _wrong(
                self.endpoint,
                f"{', '.join(lost)} has a share, but the endpoint is pinned to"
                f" {', '.join(sorted(usable))}",
            )
        return self.with_ratios(every, mode=mode)

    def with_ratios(self, ratios: Mapping[str, float], *, mode: str | None = None) -> TrafficSpec:
        """The same with other shares; those that are not named stay as they are."""
        self._check_known(ratios)
        shares = {**self.ratios(), **ratios}
        regions = tuple(replace(one, ratio=shares[one.name]) for one in self.regions)
        return replace(self, regions=regions, mode=self.mode if mode is None else mode)

    def _check_known(self, ratios: Mapping[str, float]) -> None:
        unknown = sorted(ratios.keys() - {region.name for region in self.regions})
        if unknown:
            raise _wrong(self.endpoint, f"there is no region {', '.join(unknown)}")


def _is_bounded(region: RegionSpec) -> bool:
    return (
        0.0 <= region.ratio_min <= region.ratio_max <= 1.0
        and 0.0 <= region.ratio < math.inf
        and 0.0 <= region.cost_per_hour < math.inf
        and region.slots_max >= 0
    )


def _typed(shares: Mapping[str, float]) -> str:
    return " ".join(f"{name}={share:.4g}" for name, share in shares.items())


def _typed_hint(shares: Mapping[str, float], total: float) -> str:
    """What to type instead."""
    asked = "Give shares that sum to 1; a region that is not named gets 0."
    if not total > 0:
        return asked
    return f"{asked} As it was meant, perhaps: " + _typed(
        {name: share / total for name, share in shares.items()}
    )


def _wrong(endpoint: str, what: str, hint: str = "") -> CallerError:
    whose = f"endpoint {endpoint}" if endpoint else "all endpoints"
    return CallerError(
        "invalid-traffic",
        f"The traffic of {whose} can't be as it is asked for: {what}.",
        hint=hint
        or "Look at the regions, their ratios and bounds, and what the endpoint is pinned to.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionObserved:
    """One endpoint in one region, at one moment.

    `said_at` is on the listener's clock, never on the region's: requests sent until then are
    counted in what is told, later ones are not. That is the moment at which the news came, less
    the time that a message takes there and back.
    """

    name: str
    room: int  #: slots that are free now: a request would begin at once
    said_at: float  #: s
    waiting: int = 0  #: requests in the region's own queues
    in_flight: int = 0  #: requests, those that wait included
    p50_s: float = 0.0  #: of the time to the first byte, over the last seconds; 0: no answers
    p99_s: float = 0.0
    error_share: float = 0.0  #: of its answers, 0 to 1: failures that are not the caller's
    capacity_rps: float = 0.0  #: answers a second with all slots busy; 0: not known
    cache_tokens: int = 0  #: of prompts that its engines keep; 0: not known


#: why a request is held, and of one that waited for nothing else, why it is refused
NO_REGION_SERVES: Final = "no-region-serves"


class Sent(NamedTuple):
    """A slot of the region is reserved: send the request, and `release` it exactly once."""

    region: str
    #: session | session-moved | home | spill | prefix-match | ratio | only-region | last-resort
    reason: str


class HeldForRegion(NamedTuple):
    """No region has room now. Keep the request until `released` names the ticket, or withdraw."""

    ticket: int
    reason: str  #: no-room | session-region-full | no-region-serves | others-wait


class Refused(NamedTuple):
    """Nothing was reserved."""

    #: no-region-allowed | no-region-serves | held-too-many | held-too-long; where nothing is ever
    #: held, why not Sent
    reason: str
    retry_after_s: float | None  #: None: the same request cannot pass later
