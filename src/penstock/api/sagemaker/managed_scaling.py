"""ManagedInstanceScaling of a variant: checked, turned into a `ManagedScaling`, and shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.api.sagemaker.names import invalid
from penstock.core.deployment.deployment import CONSOLIDATION, IDLE_RELEASE, ManagedScaling

#: SageMaker's defaults for CONSOLIDATION.
_CONSOLIDATION_COOLDOWN_MINUTES = 20
_CONSOLIDATION_STEP_MAX = 1
#: s that an idle instance is kept: enough to create a component after its endpoint.
_IDLE_COOLDOWN_S = 60.0


def check_managed_scaling(variant: Mapping[str, Any]) -> None:
    config = variant.get("ManagedInstanceScaling") or {}
    if config.get("Status") != "ENABLED":
        return
    name = variant["VariantName"]
    if variant.get("ModelName"):
        raise invalid(
            f"Variant {name!r}: ManagedInstanceScaling is for variants without ModelName, whose"
            " instances follow the copies of inference components. Use Application Auto Scaling."
        )
    if config.get("MaxInstanceCount") is None:
        raise invalid(f"Variant {name!r}: ManagedInstanceScaling needs MaxInstanceCount.")
    least, most = config.get("MinInstanceCount", 1), config["MaxInstanceCount"]
    if least > most:
        raise invalid(
            f"Variant {name!r}: MinInstanceCount {least} is more than MaxInstanceCount {most}."
        )
    count = variant.get("InitialInstanceCount", max(least, 1))
    if count > most:
        raise invalid(
            f"Variant {name!r}: InitialInstanceCount {count} is more than MaxInstanceCount {most}."
        )


def managed_scaling(variant: Mapping[str, Any]) -> ManagedScaling | None:
    """The setting; None where it is missing or DISABLED."""
    config = variant.get("ManagedInstanceScaling") or {}
    if config.get("Status") != "ENABLED":
        return None
    policy = config.get("ScaleInPolicy") or {}
    strategy = policy.get("Strategy", IDLE_RELEASE)
    packs = strategy == CONSOLIDATION
    minutes = policy.get("CooldownInMinutes", _CONSOLIDATION_COOLDOWN_MINUTES if packs else None)
    return ManagedScaling(
        instances_min=config.get("MinInstanceCount", 1),
        instances_max=config["MaxInstanceCount"],
        strategy=strategy,
        step_max=policy.get("MaximumStepSize", _CONSOLIDATION_STEP_MAX if packs else 0),
        cooldown_s=_IDLE_COOLDOWN_S if minutes is None else minutes * 60.0,
    )


def managed_instance_scaling(managed: ManagedScaling) -> dict[str, Any]:
    """ManagedInstanceScaling as DescribeEndpoint shows it."""
    policy: dict[str, Any] = {"Strategy": managed.strategy}
    if managed.step_max:
        policy["MaximumStepSize"] = managed.step_max
    if managed.cooldown_s != _IDLE_COOLDOWN_S:
        policy["CooldownInMinutes"] = round(managed.cooldown_s / 60)
    return {
        "Status": "ENABLED",
        "MinInstanceCount": managed.instances_min,
        "MaxInstanceCount": managed.instances_max,
        "ScaleInPolicy": policy,
    }
