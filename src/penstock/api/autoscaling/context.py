"""The context of every Application Auto Scaling operation, and the errors that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.clock import Clock
from penstock.control.store.store_thread import StoreThread
from penstock.core.scaling import spec as resource
from penstock.core.scaling.spec import AlarmPeriods
from penstock.wire.aws.errors import AwsError

NAMESPACE: Final = "sagemaker"


@dataclass(frozen=True, slots=True)
class AutoscalingContext:
    """The context of one call."""

    database: StoreThread
    changed: Callable[[], None]  #: call after a change of targets, policies or schedules
    notify: Callable[[str], None]  #: call with an endpoint whose counts were changed
    clock: Clock
    periods: AlarmPeriods
    new_id: Callable[[], str]
    region: str
    account_id: str


@dataclass(frozen=True, slots=True)
class Named:
    """The target that a request names."""

    resource_id: str
    dimension: str
    resource: resource.VariantId | resource.ComponentId


def invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message)


def not_found(message: str) -> AwsError:
    return AwsError("ObjectNotFoundException", message)


def target_words(params: dict[str, Any]) -> str:
    return (
        f"service namespace: {params['ServiceNamespace']}, resource ID: {params['ResourceId']},"
        f" scalable dimension: {params['ScalableDimension']}"
    )


def no_target(params: dict[str, Any]) -> AwsError:
    """The error of every call but RegisterScalableTarget for a missing target."""
    return not_found(f"No scalable target registered for {target_words(params)}")


def check_namespace(params: dict[str, Any]) -> None:
    """Raises ValidationException for another namespace than SageMaker's."""
    if params["ServiceNamespace"] != NAMESPACE:
        raise invalid("Unsupported service namespace, resource type or scalable dimension")


def named(params: dict[str, Any]) -> Named:
    """Raises ValidationException for a dimension that is not scaled here, or an invalid name."""
    check_namespace(params)
    resource_id, dimension = params["ResourceId"], params["ScalableDimension"]
    found = resource.parse(resource_id, dimension)
    if found is None:
        raise invalid("Unsupported service namespace, resource type or scalable dimension")
    return Named(resource_id, dimension, found)


def check_filters(params: dict[str, Any]) -> None:
    """Checks the filters of the Describe calls. Raises ValidationException."""
    check_namespace(params)
    if params.get("ScalableDimension") and not (
        params.get("ResourceId") or params.get("ResourceIds")
    ):
        raise invalid("A resource ID must be specified with a scalable dimension")


def passes(params: dict[str, Any], resource_id: str, dimension: str) -> bool:
    """Whether a Describe call's filters include this target."""
    if params.get("ScalableDimension") not in (None, dimension):
        return False
    wanted = params.get("ResourceIds") or [params.get("ResourceId") or resource_id]
    return resource_id.lower() in {one.lower() for one in wanted}
