"""Short words for timelines of scaling: alarms, looks, policies."""

from __future__ import annotations

from typing import Any

from penstock.core.alarms.spec import ALARM, AlarmFired, AlarmSpec
from penstock.core.scaling.actions import Action, SetCapacity
from penstock.core.scaling.machine import TargetScaler
from penstock.core.scaling.observed import LoadObserved
from penstock.core.scaling.spec import (
    VARIANT,
    Policy,
    ScalableTargetSpec,
    ScalingSpec,
    StepAdjustment,
    StepPolicy,
    TrackingPolicy,
)

RESOURCE = "endpoint/chat/variant/all"


def target(low: int = 1, high: int = 10, **more: Any) -> ScalableTargetSpec:
    return ScalableTargetSpec(
        resource_id=RESOURCE, dimension=VARIANT, capacity_min=low, capacity_max=high, **more
    )


def tracking(name: str = "track", value: float = 5.0, **more: Any) -> TrackingPolicy:
    settings: dict[str, Any] = {"scale_out_cooldown_s": 180.0, "scale_in_cooldown_s": 180.0}
    return TrackingPolicy(name=name, arn=f"arn:{name}", target_value=value, **(settings | more))


def steps(*rows: tuple[float | None, float | None, int], name: str = "step", **more: Any) -> Any:
    settings: dict[str, Any] = {"adjustment_type": "ChangeInCapacity", "cooldown_s": 60.0}
    return StepPolicy(
        name=name,
        arn=f"arn:{name}",
        steps=tuple(StepAdjustment(*row) for row in rows),
        **(settings | more),
    )


def scaler(*policies: Policy, low: int = 1, high: int = 10, **more: Any) -> TargetScaler:
    return TargetScaler(ScalingSpec(target=target(low, high, **more), policies=policies))


def fired(
    policy: str,
    *values: float,
    at: float = 0.0,
    high: bool = True,
    threshold: float = 5.0,
    period_s: int = 10,
    periods: int = 3,
    state: str = ALARM,
) -> AlarmFired:
    """An alarm of the policy `arn:<policy>`; low alarms look below."""
    kind = "AlarmHigh" if high else "AlarmLow"
    return AlarmFired(
        alarm=AlarmSpec(
            name=f"{policy}-{kind}",
            queries=(),
            period_s=period_s,
            evaluation_periods=periods,
            datapoints_to_alarm=periods,
            threshold=threshold,
            comparison="GreaterThanThreshold" if high else "LessThanThreshold",
        ),
        arn=f"arn:alarm:{policy}",
        action=f"arn:{policy}",
        state=state,
        values=values,
        reason="",
        at=at,
    )


def low(policy: str, *values: float, at: float = 0.0, **more: Any) -> AlarmFired:
    settings: dict[str, Any] = {"threshold": 4.5, "periods": 9}
    return fired(policy, *values, at=at, high=False, **(settings | more))


def seen(at: float, capacity: int, ready: int | None = None, **more: Any) -> LoadObserved:
    return LoadObserved(
        at=at, capacity=capacity, ready=capacity if ready is None else ready, **more
    )


def watch(
    machine: TargetScaler,
    start: float,
    end: float,
    capacity: int,
    ready: int | None = None,
    **more: Any,
) -> list[Action]:
    """A look each second from `start` up to `end`, not included; all that came of them."""
    actions: list[Action] = []
    at = start
    while at < end:
        actions += machine.on_observed(seen(at, capacity, ready, **more))
        at += 1.0
    return actions


def accept(machine: TargetScaler, actions: list[Action], activity: str = "a1") -> list[Action]:
    """Writes the only `SetCapacity` among the actions."""
    (asked,) = [one for one in actions if isinstance(one, SetCapacity)]
    return machine.on_accepted(asked, activity)


def asked(actions: list[Action]) -> list[tuple[int, int, str]]:
    """(was, to, reason) of each change."""
    return [(one.was, one.to, one.reason) for one in actions if isinstance(one, SetCapacity)]
