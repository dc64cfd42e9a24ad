"""Shares of regions that adjust themselves: by capacity, queues, latency, errors and cost.

    measure   what each region could take, its *power*, and the demand on all (`moving_averages.py`)
    decide    where the present demand should go: the cheapest regions first, up to `FILL` of
              their power, equally cheap ones alike; beyond that all by their power
    act       towards it within the bounds, at most `step_max` at once and once in `settle_s`

The measurements depend on the shares only where regions are overloaded or slow, so there is little
feedback; and where a share changes direction, the next steps are half as large (a gain that
recovers slowly). Shares at rest stay until they are off by `WAKES`: smaller noise moves nothing. A
region whose report is old, or that is not used, keeps its share: unknown is not idle, and the
router divides what it can't use among the others. Shares that were set by hand (mode MANUAL) never
move.

It must not depend on when it is called: `memory` carries the state to the next decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from penstock.core.traffic.moving_averages import MovingAverages, RegionMeasured, measure
from penstock.core.traffic.spec import AUTOMATIC, RegionObserved, RegionSpec, TrafficSpec

#: Part of a region's power that is filled before a dearer region is used: above it queues grow
#: quickly (a queue with 80 % load is four services long, one with 90 % nine).
FILL: Final = 0.8
#: Shares this near to their goal come to rest; shares at rest move again from the second distance
#: on.
DEAD_BAND: Final = 0.02
WAKES: Final = 0.1
#: Least gain of the steps: halved at each change of direction, raised by a tenth with each move
#: that goes on.
GAIN_MIN: Final = 1.0 / 16.0
_GAIN_RECOVERS: Final = 1.1


class RatioChange(NamedTuple):
    region: str
    before: float
    after: float
    reason: str  #: capacity | cost | queue | latency | errors


@dataclass(frozen=True, slots=True)
class RatioMemory:
    """State that the next decision needs from the last."""

    moved_at: float | None = None
    gain: float = 1.0
    turns: tuple[tuple[str, int], ...] = ()  #: (region, +1 or -1): the last direction of its share
    at_rest: bool = False
    means: MovingAverages = field(default_factory=MovingAverages)


@dataclass(frozen=True, slots=True)
class RatioDecision:
    ratios: dict[str, float]  #: for all regions; the sum is 1
    #: moved | steady | settling | idle | no-news | manual
    reason: str
    changes: tuple[RatioChange, ...] = ()
    memory: RatioMemory = field(default_factory=RatioMemory)


def decide(
    spec: TrafficSpec,
    seen: Iterable[RegionObserved],
    *,
    closed: Collection[str] = (),
    memory: RatioMemory | None = None,
    now: float,
) -> RatioDecision:
    """Where shares go next; the router then gets `spec.with_ratios(decision.ratios)`.

    Args:
        spec: with the present shares.
        seen: the last report of each region.
        closed: regions that are not used.
        memory: state from the last decision; None: there was none.
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
    measured, means = measure(spec, fresh, memory.means, now=now)
    memory = replace(memory, means=means)
    if sum(one.power for one in measured) <= 0 or len(measured) < 2:
        return RatioDecision(before, "no-news", memory=memory)
    if means.demand <= 0:
        return RatioDecision(before, "idle", memory=memory)
    aims = _aims(measured, means.demand, before)
    furthest = max(abs(aims[one] - before[one]) for one in aims)
    if furthest < (WAKES if memory.at_rest else DEAD_BAND):
        at_rest = memory.at_rest or means.sure(now)
        return RatioDecision(before, "steady", memory=replace(memory, at_rest=at_rest))
    memory = replace(memory, at_rest=False)
    if memory.moved_at is not None and now < memory.moved_at + spec.settle_s:
        return RatioDecision(before, "settling", memory=memory)
    return _moved(spec, measured, before, aims, memory, now)


def _moved(
    spec: TrafficSpec,
    measured: list[RegionMeasured],
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
    remembered = replace(memory, moved_at=now, gain=gain, turns=tuple(sorted(turns.items())))
    return RatioDecision(after, "moved", changes, remembered)


def _aims(
    measured: list[RegionMeasured], demand: float, before: dict[str, float]
) -> dict[str, float]:
    """The shares for this demand, within the share that these regions have together."""
    together = sum(before[one.spec.name] for one in measured)
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
    """The nearest shares with this sum that keep to the bounds of each region, if there are any;
    where the bounds allow none, the shares that break them least, all in one direction.

    One shift is added to all shares, which are then cut off at the bounds. The shift that gives the
    sum (the projection onto a box and a hyperplane) is found by halving.
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
    measured: list[RegionMeasured], before: dict[str, float], aims: dict[str, float]
) -> dict[str, str]:
    """Why each share moves: a share that grows has the reason for which the others shrink."""
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
