"""RoutingConfig and PENSTOCK_ROUTING: what is refused, and what reaches the router."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.sagemaker.deployments import check_variant, deployment
from penstock.api.sagemaker.variants import routing_config
from penstock.core.deployment.deployment import VariantSpec
from penstock.wire.aws.errors import AwsError

PREFIX = {"PrefixLength": 4096, "ConcurrencyThreshold": 16}


def variant(routing: dict[str, Any] | None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "VariantName": "blue", "ModelName": "m", "InstanceType": "ml.local.small",
    }  # fmt: skip
    return made | ({"RoutingConfig": routing} if routing is not None else {})


def spec(routing: dict[str, Any] | None, environment: dict[str, str] | None = None) -> VariantSpec:
    config = {"EndpointConfigName": "c", "ProductionVariants": [variant(routing)]}
    container: dict[str, Any] = {"ModelDataUrl": "file:///m"}
    if environment is not None:
        container["Environment"] = environment
    models = {"m": {"ModelName": "m", "PrimaryContainer": container}}
    return deployment("e", 1, config, models).variants[0]


def test_the_default_is_least_outstanding_requests() -> None:
    made = spec(None)
    assert (made.strategy, made.prefix_length_max) == ("LEAST_OUTSTANDING_REQUESTS", 0)


def test_prefix_aware_takes_its_two_numbers_to_the_router() -> None:
    routing = {"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": PREFIX}
    check_variant(variant(routing))
    made = spec(routing)
    assert (made.strategy, made.prefix_length_max, made.concurrency_threshold) == (
        "PREFIX_AWARE", 4096, 16
    )  # fmt: skip
    assert routing_config("PREFIX_AWARE", 4096, 16) == routing


def test_round_robin_comes_from_the_environment_of_the_model() -> None:
    assert spec(None, {"PENSTOCK_ROUTING": "ROUND_ROBIN"}).strategy == "ROUND_ROBIN"
    assert routing_config("ROUND_ROBIN", 0, 0) == {"RoutingStrategy": "ROUND_ROBIN"}


def test_the_variants_own_routing_config_goes_before_the_environment() -> None:
    made = spec({"RoutingStrategy": "RANDOM"}, {"PENSTOCK_ROUTING": "ROUND_ROBIN"})
    assert made.strategy == "RANDOM"


def test_an_environment_that_names_no_strategy_is_refused() -> None:
    with pytest.raises(AwsError, match="'round robin'; use one of LEAST_OUTSTANDING_REQUESTS"):
        spec(None, {"PENSTOCK_ROUTING": "round robin"})


@pytest.mark.parametrize(
    ("routing", "said"),
    [
        ({"RoutingStrategy": "KV_AWARE"}, "Use PREFIX_AWARE, which goes by the prompts"),
        ({"RoutingStrategy": "PREFIX_AWARE"}, "needs PrefixAwareRoutingConfig.PrefixLength"),
        (
            {
                "RoutingStrategy": "PREFIX_AWARE",
                "PrefixAwareRoutingConfig": {"PrefixLength": 4096},
            },
            "needs PrefixAwareRoutingConfig.ConcurrencyThreshold",
        ),
        (
            {"RoutingStrategy": "RANDOM", "PrefixAwareRoutingConfig": PREFIX},
            "only for RoutingStrategy PREFIX_AWARE, and the strategy is RANDOM",
        ),
    ],
)
def test_a_routing_config_that_makes_no_sense_is_refused(
    routing: dict[str, Any], said: str
) -> None:
    with pytest.raises(AwsError, match=said):
        check_variant(variant(routing))
