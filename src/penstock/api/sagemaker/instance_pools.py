"""InstanceType and InstancePools of a variant: checked, turned into `PoolSpec`s, and shown.

The service's model bounds the number of pools and their priorities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api.sagemaker.names import invalid
from penstock.core.deployment.deployment import ModelSource, PoolSpec


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
