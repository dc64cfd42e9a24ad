"""Scalable targets and their policies, in Application Auto Scaling's words.

Also their resource ids and dimensions, and the texts by which activities call their capacity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.core.timetable.timetable import Timetable

STEP_SCALING: Final = "StepScaling"
TARGET_TRACKING: Final = "TargetTrackingScaling"
POLICY_TYPES: Final = (STEP_SCALING, TARGET_TRACKING)

CHANGE: Final = "ChangeInCapacity"
PERCENT: Final = "PercentChangeInCapacity"
EXACT: Final = "ExactCapacity"

AVERAGE: Final = "Average"
MINIMUM: Final = "Minimum"
MAXIMUM: Final = "Maximum"

#: s; Application Auto Scaling's default for SageMaker, for every kind of cooldown.
COOLDOWN_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """SuspendedState: which scaling is suspended."""

    scale_in: bool = False  #: DynamicScalingInSuspended
    scale_out: bool = False  #: DynamicScalingOutSuspended
    scheduled: bool = False  #: ScheduledScalingSuspended


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalableTargetSpec:
    """One scalable target. Its bounds hold for policies, not for counts set by hand."""

    resource_id: str  #: endpoint/<name>/variant/<name> or inference-component/<name>
    dimension: str
    capacity_min: int  #: >= 0
    capacity_max: int  #: >= capacity_min
    suspended: Suspended = field(default_factory=Suspended)
    fast: bool = False  #: True: it also scales each second by the load itself

    def bounded(self, capacity: int) -> int:
        """The nearest capacity within the bounds."""
        return max(self.capacity_min, min(capacity, self.capacity_max))


@dataclass(frozen=True, slots=True)
class StepAdjustment:
    """What to do while the metric is this far from the alarm's threshold."""

    lower: float | None  #: bound of metric - threshold; None: unbounded
    upper: float | None
    adjustment: int  #: number of instances or copies, or percent


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPolicy:
    name: str
    arn: str
    adjustment_type: str
    steps: tuple[StepAdjustment, ...]
    magnitude_min: int = 0  #: for PERCENT only: change by at least this many
    cooldown_s: float = COOLDOWN_S
    aggregation: str = AVERAGE  #: how the alarm's datapoints are combined


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingPolicy:
    name: str
    arn: str
    target_value: float  #: > 0
    scale_out_cooldown_s: float = COOLDOWN_S
    scale_in_cooldown_s: float = COOLDOWN_S
    disable_scale_in: bool = False
    #: the metric is requests in flight per copy, which the fast path can observe itself
    of_concurrency: bool = False


Policy = StepPolicy | TrackingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmPeriods:
    """How the alarms of a target-tracking policy are evaluated.

    With high-resolution metrics a change is seen within 45 s (one period under way, and three to be
    sure); standard ones are as AWS's own alarms for other services. Coming in waits 15 minutes in
    both.
    """

    high_resolution_s: int = 10
    high_resolution_high: int = 3  #: periods above the target before it scales out
    high_resolution_low: int = 90  #: periods below `low_share` of the target before it comes in
    standard_s: int = 60
    standard_high: int = 3
    standard_low: int = 15
    low_share: float = 0.9  #: part of the target, as in AWS's own alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSpec:
    """The whole spec of one target, except its schedules."""

    target: ScalableTargetSpec
    policies: tuple[Policy, ...] = ()  #: sorted by name

    def policy(self, arn: str) -> Policy | None:
        return next((one for one in self.policies if one.arn == arn), None)

    def with_cooldowns_up_to(self, most_s: float) -> ScalingSpec:
        """The same spec, but no policy has a longer cooldown."""
        return replace(self, policies=tuple(_capped(one, most_s) for one in self.policies))

    def tracking(self) -> tuple[TrackingPolicy, ...]:
        return tuple(one for one in self.policies if isinstance(one, TrackingPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledAction:
    """Changes of a target's bounds at set times. Its timetable begins at its StartTime, else when
    it was made, and ends at its EndTime."""

    name: str
    timetable: Timetable
    capacity_min: int | None = None  #: None: unchanged
    capacity_max: int | None = None


def _capped(policy: Policy, most_s: float) -> Policy:
    if isinstance(policy, StepPolicy):
        return replace(policy, cooldown_s=min(policy.cooldown_s, most_s))
    return replace(
        policy,
        scale_out_cooldown_s=min(policy.scale_out_cooldown_s, most_s),
        scale_in_cooldown_s=min(policy.scale_in_cooldown_s, most_s),
    )


VARIANT: Final = "sagemaker:variant:DesiredInstanceCount"
COMPONENT: Final = "sagemaker:inference-component:DesiredCopyCount"

_NAME: Final = "[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}"
_VARIANT_ID: Final = re.compile(f"endpoint/({_NAME})/variant/({_NAME})", re.ASCII)
_COMPONENT_ID: Final = re.compile(f"inference-component/({_NAME})", re.ASCII)

#: How an activity calls the count.
_WORDS: Final = {VARIANT: "desired instance count", COMPONENT: "desired copy count"}


@dataclass(frozen=True, slots=True)
class VariantId:
    endpoint: str
    variant: str


@dataclass(frozen=True, slots=True)
class ComponentId:
    component: str


def parse(resource_id: str, dimension: str) -> VariantId | ComponentId | None:
    """The resource that a target names; None if it is not served, or if the two don't match."""
    if dimension == VARIANT and (found := _VARIANT_ID.fullmatch(resource_id)):
        return VariantId(found[1], found[2])
    if dimension == COMPONENT and (found := _COMPONENT_ID.fullmatch(resource_id)):
        return ComponentId(found[1])
    return None


def words_of(dimension: str) -> str:
    """The word in "Setting desired instance count to 3."."""
    return _WORDS.get(dimension, "desired capacity")
