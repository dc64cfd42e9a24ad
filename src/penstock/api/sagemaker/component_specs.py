"""An InferenceComponentSpecification as a `ComponentRevision`, the control plane's own form.

As of an endpoint, what a component is made of is copied: deleting the model afterwards changes
nothing for it. An adapter is an artifact alone: the model, the room and the copies are its base's.
What is not carried out is refused here, with what to do instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.deployments import DOWNLOAD_TIMEOUT_S, STARTUP_TIMEOUT_S, model_source
from penstock.api.sagemaker.names import invalid
from penstock.control.store.records import NotFound
from penstock.control.store.store import Store
from penstock.core.deployment.component_spec import ComponentRevision
from penstock.core.deployment.deployment import ModelSource, VariantSpec
from penstock.core.deployment.wish import SPREAD, CopyNeed

_MIB = 2**20

Json = Mapping[str, Any]


async def revision_of(
    context: SagemakerContext, name: str, specification: Json, *, endpoint: str
) -> ComponentRevision:
    """The store counts its number. Raises ValidationException."""
    base = ""
    if specification.get("BaseInferenceComponentName"):
        base = await _base(context, specification["BaseInferenceComponentName"], endpoint)
    startup = specification.get("StartupParameters") or {}
    scheduling = specification.get("SchedulingConfig") or {}
    if scheduling.get("AvailabilityZoneBalance"):
        raise invalid(
            "SchedulingConfig.AvailabilityZoneBalance is not supported: the instances of this"
            " server are in one place."
        )
    return ComponentRevision(
        number=1,
        model=_adapter(name, specification) if base else await _model(context, name, specification),
        need=CopyNeed() if base else _need(specification),
        base=base,
        strategy=scheduling.get("PlacementStrategy", SPREAD),
        download_timeout_s=float(
            startup.get("ModelDataDownloadTimeoutInSeconds", DOWNLOAD_TIMEOUT_S)
        ),
        startup_timeout_s=float(
            startup.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_TIMEOUT_S)
        ),
    )


def chosen(request: Json, variant: VariantSpec) -> Json:
    """The specification for the variant's instance type, of the one or the several given."""
    several = request.get("Specifications") or []
    if request.get("Specification") and several:
        raise invalid("Give either Specification or Specifications, not both.")
    if request.get("Specification"):
        several = [request["Specification"]]
    if not several:
        raise invalid("Specification is required: it says which model a copy loads.")
    types = [one.get("InstanceType") for one in several]
    if len(several) > 1 and (None in types or len(set(types)) < len(types)):
        raise invalid("Each of several Specifications needs an InstanceType of its own.")
    if variant.pools and (len(several) > 1 or several[0].get("InstanceType")):
        raise invalid(
            f"Variant {variant.name!r} has InstancePools: give one Specification without"
            " InstanceType, for the instances of all pools."
        )
    for one in several:
        if one.get("InstanceType") in (None, variant.instance_type):
            found: Json = one
            return found
    raise invalid(
        f"No specification is for instance type {variant.instance_type!r} of variant"
        f" {variant.name!r}; there are some for {', '.join(map(str, types))}."
    )


def rolling(config: Json, copies: int) -> tuple[int, float]:
    """(copies that are replaced at once, s between two batches) of a DeploymentConfig; 0: all."""
    if config.get("AutoRollbackConfiguration"):
        raise invalid("DeploymentConfig: AutoRollbackConfiguration is not supported here.")
    policy = config.get("RollingUpdatePolicy")
    if not policy:
        return 0, 0.0
    for member in ("MaximumExecutionTimeoutInSeconds", "RollbackMaximumBatchSize"):
        if policy.get(member):
            raise invalid(f"DeploymentConfig: RollingUpdatePolicy.{member} is not supported here.")
    size = policy["MaximumBatchSize"]
    value = size["Value"]
    if size["Type"] == "CAPACITY_PERCENT":
        if not 5 <= value <= 50:
            raise invalid(f"MaximumBatchSize of {value} percent must be between 5 and 50 percent.")
        value = max(math.ceil(copies * value / 100), 1)
    return value, float(policy["WaitIntervalInSeconds"])


async def _model(context: SagemakerContext, name: str, specification: Json) -> ModelSource:
    model, container = specification.get("ModelName", ""), specification.get("Container")
    if bool(model) == bool(container):
        raise invalid("A specification needs either ModelName or Container.")
    if container:
        made = {"Image": container.get("Image", ""), "ModelDataUrl": container.get("ArtifactUrl")}
        made["Environment"] = container.get("Environment") or {}
        return model_source({"ModelName": name, "PrimaryContainer": made})
    try:
        record = await context.database.call(Store.describe_model, model)
    except NotFound as error:
        raise context.not_found("model", model) from error
    source = model_source(record.request)
    if source.multi_model:
        raise invalid(
            f"Model {model!r} has a container with Mode MultiModel, which has its instances to"
            " itself. Give ModelName to a variant instead."
        )
    return source


def _need(specification: Json) -> CopyNeed:
    asked = specification.get("ComputeResourceRequirements")
    if not asked:
        raise invalid(
            "ComputeResourceRequirements is required: it says what a copy takes of its instance."
        )
    if asked.get("AcceleratorPartitionType"):
        raise invalid(
            "AcceleratorPartitionType is not supported: accelerators are given out whole here."
        )
    least, most = asked["MinMemoryRequiredInMb"], asked.get("MaxMemoryRequiredInMb", 0)
    if most and most < least:
        raise invalid(f"MaxMemoryRequiredInMb {most} is less than MinMemoryRequiredInMb {least}.")
    accelerators = asked.get("NumberOfAcceleratorDevicesRequired", 0)
    if accelerators != int(accelerators):
        raise invalid(
            f"NumberOfAcceleratorDevicesRequired {accelerators} must be a whole number:"
            " accelerators are given out whole here."
        )
    return CopyNeed(
        memory_bytes=least * _MIB,
        memory_bytes_max=most * _MIB,
        cores=float(asked.get("NumberOfCpuCoresRequired", 0.0)),
        accelerators=int(accelerators),
    )


#: Members that say what only a component with copies of its own has.
_OF_COPIES = ("ModelName", "ComputeResourceRequirements", "SchedulingConfig", "DataCacheConfig")


def _adapter(name: str, specification: Json) -> ModelSource:
    """Where its artifact is."""
    given = [member for member in _OF_COPIES if specification.get(member)]
    container = specification.get("Container") or {}
    given += [f"Container.{one}" for one in ("Image", "Environment") if container.get(one)]
    if given:
        raise invalid(
            f"An adapter (BaseInferenceComponentName) has no {', '.join(given)}: it is loaded into"
            " the copies of its base, and uses what these have. Give Container.ArtifactUrl alone."
        )
    if not container.get("ArtifactUrl"):
        raise invalid("An adapter (BaseInferenceComponentName) needs Container.ArtifactUrl.")
    container = {"ModelDataUrl": container["ArtifactUrl"]}
    return model_source({"ModelName": name, "PrimaryContainer": container})


async def _base(context: SagemakerContext, name: str, endpoint: str) -> str:
    """Its name as it is written. Whether it may have an adapter now is the store's to say."""
    try:
        record = await context.database.call(Store.describe_component, name)
    except NotFound as error:
        raise context.not_found("inference-component", name) from error
    if record.endpoint.lower() != endpoint.lower():
        raise invalid(
            f"BaseInferenceComponentName {name!r} is on endpoint {record.endpoint!r}, not on"
            f" {endpoint!r}: an adapter lives on the copies of its base."
        )
    return record.name
