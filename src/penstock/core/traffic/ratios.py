"""Shares of regions that move themselves: by capacity, queues, latency, errors and cost.

    measure   what each region could take on, its *power*: answers a second with all slots busy, or
              its slots where that is not known; less while it fails, is slow, or has a queue
    decide    where the present demand should go: the cheapest regions first, up to `FILL` of
              their power, equally cheap ones alike; beyond that all by their power
    act       towards it within the bounds, at most `step_max` at once and once in `settle_s`

What decides changes with the shares only where regions are overloaded or slow, so there is little
to swing between; and where a share turns round, the next steps are half as large (a gain that
recovers slowly). A region whose news is old or that is out of use keeps its share: unknown is not
idle, and the router divides what it can't use among the others. Shares that were set by hand (mode
MANUAL) never move.

It must not know when it is called: `memory` is what the last decision hands to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.core.traffic.seen import RegionSeen
from penstock.core.traffic.spec import AUTOMATIC, RegionSpec, TrafficSpec

#: Of a region's power, before a dearer one is used: above it queues grow quickly (a queue with
#: 80 % load is four services long, one with 90 % nine).
FILL: Final = 0.8
#: Smaller differences are noise.
DEAD_BAND: Final = 0.02
#: Of the steps: halved at each turn, back by a tenth with each move that goes on.
GAIN_MIN: Final = 1.0 / 16.0
_GAIN_RECOVERS: Final = 1.1
#: Failures below this are everyday ones; at half of its answers a region is worth nothing.
_ERROR_SHARE_EASY: Final = 0.02
_ERROR_SHARE_MAX: Final = 0.5
#: P99 of a region against the best one's, before it counts as slow; what slowness takes at most.
_SLOW_FROM: Final = 2.0
_SLOW_KEEPS: Final = 0.5


class RatioChange(NamedTuple):
    region: str
    before: float
    after: float
    reason: str  #: capacity | cost | queue | latency | errors


@dataclass(frozen=True, slots=True)
class RatioMemory:
    """What the next decision has to know of the last."""

    moved_at: float | None = None
    gain: float = 1.0
    turns: tuple[tuple[str, int], ...] = ()  #: region, +1 or -1: where its share went last


@dataclass(frozen=True, slots=True)
class RatioDecision:
    ratios: dict[str, float]  #: of all regions; the sum is 1
    #: moved | steady | settling | idle | no-news | manual
    reason: str
    changes: tuple[RatioChange, ...] = ()
    memory: RatioMemory = field(default_factory=RatioMemory)


class _Measured(NamedTuple):
    spec: RegionSpec
    power: float  #: in one unit for all regions
    demand: float  #: in the same
    why: str  #: what lowers its power; none: ""


def decide(
    spec: TrafficSpec,
    seen: Iterable[RegionSeen],
    *,
    closed: Collection[str] = (),
    memory: RatioMemory | None = None,
    now: float,
) -> RatioDecision:
    """Where shares go next; `spec.with_ratios(decision.ratios)` is what the router takes then.

    Args:
        spec: with the shares as they are.
        seen: the last news of each region.
        closed: regions that are out of use.
        memory: of the decision before; None: there was none.
        now: seconds.
    """
    memory = memory if memory is not None else RatioMemory()
    before = spec.ratios()
    if spec.mode != AUTOMATIC:
        return RatioDecision(before, "manual", memory=RatioMemory())
    fresh = [
        one
        for one in seen
        if one.name not in closed and now < one.said_at + spec.health.silence_s_max
    ]
    measured = _measure(spec, fresh)
    if sum(one.power for one in measured) <= 0 or len(measured) < 2:
        return RatioDecision(before, "no-news", memory=memory)
    if sum(one.demand for one in measured) <= 0:
        return RatioDecision(before, "idle", memory=memory)
    aims = _aims(measured, before)
    furthest = max(abs(aims[one] - before[one]) for one in aims)
    if furthest < DEAD_BAND:
        return RatioDecision(before, "steady", memory=memory)
    if memory.moved_at is not None and now < memory.moved_at + spec.settle_s:
        return RatioDecision(before, "settling", memory=memory)
    return _moved(spec, measured, before, aims, memory, now)


def _moved(
    spec: TrafficSpec,
    measured: list[_Measured],
    before: dict[str, float],
    aims: dict[str, float],
    memory: RatioMemory,
    now: float,
) -> RatioDecision:
    furthest = max(aims, key=lambda one: (abs(aims[one] - before[one]), one))
    turn = 1 if aims[furthest] > before[furthest] else -1
    turned = dict(memory.turns).get(furthest, turn) != turn
    gain = max(GAIN_MIN, memory.gain / 2) if turned else min(1.0, memory.gain * _GAIN_RECOVERS)
    part = min(1.0, gain * spec.step_max / abs(aims[furthest] - before[furthest]))
    after = {**before, **{one: before[one] + part * (aims[one] - before[one]) for one in aims}}
    changes = tuple(
        RatioChange(one, before[one], after[one], reason)
        for one, reason in _reasons(measured, before, aims).items()
        if after[one] != before[one]
    )
    turns = {**dict(memory.turns), **{one.region: _sign(one.after - one.before) for one in changes}}
    remembered = RatioMemory(now, gain, tuple(sorted(turns.items())))
    return RatioDecision(after, "moved", changes, remembered)


def _measure(spec: TrafficSpec, fresh: list[RegionSeen]) -> list[_Measured]:
    """By region, in the order of the spec."""
    by_name = {one.name: one for one in fresh}
    told = [(one, by_name[one.name]) for one in spec.usable() if one.name in by_name]
    by_rate = all(seen.capacity_rps > 0 for _, seen in told)
    best_s = min((seen.p99_s for _, seen in told if seen.p99_s > 0), default=0.0)
    measured = []
    for region, seen in told:
        running = max(0, seen.in_flight - seen.waiting)
        slots = running + max(0, seen.room)
        if region.slots_max:
            slots = min(slots, region.slots_max)
        unit = seen.capacity_rps / slots if by_rate and slots else 1.0
        kept, why = 1.0, ""
        for part, reason in (
            (_kept_by_queue(slots, seen), "queue"),
            (_kept_by_latency(best_s, seen), "latency"),
            (_kept_by_errors(seen), "errors"),
        ):
            if part < min(kept, 1.0):
                why = reason
            kept *= part
        demand = unit * (running + seen.waiting)
        measured.append(_Measured(region, unit * slots * kept, demand, why))
    return measured


def _kept_by_queue(slots: int, seen: RegionSeen) -> float:
    return slots / (slots + seen.waiting) if slots else 0.0


def _kept_by_latency(best_s: float, seen: RegionSeen) -> float:
    if seen.p99_s <= _SLOW_FROM * best_s:
        return 1.0
    return max(_SLOW_KEEPS, _SLOW_FROM * best_s / seen.p99_s)


def _kept_by_errors(seen: RegionSeen) -> float:
    above = max(0.0, seen.error_share - _ERROR_SHARE_EASY)
    return max(0.0, 1.0 - above / (_ERROR_SHARE_MAX - _ERROR_SHARE_EASY))


def _aims(measured: list[_Measured], before: dict[str, float]) -> dict[str, float]:
    """The shares that the demand asks for, of the share that these regions have together."""
    together = sum(before[one.spec.name] for one in measured)
    demand = sum(one.demand for one in measured)
    taken = dict.fromkeys((one.spec.name for one in measured), 0.0)
    left = demand
    for cost in sorted({one.spec.cost_per_hour for one in measured}):
        tier = [one for one in measured if one.spec.cost_per_hour == cost]
        power = sum(one.power for one in tier)
        part = min(left, FILL * power)
        for one in tier:
            taken[one.spec.name] += part * one.power / power if power else 0.0
        left -= part
    power = sum(one.power for one in measured)
    for one in measured:
        taken[one.spec.name] += left * one.power / power
    wanted = {name: together * part / demand for name, part in taken.items()}
    return within_bounds(wanted, [one.spec for one in measured], together)


def within_bounds(
    wanted: dict[str, float], regions: list[RegionSpec], total: float
) -> dict[str, float]:
    """The nearest shares with this sum that keep to the bounds of each region, where there are
    such; where the bounds leave no such shares, those that break them least, all in one way.

    By the one shift that, added to all of them and cut off at the bounds, gives the sum (the
    projection onto a box and a hyperplane); found by halving.
    """
    low, high = -1.0 - total, 1.0 + total
    bounds = {one.name: (one.ratio_min, one.ratio_max) for one in regions}
    if sum(low_ for low_, _ in bounds.values()) > total or (
        sum(high_ for _, high_ in bounds.values()) < total
    ):
        bounds = {name: (0.0, total) for name in bounds}

    def cut(shift: float) -> dict[str, float]:
        return {
            name: min(max(wanted[name] + shift, least), most)
            for name, (least, most) in bounds.items()
        }

    for _ in range(60):
        middle = (low + high) / 2
        if sum(cut(middle).values()) < total:
            low = middle
        else:
            high = middle
    return cut(high)


def _reasons(
    measured: list[_Measured], before: dict[str, float], aims: dict[str, float]
) -> dict[str, str]:
    """Why each share moves: one that grows does so for what makes the others shrink."""
    costs = {one.spec.cost_per_hour for one in measured}
    usual = "cost" if len(costs) > 1 else "capacity"
    shrinking = {
        one.spec.name: one.why or usual
        for one in measured
        if aims[one.spec.name] < before[one.spec.name]
    }
    most = max(shrinking, key=lambda one: (before[one] - aims[one], one), default="")
    grows = shrinking.get(most, usual)
    return {one: shrinking.get(one, grows) for one in aims}


def _sign(value: float) -> int:
    return 1 if value > 0 else -1
