"""Create, Describe, Update, UpdateRuntimeConfig, List, DeleteInferenceComponent.

An operation stores the desired state in one transaction and wakes the endpoint's reconciler; the
next Describe shows it already. An InferenceComponentSpecification becomes a `ComponentRevision`,
the control plane's own form.

Like an endpoint, a component is a copy: deleting the model afterwards does not affect it. An
adapter is only an artifact: the model, the resources and the copies are its base's. An unsupported
member is refused here, with what to do instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.api.aws import Members
from penstock.api.refused_members import REFUSED
from penstock.api.sagemaker.agreements import agreeing_revision, check_scorer
from penstock.api.sagemaker.containers import model_source
from penstock.api.sagemaker.context import (
    SagemakerContext,
    busy,
    invalid,
    list_query,
    page_of,
    require_in_service,
    untagged,
)
from penstock.api.sagemaker.deployments import DOWNLOAD_TIMEOUT_S, STARTUP_TIMEOUT_S
from penstock.api.sagemaker.rollouts import alarms_of
from penstock.control.store.components import ComponentChange, NewComponent
from penstock.control.store.records import (
    COMPONENT,
    BaseUnfit,
    ComponentBusy,
    ComponentRecord,
    EndpointBusy,
    EndpointRecord,
    HasAdapters,
    ListedResource,
    UnknownVariant,
)
from penstock.control.store.store import Store
from penstock.core.deployment.capacity_spec import SPREAD, ComponentRevision, CopySpec
from penstock.core.deployment.deployment import ModelSource, VariantSpec
from penstock.core.deployment.endpoint_state import DELETING, FAILED, IN_SERVICE
from penstock.core.resources import ComputeResources

_MIB = 2**20

Json = Mapping[str, Any]

#: Paths of `REFUSED`.
_SPECIFICATION = "CreateInferenceComponent.Specification"


async def revision_of(
    context: SagemakerContext, name: str, specification: Json, *, endpoint: str
) -> ComponentRevision:
    """The revision; the store assigns its number. Raises ValidationException."""
    base = ""
    if specification.get("BaseInferenceComponentName"):
        base = await _base(context, specification["BaseInferenceComponentName"], endpoint)
    startup = specification.get("StartupParameters") or {}
    scheduling = specification.get("SchedulingConfig") or {}
    if scheduling.get("AvailabilityZoneBalance"):
        raise invalid(REFUSED[f"{_SPECIFICATION}.SchedulingConfig.AvailabilityZoneBalance"])
    return ComponentRevision(
        number=1,
        model=_adapter(name, specification) if base else await _model(context, name, specification),
        need=CopySpec() if base else _need(specification),
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
    """The specification for the variant's instance type, out of the one or the several given."""
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


async def rolling(context: SagemakerContext, config: Json, copies: int) -> dict[str, Any]:
    """The fields of a `ComponentRevision` that a DeploymentConfig sets."""
    policy = config.get("RollingUpdatePolicy")
    if not policy:
        return {}
    back = policy.get("RollbackMaximumBatchSize")
    limit_s = float(policy.get("MaximumExecutionTimeoutInSeconds", 0))
    return {
        "batch": _batch("MaximumBatchSize", policy["MaximumBatchSize"], copies, 50),
        "batch_wait_s": float(policy["WaitIntervalInSeconds"]),
        "batch_back": _batch("RollbackMaximumBatchSize", back, copies, 100) if back else 0,
        "alarms": await alarms_of(context, config),
        "expires": context.clock.wall() + limit_s if limit_s else 0.0,
    }


def _batch(member: str, size: Json, copies: int, percent_max: int) -> int:
    value = int(size["Value"])
    if size["Type"] != "CAPACITY_PERCENT":
        return value
    if not 5 <= value <= percent_max:
        raise invalid(f"{member} of {value} percent must be between 5 and {percent_max} percent.")
    return max(math.ceil(copies * value / 100), 1)


