"""InstanceType and InstancePools of a variant: checked, made into `PoolSpec`s, and shown again.

How many pools there may be and what their priorities are is in the service's model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api.sagemaker.names import invalid
from penstock.core.deployment.deployment import ModelSource, PoolSpec


def check_instance_types(variant: Mapping[str, Any]) -> None:
    """Refuses a variant without a type, with one that is none, and with pools that contradict
    themselves."""
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
    """In the order in which they are filled; those of one priority as they were given.

    Raises ValidationException for a model of another mode than the variant's.
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
    return pools


def pool_summaries(pools: Sequence[PoolSpec], counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """What DescribeEndpoint shows: instances that serve now, by type."""
    return [
        {
            "InstanceType": one.instance_type,
            "CurrentInstanceCount": counts.get(one.instance_type, 0),
        }
        for one in pools
    ]


def model_names(variant: Mapping[str, Any]) -> list[str]:
    """All that the variant names."""
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
