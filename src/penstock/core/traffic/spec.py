"""Traffic of one endpoint between regions: the spec, a region's report, a place in the queue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from penstock.errors import CallerError

MANUAL: Final = "manual"  #: shares stay as they were set
AUTOMATIC: Final = "automatic"  #: shares follow the observations; the home region comes first
MODES: Final = (MANUAL, AUTOMATIC)

#: Bounds are exact, except for what binary fractions can't represent.
_SUM_TOLERANCE = 1e-6
#: Shares that people type are rounded: three times 0.33 counts as the whole.
_TYPED_TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSpec:
    """One region as a target. Shares are of all requests that may go to any region."""

    name: str
    #: share relative to the sum of all, >= 0; 0 set by hand: only existing sessions go there
    ratio: float = 1.0
    #: bound for automatic moves, as `ratio_max`; a ratio set by hand may be beyond them
    ratio_min: float = 0.0
    ratio_max: float = 1.0
    #: cost of one of its slots, in any currency; cheaper regions are filled first
    cost_per_hour: float = 0.0
    slots_max: int = 0  #: requests sent there at once, at most; 0: as many as it has room for


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSpec:
    """When a region is ejected, and how it comes back."""

    #: Failures in a row of real requests. Envoy takes 5 for one host; regions are few and each
    #: failure hits a client, who is then served by another region.
    failures_max: int = 3
    #: Share of failures among the answers of `window_s`, where there are at least `answers_min`.
    failure_share_max: float = 0.5
    answers_min: int = 20
    window_s: float = 10.0
    #: Probes in a row without an answer. With one each 250 ms and half a second for each answer, a
    #: region is ejected within 1.25 s.
    probes_max: int = 3
    #: s without report, answer or probe; a region reports each second even when nothing changes.
    silence_s_max: float = 3.0
    #: s of the first ejection. It doubles each time the region fails again within as long a time
    #: after its return, up to `eject_s_max`.
    eject_s: float = 2.0
    eject_s_max: float = 60.0
    #: After its return, its room and its share grow from the part `slow_start_from` to all of it,
    #: over this many s.
    slow_start_s: float = 10.0
    slow_start_from: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSpec:
    """The traffic of one endpoint, or of all that have no spec of their own.

    Raises `CallerError` (code `invalid-traffic`) where it contradicts itself.
    """

    endpoint: str = ""  #: empty: all endpoints without a spec of their own
    regions: tuple[RegionSpec, ...]
    mode: str = AUTOMATIC
    pinned: frozenset[str] = frozenset()  #: data stays in these regions; empty: anywhere
    home: str = ""  #: the region of this orchestrator; with AUTOMATIC it comes first; empty: none
    step_max: float = 0.1  #: largest automatic move of a share at once
    #: s between two such moves: the effect of the last one must be observed first
    settle_s: float = 2.0
    hold_max: int = 1024  #: requests held here while no region has room; 0: none
    hold_s_max: float = 10.0  #: s that a request is held, at most
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
        """The regions that requests may go to, in the order of the spec."""
        return tuple(one for one in self.regions if not self.pinned or one.name in self.pinned)

    def ratios(self) -> dict[str, float]:
        """The share of each region, 0 for regions that it is not pinned to; the sum is 1."""
        usable = self.usable()
        total = sum(region.ratio for region in usable)
        shares = dict.fromkeys((region.name for region in self.regions), 0.0)
        shares.update((region.name, region.ratio / total) for region in usable)
        return shares

    def shared(self, shares: Mapping[str, float], *, mode: str | None = None) -> TrafficSpec:
        """The spec with shares that a person typed: a region that is not named gets none.

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
        """The spec with other shares; those that are not named stay as they are."""
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
    """The shares to type instead."""
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
    """One endpoint in one region, at one moment: the region's report.

    `said_at` is on the receiver's clock, never on the region's. The report counts requests sent
    before this time, and no later ones. It is the time at which the report came, less the round
    trip of a message.
    """

    name: str
    room: int  #: free slots: a request would begin at once
    said_at: float  #: s
    waiting: int = 0  #: requests in the region's own queues
    in_flight: int = 0  #: requests, those that wait included
    p50_s: float = 0.0  #: time to the first byte, over the last seconds; 0: no answers
    p99_s: float = 0.0
    error_share: float = 0.0  #: part of its answers, 0 to 1, that failed by no fault of the caller
    capacity_rps: float = 0.0  #: answers per second with all slots busy; 0: not known
    cache_tokens: int = 0  #: prompt tokens that its engines cache; 0: not known


#: why a request is held; if it waited for nothing else, also why it is refused
NO_REGION_SERVES: Final = "no-region-serves"


class HeldForRegion(NamedTuple):
    """No region has room now. Keep the request until `released` names the ticket, or withdraw."""

    ticket: int
    reason: str  #: no-room | session-region-full | no-region-serves | others-wait
