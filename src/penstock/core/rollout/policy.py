"""How a new generation takes over: what was asked for, and how far it is. Plain values.

The kinds are SageMaker's. Three of them start every instance of the new generation first, beside
the old ones, and then move traffic:

    ALL_AT_ONCE  all of it
    CANARY       a part, and then the rest
    LINEAR       one part after the other

After each move the new generation *bakes*: its alarms are watched for `wait_s`. One in ALARM sends
all traffic back to the old generation, which is whole until the last moment.

    ROLLING      a batch of new instances starts, takes its part of the traffic and bakes; then as
                 many old ones end, and the next batch starts

So it needs room for one batch only; but what goes back has to start old instances again first, in
batches as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.rollout.agreement import AgreementSpec

ALL_AT_ONCE = "ALL_AT_ONCE"
CANARY = "CANARY"
LINEAR = "LINEAR"
ROLLING = "ROLLING"  #: SageMaker has no name for it: it is RollingUpdatePolicy

INSTANCE_COUNT = "INSTANCE_COUNT"
CAPACITY_PERCENT = "CAPACITY_PERCENT"

# Stages of a rollout, in the order of its life.
CREATING = "creating"  #: the new generation, or its next batch, starts
BAKING = "baking"  #: the new generation has its share of the traffic, and is watched
TERMINATING = "terminating"  #: it has all traffic; the old one waits for its end
ROLLING_BACK = "rolling-back"  #: ROLLING: old instances start again, and get their traffic back

# What an operator may order while it is under way.
PAUSE = "pause"  #: no further step; alarms and comparisons still send it back
RESUME = "resume"
PROMOTE = "promote"  #: everything at once, or batch by batch without waiting
ABORT = "abort"  #: back
ORDERS = (PAUSE, RESUME, PROMOTE, ABORT)

#: Shares that differ by less are the same: a third, taken away three times, leaves some.
NO_SHARE = 1e-9
#: LINEAR: less of a step is none of its own, so that three times 33 percent is all.
_LEFT_OVER = 0.1


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
    """A DeploymentConfig, with its BlueGreenUpdatePolicy or RollingUpdatePolicy."""

    kind: str = ALL_AT_ONCE
    #: CANARY: of the first part; LINEAR: of each; ROLLING: of a batch
    size: RolloutSize | None = None
    rollback_size: RolloutSize | None = None  #: ROLLING: of a batch on the way back; None: all
    wait_s: float = 0.0  #: how long each part bakes
    termination_wait_s: float = 0.0  #: how long the old generation is kept without traffic
    #: s after which it goes back; 0 = no limit
    execution_s_max: float = 0.0
    alarms: tuple[str, ...] = ()  #: names; one in ALARM while it bakes sends it back
    agreement: AgreementSpec | None = None  #: what its answers are held to; None: not compared

    def shares(self, instances: int) -> Iterator[float]:
        """The new generation's share of the traffic, step by step; the last one is 1."""
        if self.kind == ROLLING:
            yield from _steps(_batch(self.size, instances), NO_SHARE)
            return
        part = _part(self.size, instances)
        if self.kind == LINEAR:
            yield from _steps(part, _LEFT_OVER)
            return
        if self.kind == CANARY and part < 1.0:
            yield part
        yield 1.0

    # Both by the share, not by the number of the step: scaling may change the fleet meanwhile, and
    # with it how many steps there are.

    def share_after(self, share: float, instances: int) -> float:
        """That of the next step."""
        return next((one for one in self.shares(instances) if one > share + NO_SHARE), 1.0)

    def share_before(self, share: float, instances: int) -> float:
        """That of the step before, or 0."""
        less = [one for one in self.shares(instances) if one < share - NO_SHARE]
        return less[-1] if less else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutProgress:
    """How far a rollout is, as the record keeps it. Times are wall clock seconds, so that waits go
    on where they were after a restart."""

    stage: str  #: CREATING | BAKING | TERMINATING
    began: float  #: when the rollout began
    since: float  #: when its stage, or the step of it, began
    step: int = 0  #: of the shares, from 1 on; 0 while it is created
    share: float = 0.0  #: the part of the traffic that the new generation gets
    why: str = ""  #: why it goes back; "" = it does not
    order: str = ""  #: one of ORDERS but RESUME; "" = the policy alone decides
    #: alarms that were in ALARM before it had any traffic, and have been ever since
    rang: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Tells this rollout from others, also from those of an earlier endpoint of its name."""
        return int(self.began * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCapacity:
    """The parts of their instances that both generations should have now."""

    new: float
    old: float


def rollout_capacity(
    policy: RolloutPolicy, progress: RolloutProgress | None, instances: int
) -> RolloutCapacity:
    """`instances`: of the new generation, when it is whole."""
    if policy.kind != ROLLING:
        return RolloutCapacity(new=1.0, old=1.0)
    if progress is None:
        return RolloutCapacity(new=0.0, old=1.0)
    if progress.stage == ROLLING_BACK:
        back = _batch(policy.rollback_size, instances)
        return RolloutCapacity(new=progress.share, old=min(1.0 - progress.share + back, 1.0))
    if progress.stage == CREATING:
        # The batches before have baked; as many of the old ones are not needed any more.
        coming = policy.share_after(progress.share, instances)
        return RolloutCapacity(new=coming, old=1.0 - progress.share)
    before = policy.share_before(progress.share, instances)
    return RolloutCapacity(new=progress.share, old=1.0 - before)


def _part(size: RolloutSize | None, instances: int) -> float:
    return size.share(instances) if size is not None else 1.0


def _batch(size: RolloutSize | None, instances: int) -> float:
    """As `_part`, in whole instances: a third is one of three, and so is 33 percent."""
    whole = max(instances, 1)
    return max(math.ceil(_part(size, instances) * whole - 0.5), 1) / whole


def _steps(part: float, left_over: float) -> Iterator[float]:
    """`left_over`: so much of a step is none of its own, but joins the last one."""
    # Steps are counted, not added up: ten times 0.1 is not 1.
    for step in range(1, math.ceil(1 / part - left_over)):
        yield step * part
    yield 1.0
