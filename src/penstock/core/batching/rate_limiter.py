"""Which lanes may run their next batch, where models share resources: Triton's rate limiter.

The operator turns it on. A lane then needs copies of named resources for each batch, as its model's
`rate_limiter` says, and gives them back when the batch has ended. A resource belongs to a device,
or is global. There are as many copies of it as the operator says, or else as the lane needs that
needs most. Of the lanes that wait the first is the one with the smallest product of batches so far
and priority, so that priority 2 has half as many turns as priority 1. Others wait behind it even
where they would fit, or lanes that need much would never run. A lane that needs nothing never
waits.

The rules are those of Triton (docs/user_guide/rate_limiter.md of triton-inference-server/server).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.errors import ModelError

GLOBAL: Final = ""  #: the device of resources that all devices share
_SETTING: Final = "control.rate_limit_resources"

#: (device, name)
Resource = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What a lane needs for a batch."""

    resources: tuple[tuple[Resource, int], ...] = ()
    priority: int = 1


class RateLimiter:
    """The lanes of all models of one process; a lane has one batch at a time."""

    def __init__(self, copies: Mapping[str, int]) -> None:
        """`copies`: of a resource by its name, or by name:device. Empty: as many as are needed."""
        self._given = dict(copies)
        self._limits: dict[Hashable, RateLimit] = {}
        self._most: dict[Resource, int] = {}
        self._taken: Counter[Resource] = Counter()
        self._runs: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, None] = {}  #: in the order in which they came
        self._running: set[Hashable] = set()

    def add(self, lane: Hashable, limit: RateLimit) -> None:
        """Raises ModelError (`rate-limit-resource`) for a lane that could never run."""
        for (device, name), count in limit.resources:
            others = {at for at, known in self._most if known == name}
            others |= {at for (at, known), _ in limit.resources if known == name}
            if GLOBAL in others and len(others | {device}) > 1:
                raise _refused(
                    f"the resource {name!r} is one of all devices here and of one device there",
                    hint="Give it another name in one of the models.",
                )
            there = self._there(device, name)
            if there is not None and there < count:
                raise _refused(
                    f"a run needs {count} of the resource {name!r}, and there are {there}",
                    hint=f"Raise it in {_SETTING}, or lower it in the model's rate_limiter.",
                )
        self._limits[lane] = limit
        self._count()

    def remove(self, lane: Hashable) -> list[Hashable]:
        """The lane is gone. Returns the lanes that may run now."""
        self._give_back(lane)
        self._waiting.pop(lane, None)
        self._limits.pop(lane, None)
        self._runs.pop(lane, None)
        self._count()
        return self._next()

    def stage(self, lane: Hashable) -> list[Hashable]:
        """The lane has a batch. Returns the lanes that may run now, it may be among them."""
        if not self._limits[lane].resources:
            self._running.add(lane)
            return [lane]
        self._waiting[lane] = None
        return self._next()

    def release(self, lane: Hashable, *, again: bool) -> list[Hashable]:
        """The lane's batch has ended; `again`: it has another one. Returns the lanes that may run
        now."""
        self._runs[lane] += 1
        self._give_back(lane)
        return self.stage(lane) if again else self._next()

    def _give_back(self, lane: Hashable) -> None:
        if lane in self._running:
            self._running.remove(lane)
            self._taken.subtract(dict(self._limits[lane].resources))

    def _next(self) -> list[Hashable]:
        begun: list[Hashable] = []
        while self._waiting:
            first = min(self._waiting, key=self._turn)  # of equal ones the one that came first
            needed = dict(self._limits[first].resources)
            if any(self._taken[one] + count > self._most[one] for one, count in needed.items()):
                break
            del self._waiting[first]
            self._taken.update(needed)
            self._running.add(first)
            begun.append(first)
        return begun

    def _turn(self, lane: Hashable) -> int:
        return self._runs[lane] * max(1, self._limits[lane].priority)

    def _count(self) -> None:
        """How many copies there are of each resource that a lane needs."""
        self._most = {}
        for limit in self._limits.values():
            for (device, name), count in limit.resources:
                there = self._there(device, name)
                most = max(self._most.get((device, name), 0), count)
                self._most[device, name] = most if there is None else there

    def _there(self, device: str, name: str) -> int | None:
        """The operator's number of copies; None: there is none, of any resource."""
        if not self._given:
            return None
        if device != GLOBAL:
            return max(self._given.get(f"{name}:{device}", 0), self._given.get(name, 0))
        return max(
            (count for key, count in self._given.items() if key.partition(":")[0] == name),
            default=0,
        )


def _refused(message: str, *, hint: str) -> ModelError:
    return ModelError("rate-limit-resource", message, hint=hint, original_status=400)
