"""An endpoint configuration and its models as a `DeploymentSpec`, the control plane's own form.

The deployment is a copy: deleting the configuration or a model afterwards does not affect the
endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.api.sagemaker.async_inference import MEMBER as ASYNC_MEMBER
from penstock.api.sagemaker.async_inference import async_spec
from penstock.api.sagemaker.containers import ISOLATION, model_source
from penstock.api.sagemaker.context import invalid
from penstock.api.sagemaker.data_capture import capture_spec
from penstock.api.sagemaker.variants import (
    SHADOWS,
    all_variants,
    check_instance_types,
    check_managed_scaling,
    check_routing_config,
    instance_pools,
    managed_scaling,
    routing_fields,
)
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec

#: SageMaker's defaults for the two timeouts of a variant, s.
DOWNLOAD_TIMEOUT_S = 3600.0
STARTUP_TIMEOUT_S = 600.0

#: Allowed values of MetricPublishFrequencyInSeconds, s.
PUBLISH_S = (10, 30, 60, 120, 180, 240, 300)
PUBLISH_S_DEFAULT = 60


def check_config(request: Mapping[str, Any]) -> None:
    """Refuses configurations that could never be served here."""
    metrics_fields(request)
    names: set[str] = set()
    for variant in all_variants(request):
        name = variant["VariantName"]
        if name.lower() in names:
            raise invalid(f"Production variant names must be unique; {name!r} is given twice.")
        names.add(name.lower())
        check_variant(variant)
    check_shadows(request)
    without = [
        one["VariantName"] for one in request["ProductionVariants"] if not one.get("ModelName")
    ]
    if without and len(without) < len(request["ProductionVariants"]):
        raise invalid(
            f"Variant {without[0]!r} needs ModelName, as the others have: either each variant has"
            " a model, or all take inference components."
        )
    if without and request.get(ISOLATION):
        raise invalid(
            f"{ISOLATION} of a configuration is for variants with a model; {without[0]!r} takes"
            " inference components: set it on the models that these are made of."
        )
    if without and not request.get("ExecutionRoleArn"):
        raise invalid(
            f"Variant {without[0]!r} needs ModelName. A configuration for inference components,"
            " whose variants have none, needs ExecutionRoleArn."
        )


def check_variant(variant: Mapping[str, Any]) -> None:
    name = variant["VariantName"]
    check_instance_types(variant)
    weight = variant.get("InitialVariantWeight", 1.0)
    if not 0 <= weight < float("inf"):
        raise invalid(f"Variant {name!r}: InitialVariantWeight {weight} must be 0 or more.")
    check_routing_config(variant)
    check_managed_scaling(variant)


def check_shadows(request: Mapping[str, Any]) -> None:
    """SageMaker's rules: one shadow variant, for one production variant."""
    shadows = request.get(SHADOWS)
    if not shadows:
        return
    counts = len(request["ProductionVariants"]), len(shadows)
    if counts != (1, 1):
        raise invalid(
            f"{SHADOWS} needs exactly one variant there and one in ProductionVariants; these have"
            f" {counts[1]} and {counts[0]}."
        )
    if request.get(ASYNC_MEMBER):
        raise invalid(
            f"{SHADOWS} is not for configurations with {ASYNC_MEMBER}: asynchronous requests are"
            " not copied to a shadow variant."
        )
    for variant in all_variants(request):
        if not variant.get("ModelName"):
            raise invalid(
                f"Variant {variant['VariantName']!r} needs ModelName: with {SHADOWS} no variant"
                " takes inference components."
            )


def deployment(
    endpoint: str,
    generation: int,
    config: Mapping[str, Any],
    models: Mapping[str, Mapping[str, Any]],
) -> DeploymentSpec:
    """`config` and `models` are the requests that made them; `models` is keyed by ModelName.

    Raises ValidationException for faults that only both together show.
    """
    if config.get(ISOLATION):
        models = {name: {**model, ISOLATION: True} for name, model in models.items()}
    variants = tuple(_variant(variant, models) for variant in config["ProductionVariants"])
    shadows = tuple(_variant(variant, models) for variant in config.get(SHADOWS) or ())
    for shadow in shadows:
        _check_modes(variants[0], shadow)
    asynchronous = async_spec(config)
    direct = [one.name for one in variants if one.model is not None and one.model.direct]
    if asynchronous is not None and direct:
        raise invalid(
            f"Variant {direct[0]!r}: the Mode Direct of its model is not for endpoints with"
            " AsyncInferenceConfig: InvokeEndpointAsync names no container."
        )
    return DeploymentSpec(
        endpoint=endpoint,
        generation=generation,
        config_name=config["EndpointConfigName"],
        **metrics_fields(config),
        asynchronous=asynchronous,
        capture=capture_spec(config),
        variants=variants,
        shadows=shadows,
    )


def _check_modes(production: VariantSpec, shadow: VariantSpec) -> None:
    """A copy of a request names what the request names: a target model, a container, or neither."""
    own, other = production.model, shadow.model
    assert own is not None, "checked with the configuration"
    assert other is not None, "checked with the configuration"
    for fault, mode in (
        (own.multi_model != other.multi_model, "Mode"),
        (own.direct != other.direct, "Mode of InferenceExecutionConfig"),
    ):
        if fault:
            raise invalid(
                f"Shadow variant {shadow.name!r}: its model {other.model_name!r} must have the"
                f" same {mode} as {own.model_name!r} of {production.name!r}, whose requests it"
                " gets."
            )


def _variant(variant: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> VariantSpec:
    sources = {name: model_source(one) for name, one in models.items()}
    model = sources.get(variant.get("ModelName", ""))
    pools = instance_pools(variant, sources)
    environment = None if model is None else dict(model.environment)
    return VariantSpec(
        name=variant["VariantName"],
        model=model,
        instance_type=pools[0].instance_type if pools else variant["InstanceType"],
        instance_count=variant.get("InitialInstanceCount", 1),
        pools=pools,
        managed=managed_scaling(variant),
        weight=float(variant.get("InitialVariantWeight", 1.0)),
        **routing_fields(variant, environment),
        download_timeout_s=float(
            variant.get("ModelDataDownloadTimeoutInSeconds", DOWNLOAD_TIMEOUT_S)
        ),
        startup_timeout_s=float(
            variant.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_TIMEOUT_S)
        ),
    )


def metrics_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `DeploymentSpec`. Raises ValidationException for an invalid frequency."""
    metrics = config.get("MetricsConfig") or {}
    publish_s = metrics.get("MetricPublishFrequencyInSeconds")
    if publish_s is not None and publish_s not in PUBLISH_S:
        raise invalid(
            f"MetricsConfig: MetricPublishFrequencyInSeconds is {publish_s}; use one of"
            f" {', '.join(map(str, PUBLISH_S))}."
        )
    return {
        "metrics_publish_s": publish_s or 0,
        "metrics_enhanced": bool(metrics.get("EnableEnhancedMetrics")),
    }


def metrics_config(deployment: DeploymentSpec) -> dict[str, Any]:
    """The MetricsConfig that DescribeEndpoint shows; empty where none was given."""
    if not deployment.metrics_publish_s and not deployment.metrics_enhanced:
        return {}
    return {
        "EnableEnhancedMetrics": deployment.metrics_enhanced,
        "MetricPublishFrequencyInSeconds": deployment.metrics_publish_s or PUBLISH_S_DEFAULT,
    }