async def _model(context: SagemakerContext, name: str, specification: Json) -> ModelSource:
    model, container = specification.get("ModelName", ""), specification.get("Container")
    if bool(model) == bool(container):
        raise invalid("A specification needs either ModelName or Container.")
    if container:
        made = {"Image": container.get("Image", ""), "ModelDataUrl": container.get("ArtifactUrl")}
        made["Environment"] = container.get("Environment") or {}
        context.check_trust(made["Environment"])
        return model_source({"ModelName": name, "PrimaryContainer": made})
    record = await context.call(Store.describe_model, model)
    source = model_source(record.request)
    if source.multi_model:
        raise invalid(
            f"Model {model!r} has a container with Mode MultiModel, which has its instances to"
            " itself. Give ModelName to a variant instead."
        )
    if source.containers:
        raise invalid(
            f"Model {model!r} has several containers, which have their instances to themselves."
            " Give ModelName to a variant instead."
        )
    return source


def _need(specification: Json) -> CopySpec:
    asked = specification.get("ComputeResourceRequirements")
    if not asked:
        raise invalid(
            "ComputeResourceRequirements is required: it says what a copy takes of its instance."
        )
    if asked.get("AcceleratorPartitionType"):
        requirements = f"{_SPECIFICATION}.ComputeResourceRequirements"
        raise invalid(REFUSED[f"{requirements}.AcceleratorPartitionType"])
    least, most = asked["MinMemoryRequiredInMb"], asked.get("MaxMemoryRequiredInMb", 0)
    if most and most < least:
        raise invalid(f"MaxMemoryRequiredInMb {most} is less than MinMemoryRequiredInMb {least}.")
    accelerators = asked.get("NumberOfAcceleratorDevicesRequired", 0)
    if accelerators != int(accelerators):
        raise invalid(
            f"NumberOfAcceleratorDevicesRequired {accelerators} must be a whole number:"
            " accelerators are given out whole here."
        )
    return CopySpec(
        resources=ComputeResources(
            memory_bytes=least * _MIB,
            cores=float(asked.get("NumberOfCpuCoresRequired", 0.0)),
            accelerators=int(accelerators),
        ),
        memory_bytes_max=most * _MIB,
    )


#: Members that only a component with copies of its own has.
_OF_COPIES = ("ModelName", "ComputeResourceRequirements", "SchedulingConfig", "DataCacheConfig")


def _adapter(name: str, specification: Json) -> ModelSource:
    """The place of an adapter's artifact."""
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
    """The base component's name as stored. The store decides whether it may have an adapter now."""
    record = await context.call(Store.describe_component, name)
    if record.endpoint.lower() != endpoint.lower():
        raise invalid(
            f"BaseInferenceComponentName {name!r} is on endpoint {record.endpoint!r}, not on"
            f" {endpoint!r}: an adapter lives on the copies of its base."
        )
    return record.name


#: Members of the request that Describe returns as they were given.
_ECHOED = ("StartupParameters", "ComputeResourceRequirements", "DataCacheConfig",
           "SchedulingConfig", "ModelName", "InstanceType",
           "BaseInferenceComponentName")  # fmt: skip


async def create_inference_component(context: SagemakerContext, params: Members) -> Members:
    name = params["InferenceComponentName"]
    endpoint = await context.call(Store.describe_endpoint, params["EndpointName"])
    variant = _variant(endpoint, params.get("VariantName"))
    specification = chosen(params, variant)
    revision = await revision_of(context, name, specification, endpoint=endpoint.name)
    copies = (params.get("RuntimeConfig") or {}).get("CopyCount")
    if revision.base and copies is not None:
        raise _without_copies(context.arn(COMPONENT, name))
    if copies is None and not revision.base:
        raise invalid("RuntimeConfig.CopyCount is required: how many copies are loaded.")
    wanted = NewComponent(
        endpoint=endpoint.name,
        variant=variant.name,
        copies=copies or 0,
        revision=revision,
        request=untagged(params),
    )
    arn = context.arn(COMPONENT, name)
    try:
        await context.create(COMPONENT, Store.create_component, name, wanted, params)
    except BaseUnfit as error:
        base = context.arn(COMPONENT, error.name)
        raise invalid(
            f'Cannot create inference component "{arn}" on base "{base}": {error.cause}.'
        ) from error
    except (EndpointBusy, UnknownVariant) as error:
        raise invalid(
            f'Cannot create inference component "{arn}" on endpoint "{endpoint.arn}": it is'
            f" {error.endpoint_status if isinstance(error, EndpointBusy) else 'changing'}."
        ) from error
    context.plane.notify(endpoint.name)
    return {"InferenceComponentArn": arn}


