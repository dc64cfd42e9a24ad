"""Carries out Triton's rate limiter (`core.batching.rate_limiter`) for the models of this process.

A batch that may not run yet waits here, for its lane. The limiter is one for all models of a
process, as resources are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.artifacts.description.description import ModelDescription
from penstock.core.batching.rate_limiter import GLOBAL, RateLimit, RateLimiter
from penstock.core.batching.spec import RunBatch

Begin = Callable[[RunBatch, list[Any]], None]
_DEVICE: Final = 0  #: of a model without a GPU, as in Triton
_numbers = itertools.count(1)


class LaneLimits:
    """The lanes of one model."""

    def __init__(self, shared: SharedLimiter, limits: tuple[RateLimit, ...]) -> None:
        """Raises ModelError where a lane could never run."""
        number = next(_numbers)
        self._shared = shared
        self._lanes = [(number, lane) for lane in range(len(limits))]
        #: lane -> its batches that do not run yet
        self.waiting: dict[int, list[tuple[Begin, RunBatch, list[Any]]]] = {}
        self._running: set[int] = set()
        try:
            for lane, limit in zip(self._lanes, limits, strict=True):
                shared.limiter.add(lane, limit)
                shared.models[lane] = self
        except BaseException:
            self.close()
            raise

    def run(self, begin: Begin, action: RunBatch, items: list[Any]) -> None:
        """Calls `begin` now or later, once the lane may run. Call `freed` when the batch has ended
        and the lane's next one is here, if there is one."""
        lane = action.lane
        waiting = self.waiting.setdefault(lane, [])
        waiting.append((begin, action, items))
        if len(waiting) == 1 and lane not in self._running:
            self._shared.begin(self._shared.limiter.stage(self._lanes[lane]))

    def may_run(self, lane: int) -> None:
        self._running.add(lane)
        begin, action, items = self.waiting[lane].pop(0)
        begin(action, items)

    def freed(self, lane: int) -> None:
        if lane not in self._running:
            return
        self._running.remove(lane)
        again = bool(self.waiting.get(lane))
        self._shared.begin(self._shared.limiter.release(self._lanes[lane], again=again))

    def close(self) -> list[Any]:
        """The model ends. Returns the items that have not begun."""
        batches = [batch for waiting in self.waiting.values() for batch in waiting]
        left = [item for _, _, items in batches for item in items]
        self.waiting = {}
        for lane in self._lanes:
            self._shared.models.pop(lane, None)
            self._shared.begin(self._shared.limiter.remove(lane))
        return left


class SharedLimiter:
    """`models`: whose lane each is."""

    def __init__(self, copies: Mapping[str, int]) -> None:
        self.limiter = RateLimiter(copies)
        self.models: dict[Any, LaneLimits] = {}

    def begin(self, lanes: list[Any]) -> None:
        for number, lane in lanes:
            self.models[number, lane].may_run(lane)


def lane_limits(
    copies: tuple[tuple[str, int], ...], description: ModelDescription, lanes: int
) -> LaneLimits:
    """Of a model that is loaded. Raises ModelError where it could never run."""
    return LaneLimits(limiter_of_process(copies), limits_of(description, lanes))


@functools.cache
def limiter_of_process(copies: tuple[tuple[str, int], ...]) -> SharedLimiter:
    return SharedLimiter(dict(copies))


def limits_of(description: ModelDescription, lanes: int) -> tuple[RateLimit, ...]:
    """Of each lane, in the order of the model's instance groups."""
    facts = description.triton
    groups = facts.config.get("instance_group", ()) if facts is not None else ()
    limits: list[RateLimit] = []
    for group in groups:
        if not group.get("passive"):
            devices = group.get("gpus") or [_DEVICE]
            count = max(1, group.get("count", 1))
            limits += [_limit(group, devices[at % len(devices)]) for at in range(count)]
    return tuple(limits[:lanes]) + (RateLimit(),) * (lanes - len(limits))


def _limit(group: Mapping[str, Any], device: int) -> RateLimit:
    told = group.get("rate_limiter") or {}
    resources = tuple(
        ((GLOBAL if one.get("global") else str(device), one["name"]), int(one.get("count", 1)))
        for one in told.get("resources", ())
    )
    return RateLimit(resources, int(told.get("priority", 0)) or 1)
