"""Members of a variant: checked, turned into fields of its `VariantSpec`, and shown by Describe.

InstanceType and InstancePools; the service's model bounds the number of pools and their priorities.

ManagedInstanceScaling.

RoutingConfig: the default is LEAST_OUTSTANDING_REQUESTS (AWS's own default is RANDOM, which has no
use here: the gateway always knows the outstanding requests). PENSTOCK_ROUTING in the model's
environment names a strategy that SageMaker's enum does not have; a RoutingConfig of the variant
itself takes precedence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.api.refused_members import REFUSED
from penstock.api.sagemaker.context import invalid
from penstock.core.deployment.deployment import (
    CONSOLIDATION,
    IDLE_RELEASE,
    LEAST_OUTSTANDING_REQUESTS,
    OWN_STRATEGIES,
    PREFIX_AWARE,
    RANDOM,
    ManagedScaling,
    ModelSource,
    PoolSpec,
)

SHADOWS: Final = "ShadowProductionVariants"


def check_instance_types(variant: Mapping[str, Any]) -> None:
    """Refuses a variant without a type, an invalid type, and pools that contradict each
    other."""
    name, pools = variant["VariantName"], variant.get("InstancePools")
    if pools is None:
        _check_type(name, "InstanceType", variant.get("InstanceType"))
        return
    if variant.get("InstanceType"):
        raise invalid(f"Variant {name!r}: give either InstanceType or InstancePools, not both.")
    seen: set[str] = set()
    for pool in pools:
        _check_type(name, "InstanceType of an instance pool", pool.get("InstanceType"))
        if pool["InstanceType"] in seen:
            raise invalid(
                f"Variant {name!r}: InstancePools names {pool['InstanceType']!r} twice; each pool"
                " has an instance type of its own."
            )
        seen.add(pool["InstanceType"])
        if pool.get("ModelNameOverride") and not variant.get("ModelName"):
            raise invalid(
                f"Variant {name!r}: ModelNameOverride is for variants with ModelName. What is"
                " loaded on this one are inference components."
            )


def instance_pools(
    variant: Mapping[str, Any], models: Mapping[str, ModelSource]
) -> tuple[PoolSpec, ...]:
    """The pools in the order in which they are filled; equal priorities keep the given order.

    Raises ValidationException for a model whose mode differs from the variant's.
    """
    pools = tuple(
        PoolSpec(
            instance_type=pool["InstanceType"],
            priority=pool["Priority"],
            model=models[pool["ModelNameOverride"]] if pool.get("ModelNameOverride") else None,
        )
        for pool in sorted(variant.get("InstancePools") or (), key=lambda one: one["Priority"])
    )
    own = models.get(variant.get("ModelName", ""))
    for pool in pools:
        if pool.model is not None and own and pool.model.multi_model != own.multi_model:
            raise invalid(
                f"Variant {variant['VariantName']!r}: ModelNameOverride"
                f" {pool.model.model_name!r} and ModelName {own.model_name!r} must have the same"
                " Mode: requests either name a target model, or do not."
            )
        if pool.model is not None and own and pool.model.direct != own.direct:
            raise invalid(
                f"Variant {variant['VariantName']!r}: ModelNameOverride"
                f" {pool.model.model_name!r} and ModelName {own.model_name!r} must have the same"
                " Mode of InferenceExecutionConfig: requests either name a container, or do not."
            )
    return pools


def pool_summaries(pools: Sequence[PoolSpec], counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Pools as DescribeEndpoint shows them: serving instances, by type."""
    return [
        {
            "InstanceType": one.instance_type,
            "CurrentInstanceCount": counts.get(one.instance_type, 0),
        }
        for one in pools
    ]


def all_variants(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The production variants of an endpoint configuration, and then its shadow variants."""
    return [*config["ProductionVariants"], *(config.get(SHADOWS) or ())]


def model_names(variant: Mapping[str, Any]) -> list[str]:
    """All models that the variant names."""
    named = [variant.get("ModelName")]
    named += [pool.get("ModelNameOverride") for pool in variant.get("InstancePools") or ()]
    return [str(name) for name in named if name]


def _check_type(variant: str, member: str, given: Any) -> None:
    if not given:
        raise invalid(f"Variant {variant!r} needs InstanceType or InstancePools.")
    if not str(given).startswith("ml."):
        raise invalid(
            f"Variant {variant!r}: {member} {given!r} is unknown; names begin with 'ml.', for"
            " example ml.local.small."
        )


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


ROUTING = "PENSTOCK_ROUTING"

_SERVED = (LEAST_OUTSTANDING_REQUESTS, RANDOM, PREFIX_AWARE)
_BY_ENVIRONMENT = (LEAST_OUTSTANDING_REQUESTS, RANDOM, *OWN_STRATEGIES)


def check_routing_config(variant: Mapping[str, Any]) -> None:
    """Raises ValidationException for unsupported values; the service model checks ranges."""
    config = variant.get("RoutingConfig")
    if not config:
        return
    name, strategy = variant["VariantName"], config["RoutingStrategy"]
    if strategy not in _SERVED:
        path = "CreateEndpointConfig.ProductionVariants[].RoutingConfig.RoutingStrategy"
        raise invalid(
            f"Variant {name!r}: {REFUSED[path].format(strategy)} Use {PREFIX_AWARE}, which goes by"
            f" the prompts that each copy was sent, or one of {', '.join(_SERVED[:2])}."
        )
    prefix = config.get("PrefixAwareRoutingConfig")
    if strategy != PREFIX_AWARE:
        if prefix is not None:
            raise invalid(
                f"Variant {name!r}: PrefixAwareRoutingConfig is only for RoutingStrategy"
                f" {PREFIX_AWARE}, and the strategy is {strategy}."
            )
        return
    for member in ("PrefixLength", "ConcurrencyThreshold"):
        if (prefix or {}).get(member) is None:
            raise invalid(
                f"Variant {name!r}: RoutingStrategy {PREFIX_AWARE} needs"
                f" PrefixAwareRoutingConfig.{member}."
            )


def routing_fields(
    variant: Mapping[str, Any], environment: Mapping[str, Any] | None
) -> dict[str, Any]:
    """`strategy` and, for PREFIX_AWARE, its two numbers. Raises ValidationException for a
    PENSTOCK_ROUTING that names no strategy."""
    config = variant.get("RoutingConfig")
    if not config:
        strategy = (environment or {}).get(ROUTING, LEAST_OUTSTANDING_REQUESTS)
        if strategy not in _BY_ENVIRONMENT:
            raise invalid(
                f"Variant {variant['VariantName']!r}: {ROUTING} in the environment of its model is"
                f" {strategy!r}; use one of {', '.join(_BY_ENVIRONMENT)}."
            )
        return {"strategy": strategy}
    if config["RoutingStrategy"] != PREFIX_AWARE:
        return {"strategy": config["RoutingStrategy"]}
    prefix = config["PrefixAwareRoutingConfig"]
    return {
        "strategy": PREFIX_AWARE,
        "prefix_length_max": prefix["PrefixLength"],
        "concurrency_threshold": prefix["ConcurrencyThreshold"],
    }


def routing_config(
    strategy: str, prefix_length_max: int, concurrency_threshold: int
) -> dict[str, Any]:
    """The RoutingConfig that DescribeEndpoint shows."""
    shown: dict[str, Any] = {"RoutingStrategy": strategy}
    if strategy == PREFIX_AWARE:
        shown["PrefixAwareRoutingConfig"] = {
            "PrefixLength": prefix_length_max,
            "ConcurrencyThreshold": concurrency_threshold,
        }
    return shown
