"""A variant's RoutingConfig, checked, as fields of its `VariantSpec`.

The default is LEAST_OUTSTANDING_REQUESTS (AWS's own default is RANDOM, which has no use here: the
gateway always knows the outstanding requests). PENSTOCK_ROUTING in the model's environment names a
strategy that SageMaker's enum does not have; a RoutingConfig of the variant itself takes
precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.api.sagemaker.names import invalid
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    RANDOM,
    ROUND_ROBIN,
)

ROUTING = "PENSTOCK_ROUTING"

_SERVED = (LEAST_OUTSTANDING_REQUESTS, RANDOM, PREFIX_AWARE)
_BY_ENVIRONMENT = (LEAST_OUTSTANDING_REQUESTS, RANDOM, ROUND_ROBIN)


def check_routing_config(variant: Mapping[str, Any]) -> None:
    """Raises ValidationException for unsupported values; the service model checks ranges."""
    config = variant.get("RoutingConfig")
    if not config:
        return
    name, strategy = variant["VariantName"], config["RoutingStrategy"]
    if strategy not in _SERVED:
        raise invalid(
            f"Variant {name!r}: RoutingStrategy {strategy} is not supported here: no engine here"
            f" tells what its cache holds. Use {PREFIX_AWARE}, which goes by the prompts that each"
            f" copy was sent, or one of {', '.join(_SERVED[:2])}."
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