async def describe_inference_component(context: SagemakerContext, params: Members) -> Members:
    record = await context.call(Store.describe_component, params["InferenceComponentName"])
    current = context.plane.copy_counts(record.endpoint).get(record.name, 0)
    described = _named(record, record.desired.variant) | {
        "InferenceComponentStatus": record.desired.status
    }
    if not record.desired.base:  # an adapter has no copy count
        described["RuntimeConfig"] = {
            "DesiredCopyCount": record.desired.copies,
            "CurrentCopyCount": current,
        }
        types = context.plane.copy_types(record.endpoint).get(record.name, {})
        placed = [
            {"InstanceType": name, "CurrentCopyCount": count}
            for name, count in sorted(types.items())
        ]
        if placed:
            described["RuntimeConfig"]["PlacementStatus"] = placed
    failure = record.failure_reason or await _shadow_of_nothing(context, record)
    if failure:
        described["FailureReason"] = failure
    if record.request.get("Specification"):
        described["Specification"] = _specification(record.request["Specification"], record)
    if record.request.get("Specifications"):
        described["Specifications"] = [
            _specification(one, record) for one in record.request["Specifications"]
        ]
    if record.request.get("DeploymentConfig"):
        described["LastDeploymentConfig"] = record.request["DeploymentConfig"]
    return described


async def _shadow_of_nothing(context: SagemakerContext, record: ComponentRecord) -> str:
    """Why a component in service that is a shadow gets no copies; "" where it may get some."""
    shadow = record.desired.shadow
    if shadow is None or record.desired.status != IN_SERVICE:
        return ""
    endpoint = await context.call(Store.describe_endpoint, record.endpoint)
    sources = [one for one in endpoint.components if shadow.is_of(one.name)]
    if any(one.status not in (DELETING, FAILED) and one.shadow is None for one in sources):
        return ""
    return (
        f"It is the shadow of {shadow.source!r}, which is no component of endpoint"
        f" {endpoint.name!r} that answers callers: no request is copied to it."
    )


async def list_inference_components(context: SagemakerContext, params: Members) -> Members:
    query = replace(
        list_query(params),
        endpoint_equals=params.get("EndpointNameEquals", ""),
        variant_equals=params.get("VariantNameEquals", ""),
    )
    page = await context.database.call(Store.list_components, query)
    rows = [
        _named(item, item.variant) | {"InferenceComponentStatus": item.status}
        for item in page.items
    ]
    return page_of("InferenceComponents", rows, page.next_token)


async def update_inference_component(context: SagemakerContext, params: Members) -> Members:
    """A new specification loads new copies beside the old ones, which serve until those are
    ready."""
    record = await context.call(Store.describe_component, params["InferenceComponentName"])
    require_in_service(COMPONENT, record.arn, record.desired.status)
    copies = (params.get("RuntimeConfig") or {}).get("CopyCount")
    if record.desired.base and copies is not None:
        raise _without_copies(record.arn)
    given = {key: params[key] for key in ("Specification", "Specifications") if params.get(key)}
    if copies is None and not given:
        raise invalid("Give Specification, RuntimeConfig, or both.")
    kept = {key: value for key, value in record.request.items() if key != "DeploymentConfig"}
    revision = None
    wanted = copies
    if wanted is None:  # an adapter is on all copies of its base
        base = record.desired.base
        counted = await context.call(Store.describe_component, base) if base else record
        wanted = counted.desired.copies
    deployed = await rolling(context, params.get("DeploymentConfig") or {}, wanted)
    if given:
        endpoint = await context.call(Store.describe_endpoint, record.endpoint)
        variant = _variant(endpoint, record.desired.variant)
        kept = {k: v for k, v in kept.items() if k not in ("Specification", "Specifications")}
        kept |= given
        specification = chosen(kept, variant)
        revision = replace(
            await revision_of(context, record.name, specification, endpoint=endpoint.name),
            **deployed,
        )
        _require_same_base(record, revision.base)
        revision = agreeing_revision(
            revision,
            await context.database.call(Store.list_tags, record.arn),
            endpoint.shown,
            copies=wanted,
            wall=context.clock.wall(),
        )
        agreement = await check_scorer(context, revision.agreement, endpoint.name)
        revision = replace(revision, agreement=agreement)
    if copies is not None:
        kept["RuntimeConfig"] = {"CopyCount": copies}
    if params.get("DeploymentConfig"):
        kept["DeploymentConfig"] = params["DeploymentConfig"]
    return await _change(
        context, record, ComponentChange(copies=copies, revision=revision, request=kept)
    )


