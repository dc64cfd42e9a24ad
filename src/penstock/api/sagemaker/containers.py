"""The containers of a model as a `ModelSource`: what CreateModel says that loading needs.

A model has one container, or 2 to 15 on each of its instances. With Mode Serial, the default, each
answer is the next one's request; with Direct, each request names one (TargetContainerHostname).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.api.refused_members import REFUSED, SOURCE
from penstock.api.sagemaker.context import invalid
from penstock.artifacts.detection.images import image_hint
from penstock.core.deployment.deployment import ModelSource
from penstock.core.request.holding import ZERO_CAPACITY_MODES, ZERO_CAPACITY_VARIABLE
from penstock.errors import CallerError

#: Mode of a container: a prefix of target models, each loaded when a request names it.
MULTI_MODEL = "MultiModel"

#: Member of a model, or of a configuration for all its models.
ISOLATION = "EnableNetworkIsolation"

#: Mode of InferenceExecutionConfig; the other one, Serial, is the default.
DIRECT: Final = "Direct"
#: As in SageMaker.
CONTAINERS_MAX: Final = 15
#: Names of containers whose model names none, as SageMaker's logs have them.
_HOSTNAME: Final = "container-{}"


def model_source(model: Mapping[str, Any]) -> ModelSource:
    """What loading needs from a CreateModel request. Raises ValidationException for containers that
    could never be loaded, and for an invalid PENSTOCK_ZERO_CAPACITY."""
    containers = _containers(model)
    direct = (model.get("InferenceExecutionConfig") or {}).get("Mode") == DIRECT
    if len(containers) == 1 and not direct:
        return _source(model, containers[0])
    names = _hostnames(containers)
    sources = [
        _source(model, one, hostname=name) for one, name in zip(containers, names, strict=True)
    ]
    for one in sources:
        if one.multi_model:
            raise invalid(REFUSED["CreateModel.Containers[].Mode"].format(one.hostname))
    merged = {key: value for one in reversed(sources) for key, value in one.environment}
    return ModelSource(
        model_name=model["ModelName"],
        environment=tuple(sorted(merged.items())),
        network_isolated=sources[0].network_isolated,
        containers=tuple(sources),
        direct=direct,
    )


def _containers(model: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """One to fifteen. Raises ValidationException."""
    containers: Sequence[Mapping[str, Any]] = model.get("Containers") or []
    if model.get("PrimaryContainer"):
        if containers:
            raise invalid("Give either PrimaryContainer or Containers, not both.")
        return [model["PrimaryContainer"]]
    if not 1 <= len(containers) <= CONTAINERS_MAX:
        raise invalid(
            f"A model needs PrimaryContainer, or 1 to {CONTAINERS_MAX} Containers;"
            f" {len(containers)} are given."
        )
    return containers


def _hostnames(containers: Sequence[Mapping[str, Any]]) -> list[str]:
    given = [str(one.get("ContainerHostname") or "") for one in containers]
    if not any(given):
        return [_HOSTNAME.format(number + 1) for number in range(len(given))]
    if not all(given):
        raise invalid(
            "ContainerHostname is given for some of the Containers: give it for all of them, or for"
            " none."
        )
    for name in given:
        if given.count(name) > 1:
            raise invalid(f"ContainerHostname must be unique among Containers; {name!r} is not.")
    return given


def _source(
    model: Mapping[str, Any], container: Mapping[str, Any], *, hostname: str = ""
) -> ModelSource:
    _check(container)
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
        hostname=hostname,
    )


def _check(container: Mapping[str, Any]) -> None:
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
