"""Targets, policies, scheduled actions and activities as rows and front doors exchange them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.core.scaling.activity import NotScaled
from penstock.core.scaling.spec import Policy, ScalableTargetSpec
from penstock.errors import CallerError


def target_key(resource_id: str, dimension: str) -> str:
    """The key of a target: lower case, since names are compared without case."""
    return f"{dimension}|{resource_id.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """One scalable target. Times are wall seconds."""

    spec: ScalableTargetSpec
    arn: str
    role_arn: str
    created: float

    @property
    def key(self) -> str:
        return target_key(self.spec.resource_id, self.spec.dimension)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """One policy of a target."""

    resource_id: str
    dimension: str
    policy: Policy
    kind: str  #: PolicyType
    request: dict[str, Any]  #: its configuration as given
    created: float
    alarms: tuple[tuple[str, str], ...] = ()  #: (name, ARN) of the alarms that trigger it
    #: why its row could not be read; empty: it was read. An unreadable policy scales nothing:
    #: `policy` has its name and no step
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledActionRecord:
    """One scheduled action of a target, as given."""

    resource_id: str
    dimension: str
    name: str
    arn: str
    schedule: str
    timezone: str
    created: float
    starts: float | None = None
    ends: float | None = None
    capacity_min: int | None = None
    capacity_max: int | None = None
    due: float | None = None  #: when it runs next; None: it has run for the last time


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """The change of capacity of an activity."""

    was: int
    to: int
    base: int  #: the capacity that steps are added to during the cooldown
    cooldown_s: float
    reason: str
    policy: str = ""
    #: the observation and the proposals that it was decided from
    decided: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRecord:
    """One scaling activity."""

    id: str
    resource_id: str
    dimension: str
    description: str
    cause: str
    started: float
    status: str
    message: str = ""
    details: str = ""  #: our reason code, kebab-case
    ended: float | None = None
    not_scaled: NotScaled | None = None
    change: ChangeRecord | None = None
    number: int = 0  #: counts up in the order of writing


class NoSuchTarget(CallerError):
    """No target is registered for this resource and dimension."""

    def __init__(self, resource_id: str, dimension: str) -> None:
        super().__init__(
            "scalable-target-not-found",
            f"No scalable target is registered for {resource_id[:256]}, {dimension[:64]}.",
            hint="RegisterScalableTarget makes one.",
        )


class NoSuchPolicy(CallerError):
    """The target has no policy of that name."""

    def __init__(self, name: str) -> None:
        super().__init__("scaling-policy-not-found", f"There is no scaling policy {name[:256]!r}.")


class NoSuchScheduledAction(CallerError):
    """The target has no scheduled action of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "scheduled-action-not-found", f"There is no scheduled action {name[:256]!r}."
        )


class ResourceMissing(CallerError):
    """The resource to scale does not exist."""

    def __init__(self, resource_id: str) -> None:
        super().__init__("resource-missing", f"There is nothing that is {resource_id[:256]!r}.")


class BoundsCross(CallerError):
    """The minimum is above the maximum, as given or together with the stored bound."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(
            "bounds-cross", f"Maximum capacity {high} cannot be less than minimum capacity {low}."
        )


class TooMany(CallerError):
    """A limit of the service is reached."""

    def __init__(self, what: str, most: int) -> None:
        super().__init__("too-many", f"A scalable target can't have more than {most} {what}.")
