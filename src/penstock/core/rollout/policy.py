"""How a new generation takes over: what was asked for, and how far it is. Plain values.

The kinds are SageMaker's. All of them start every instance of the new generation first, beside the
old ones, and then move traffic:

    ALL_AT_ONCE  all of it
    CANARY       a part, and then the rest
    LINEAR       one part after the other

After each move the new generation *bakes*: its alarms are watched for `wait_s`. One in ALARM sends
all traffic back to the old generation, which is whole until the last moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

ALL_AT_ONCE = "ALL_AT_ONCE"
CANARY = "CANARY"
LINEAR = "LINEAR"

INSTANCE_COUNT = "INSTANCE_COUNT"
CAPACITY_PERCENT = "CAPACITY_PERCENT"

# Stages of a rollout, in the order of its life.
CREATING = "creating"  #: the new generation starts; the old one has all traffic
BAKING = "baking"  #: the new generation has its share of the traffic, and is watched
TERMINATING = "terminating"  #: it has all traffic; the old one waits for its end


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSize:
    """A part of a fleet."""

    kind: str  #: INSTANCE_COUNT | CAPACITY_PERCENT
    value: int

    def share(self, instances: int) -> float:
        """The part that it is of so many instances, in (0, 1]."""
        if self.kind == CAPACITY_PERCENT:
            return min(self.value / 100, 1.0)
        return min(self.value / max(instances, 1), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPolicy:
    """A DeploymentConfig, with a BlueGreenUpdatePolicy."""

    kind: str = ALL_AT_ONCE
    size: RolloutSize | None = None  #: CANARY: of the first part; LINEAR: of each
    wait_s: float = 0.0  #: how long each part bakes
    termination_wait_s: float = 0.0  #: how long the old generation is kept without traffic
    #: s after which it goes back; 0 = no limit
    execution_s_max: float = 0.0
    alarms: tuple[str, ...] = ()  #: names; one in ALARM while it bakes sends it back

    def shares(self, instances: int) -> Iterator[float]:
        """The new generation's share of the traffic, step by step; the last one is 1."""
        part = self.size.share(instances) if self.size is not None else 1.0
        if self.kind == CANARY and part < 1.0:
            yield part
        elif self.kind == LINEAR:
            # Steps are counted, not added up: ten times 0.1 is not 1.
            for step in range(1, math.ceil(round(1 / part, 9))):
                yield step * part
        yield 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutProgress:
    """How far a rollout is, as the record keeps it. Times are wall clock seconds, so that waits go
    on where they were after a restart."""

    stage: str  #: CREATING | BAKING | TERMINATING
    began: float  #: when the rollout began
    since: float  #: when its stage, or the step of it, began
    step: int = 0  #: of the shares, from 1 on; 0 while it is created
    share: float = 0.0  #: the part of the traffic that the new generation gets
