"""An endpoint configuration and its models as a `DeploymentSpec`, the control plane's own form.

The deployment is a copy: deleting the configuration or a model afterwards does not affect the
endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.api.refused_members import REFUSED, SOURCE
from penstock.api.sagemaker.async_inference import async_spec
from penstock.api.sagemaker.context import invalid
from penstock.api.sagemaker.variants import (
    check_instance_types,
    check_managed_scaling,
    check_routing_config,
    instance_pools,
    managed_scaling,
    routing_fields,
)
from penstock.artifacts.detection.images import image_hint
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec
from penstock.core.request.holding import ZERO_CAPACITY_MODES, ZERO_CAPACITY_VARIABLE
from penstock.errors import CallerError

#: SageMaker's defaults for the two timeouts of a variant, s.
DOWNLOAD_TIMEOUT_S = 3600.0
STARTUP_TIMEOUT_S = 600.0

#: Allowed values of MetricPublishFrequencyInSeconds, s.
PUBLISH_S = (10, 30, 60, 120, 180, 240, 300)
PUBLISH_S_DEFAULT = 60

#: Mode of a container: a prefix of target models, each loaded when a request names it.
MULTI_MODEL = "MultiModel"

#: Member of a model, or of a configuration for all its models.
ISOLATION = "EnableNetworkIsolation"


def check_config(request: Mapping[str, Any]) -> None:
    """Refuses configurations that could never be served here."""
    if request.get("ShadowProductionVariants"):
        raise invalid(REFUSED["CreateEndpointConfig.ShadowProductionVariants"])
    metrics_fields(request)
    names: set[str] = set()
    for variant in request["ProductionVariants"]:
        name = variant["VariantName"]
        if name.lower() in names:
            raise invalid(f"Production variant names must be unique; {name!r} is given twice.")
        names.add(name.lower())
        check_variant(variant)
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
    return DeploymentSpec(
        endpoint=endpoint,
        generation=generation,
        config_name=config["EndpointConfigName"],
        **metrics_fields(config),
        asynchronous=async_spec(config),
        variants=tuple(_variant(variant, models) for variant in config["ProductionVariants"]),
    )


def _variant(variant: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> VariantSpec:
    model = models.get(variant.get("ModelName", ""))
    pools = instance_pools(variant, {name: model_source(one) for name, one in models.items()})
    environment = None if model is None else primary_container(model).get("Environment")
    return VariantSpec(
        name=variant["VariantName"],
        model=None if model is None else model_source(model),
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


def model_source(model: Mapping[str, Any]) -> ModelSource:
    """What loading needs from a CreateModel request. Raises ValidationException for an invalid
    PENSTOCK_ZERO_CAPACITY."""
    container = primary_container(model)
    environment = container.get("Environment") or {}
    caching = (container.get("MultiModelConfig") or {}).get("ModelCacheSetting")
    mode = environment.get(ZERO_CAPACITY_VARIABLE, ZERO_CAPACITY_MODES[0])
    if mode not in ZERO_CAPACITY_MODES:
        raise invalid(
            f"{ZERO_CAPACITY_VARIABLE} in the environment of model {model['ModelName']!r} is"
            f" {mode!r}; use one of {', '.join(ZERO_CAPACITY_MODES)}."
        )
    return ModelSource(
        model_name=model["ModelName"],
        uri=model_uri(container),
        compressed=compressed(container),
        image=container.get("Image", ""),
        environment=tuple(sorted((str(key), str(value)) for key, value in environment.items())),
        multi_model=container.get("Mode") == MULTI_MODEL,
        keeps_models=caching in (None, "Enabled"),
        network_isolated=bool(model.get(ISOLATION)),
    )


def primary_container(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """The only container. Raises ValidationException if there is none, or several."""
    containers = model.get("Containers") or []
    if model.get("PrimaryContainer") and containers:
        raise invalid("Give either PrimaryContainer or Containers, not both.")
    if model.get("PrimaryContainer"):
        containers = [model["PrimaryContainer"]]
    if len(containers) != 1:
        raise invalid(REFUSED["CreateModel.Containers"].format(len(containers)))
    container: Mapping[str, Any] = containers[0]
    if container.get("ModelPackageName"):
        raise invalid(REFUSED["CreateModel.PrimaryContainer.ModelPackageName"])
    for member in (container.get("ModelDataSource") or {}).get("S3DataSource") or {}:
        if why := REFUSED.get(f"CreateModel.PrimaryContainer.{SOURCE}.{member}"):
            raise invalid(why)
    if not model_uri(container) and not container.get("Image"):
        raise invalid("A model needs ModelDataUrl (or ModelDataSource), Image, or both.")
    try:
        image_hint(container.get("Image", ""), {})
    except CallerError as unknown:
        raise invalid(f"{unknown.message}. {unknown.hint}") from unknown
    if container.get("Mode") == MULTI_MODEL:
        _check_multi_model(container)
    elif container.get("MultiModelConfig"):
        raise invalid("MultiModelConfig is for containers with Mode MultiModel.")
    return container


def _check_multi_model(container: Mapping[str, Any]) -> None:
    uri = model_uri(container)
    if not uri:
        raise invalid(
            "A container with Mode MultiModel needs ModelDataUrl: the prefix or folder that its"
            " target models lie below."
        )
    if uri.startswith(("http://", "https://")):
        raise invalid(
            "The ModelDataUrl of a container with Mode MultiModel must be an s3:// prefix or a"
            " file:// folder: what lies below an address of the web can't be listed."
        )
    if uri.endswith((".tar.gz", ".tgz", ".zip", ".tar")):
        raise invalid(
            f"The ModelDataUrl of a container with Mode MultiModel is a prefix; {uri!r} names an"
            " archive. Give the folder that it lies in, and name the archive as TargetModel."
        )


def model_uri(container: Mapping[str, Any]) -> str:
    """ModelDataUrl, or the S3Uri of ModelDataSource; empty when neither is given.

    The URI of a prefix ends with a slash.
    """
    source = (container.get("ModelDataSource") or {}).get("S3DataSource") or {}
    url, s3_uri = container.get("ModelDataUrl") or "", source.get("S3Uri") or ""
    if url and s3_uri:
        raise invalid("Give either ModelDataUrl or ModelDataSource, not both.")
    if s3_uri and source.get("S3DataType") == "S3Prefix" and not s3_uri.endswith("/"):
        s3_uri += "/"
    uri = str(url or s3_uri)
    return uri + "/" if uri and container.get("Mode") == MULTI_MODEL and uri[-1] != "/" else uri


def compressed(container: Mapping[str, Any]) -> bool | None:
    """ModelDataSource's CompressionType as true or false; None where only ModelDataUrl is given."""
    source = (container.get("ModelDataSource") or {}).get("S3DataSource") or {}
    kind = source.get("CompressionType")
    return None if kind is None else kind == "Gzip"