async def update_inference_component_runtime_config(
    context: SagemakerContext, params: Members
) -> Members:
    record = await context.call(Store.describe_component, params["InferenceComponentName"])
    require_in_service(COMPONENT, record.arn, record.desired.status)
    if record.desired.base:
        raise _without_copies(record.arn)
    copies = params["DesiredRuntimeConfig"]["CopyCount"]
    kept = record.request | {"RuntimeConfig": {"CopyCount": copies}}
    return await _change(context, record, ComponentChange(copies=copies, request=kept))


async def delete_inference_component(context: SagemakerContext, params: Members) -> Members:
    name = params["InferenceComponentName"]
    try:
        record = await context.call(Store.delete_component, name, now=context.clock.wall())
    except HasAdapters as error:
        arn = context.arn(COMPONENT, error.name)
        raise invalid(
            f'Cannot delete inference component "{arn}": it is the base'
            f" of {', '.join(error.adapters)}. Delete its adapters first."
        ) from error
    context.plane.notify(record.endpoint)
    return {}


async def _change(
    context: SagemakerContext, record: ComponentRecord, change: ComponentChange
) -> dict[str, Any]:
    try:
        await context.call(Store.update_component, record.name, change, now=context.clock.wall())
    except ComponentBusy as error:
        raise busy(COMPONENT, record.arn) from error
    context.plane.notify(record.endpoint)
    return {"InferenceComponentArn": record.arn}


def _variant(endpoint: EndpointRecord, name: str | None) -> VariantSpec:
    """The named variant, or the only one."""
    variants = endpoint.shown.variants
    if name is None and len(variants) > 1:
        told = ", ".join(one.name for one in variants)
        raise invalid(
            f'VariantName is required: endpoint "{endpoint.arn}" has several variants ({told}).'
        )
    found = next((one for one in variants if name in (None, one.name)), None)
    if found is None:
        raise invalid(
            f'The variant name(s) "{name}" is/are not present within endpoint configuration'
            f' "{endpoint.config_name}".'
        )
    if found.model is not None:
        raise invalid(
            f'Variant {found.name!r} of endpoint "{endpoint.arn}" has a model of its own'
            " (ModelName): inference components need a variant without one."
        )
    return found


def _named(record: ComponentRecord | ListedResource, variant: str) -> dict[str, Any]:
    return {
        "InferenceComponentName": record.name,
        "InferenceComponentArn": record.arn,
        "EndpointName": record.endpoint,
        "EndpointArn": record.endpoint_arn,
        "VariantName": variant,
        "CreationTime": record.created,
        "LastModifiedTime": record.modified,
    }


def _specification(given: Mapping[str, Any], record: ComponentRecord) -> dict[str, Any]:
    """The specification as given, except that a container's image is an object of its own."""
    shown = {key: given[key] for key in _ECHOED if given.get(key) is not None}
    container = given.get("Container")
    if container:
        shown["Container"] = {
            key: container[key] for key in ("ArtifactUrl", "Environment") if container.get(key)
        }
        if container.get("Image"):
            shown["Container"]["DeployedImage"] = {
                "SpecifiedImage": container["Image"],
                "ResolvedImage": container["Image"],
                "ResolutionTime": record.modified,
            }
    return shown


def _require_same_base(record: ComponentRecord, base: str) -> None:
    if base == record.desired.base:
        return
    if not record.desired.base:
        raise invalid(
            f'Inference component "{record.arn}" has a model of its own and can\'t become an'
            f" adapter of {base!r}. Create a component for the adapter."
        )
    raise invalid(
        f'Inference component "{record.arn}" is an adapter of {record.desired.base!r}: its'
        " specification must name the same BaseInferenceComponentName."
    )


def _without_copies(arn: str) -> Exception:
    return invalid(
        f'Inference component "{arn}" is an adapter: it is on every copy of its base and has no'
        " CopyCount of its own."
    )
