"""The regions' capacity and the demand, as moving averages of noisy observations.

For each region its *slots*: busy and free ones, reduced where the region fails, is slow, or has a
queue. For all regions together the *demand*: requests in flight, for shares only move these between
regions. One observation of n requests has an error of the square root of n, as Poisson counts have.
So a slow average gives the demand, and a quick one detects a change. After a change the slow one
follows the quick one until that is right, and then begins anew: older values, and those during the
change, no longer count.

It must not depend on when it is called: `MovingAverages` carries the state to the next call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from penstock.core.traffic.spec import RegionObserved, RegionSpec, TrafficSpec

#: Time constants, s: of slots, of the demand, and of the quick average of the demand.
_SLOTS_S: Final = 4.0
_DEMAND_S: Final = 30.0
_QUICK_S: Final = 2.0
#: The slow average's time constant in answers, where these take long: they stay in flight over many
#: observations.
_DEMAND_ANSWERS: Final = 25.0
_QUICK_ANSWERS: Final = 5.0
#: The demand has changed where the quick average differs from the slow one by this part of it, and
#: by this many square roots of n, which is some three standard deviations of the quick one.
_CHANGE: Final = 0.15
_CHANGE_ROOTS: Final = 1.2
#: s after a change until the quick average is right, and until the slow one is.
_QUICK_RIGHT_S: Final = 5.0
_RIGHT_S: Final = 15.0
#: Shares of failures: below the first they are normal; from half of its answers on a region is
#: worth nothing.
_ERROR_SHARE_EASY: Final = 0.02
_ERROR_SHARE_MAX: Final = 0.5
#: P99 relative to the best region's, from which a region counts as slow; the least part of its
#: slots that a slow region keeps.
_SLOW_FROM: Final = 2.0
_SLOW_KEEPS: Final = 0.5


@dataclass(frozen=True, slots=True)
class MovingAverages:
    """The state after all observations so far."""

    seen_at: float | None = None
    slots: tuple[tuple[str, float], ...] = ()  #: (region, slots)
    demand: float = 0.0  #: slow average, in the unit of powers
    quick: float = 0.0  #: quick average of the demand
    changed_at: float = 0.0  #: when the demand changed

    def sure(self, now: float) -> bool:
        """Whether the demand is known as well as it can be."""
        return now >= self.changed_at + _RIGHT_S


class RegionMeasured(NamedTuple):
    """The result for one region."""

    spec: RegionSpec
    #: answers per second with all its slots busy; its slots, where that is not known of all regions
    power: float
    why: str  #: what lowers it at this moment: queue | latency | errors; "": nothing


def measure(
    spec: TrafficSpec, fresh: list[RegionObserved], means: MovingAverages, *, now: float
) -> tuple[list[RegionMeasured], MovingAverages]:
    """The regions with new reports, in the order of the spec; and the averages as they are now. The
    averages of a region without a new report begin anew."""
    looks = _looks(spec, fresh)
    passed_s = math.inf if means.seen_at is None else max(0.0, now - means.seen_at)
    former = dict(means.slots)
    slots = [
        _mean(former.get(one.spec.name, one.slots), one.slots, passed_s, _SLOTS_S) for one in looks
    ]
    measured = [
        RegionMeasured(one.spec, one.unit * mean, one.why)
        for one, mean in zip(looks, slots, strict=True)
    ]
    by_region = tuple((one.spec.name, mean) for one, mean in zip(looks, slots, strict=True))
    return measured, _with_demand(replace(means, slots=by_region), looks, passed_s, now)


class _Look(NamedTuple):
    """One region, at this moment."""

    spec: RegionSpec
    unit: float  #: value of a slot, in one unit for all regions
    answer_s: float  #: s of a request in a slot; 0: not known
    slots: float  #: slots that it could use
    in_flight: int
    why: str


def _looks(spec: TrafficSpec, fresh: list[RegionObserved]) -> list[_Look]:
    by_name = {one.name: one for one in fresh}
    told = [(one, by_name[one.name]) for one in spec.usable() if one.name in by_name]
    by_rate = all(seen.capacity_rps > 0 for _, seen in told)
    best_s = min((seen.p99_s for _, seen in told if seen.p99_s > 0), default=0.0)
    looks = []
    for region, seen in told:
        running = max(0, seen.in_flight - seen.waiting)
        slots = running + max(0, seen.room)
        if region.slots_max:
            slots = min(slots, region.slots_max)
        rate = seen.capacity_rps / slots if by_rate and slots else 0.0
        kept, why = 1.0, ""
        for part, reason in (
            (_kept_by_queue(slots, seen), "queue"),
            (_kept_by_latency(best_s, seen), "latency"),
            (_kept_by_errors(seen), "errors"),
        ):
            if part < min(kept, 1.0):
                why = reason
            kept *= part
        answer_s = 1.0 / rate if rate else 0.0
        looks.append(_Look(region, rate or 1.0, answer_s, slots * kept, seen.in_flight, why))
    return looks


def _with_demand(
    means: MovingAverages, looks: list[_Look], passed_s: float, now: float
) -> MovingAverages:
    demand = sum(one.unit * one.in_flight for one in looks)
    answer_s = max((one.answer_s for one in looks), default=0.0)
    quick_s = max(_QUICK_S, _QUICK_ANSWERS * answer_s)
    mean_s = max(_DEMAND_S, _DEMAND_ANSWERS * answer_s)
    changed_at = now if means.seen_at is None else means.changed_at
    mean_s = min(mean_s, max(now - changed_at - _QUICK_RIGHT_S, quick_s))
    quick = _mean(means.quick, demand, passed_s, quick_s)
    mean = _mean(means.demand, demand, passed_s, mean_s)
    count = max(1, sum(one.in_flight for one in looks))
    if abs(quick - mean) > mean * max(_CHANGE, _CHANGE_ROOTS / math.sqrt(count)):
        mean, changed_at = quick, now
    return replace(means, seen_at=now, demand=mean, quick=quick, changed_at=changed_at)


def _mean(before: float, now: float, passed_s: float, over_s: float) -> float:
    """An exponential average with a time constant."""
    return now + (before - now) * math.exp(-passed_s / over_s)


def _kept_by_queue(slots: int, seen: RegionObserved) -> float:
    return slots / (slots + seen.waiting) if slots else 0.0


def _kept_by_latency(best_s: float, seen: RegionObserved) -> float:
    if seen.p99_s <= _SLOW_FROM * best_s:
        return 1.0
    return max(_SLOW_KEEPS, _SLOW_FROM * best_s / seen.p99_s)


def _kept_by_errors(seen: RegionObserved) -> float:
    above = max(0.0, seen.error_share - _ERROR_SHARE_EASY)
    return max(0.0, 1.0 - above / (_ERROR_SHARE_MAX - _ERROR_SHARE_EASY))
