"""Auto scaling of one server: its driver, the context of its calls, and what the calls share.

The Describe calls answer in pages; a token names the entry after which the next page begins.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from penstock.api.aws import Members, place_of, token_of
from penstock.clock import Clock
from penstock.config import ScalingConfig, ServerConfig
from penstock.control.plane import ControlPlane
from penstock.control.scaling.driver import ScalingDriver
from penstock.control.scaling.explain import endpoint_story
from penstock.control.scaling.loading import TargetLoads
from penstock.control.scaling.records import NoSuchTarget, TooMany
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.scaling import spec as resource
from penstock.core.scaling.spec import AlarmPeriods
from penstock.metrics.counts.registry import MetricRegistry
from penstock.wire.aws.errors import AwsError

NAMESPACE: Final = "sagemaker"
PAGE_MAX: Final = 50
#: The size of a page may differ from one to the next.
_FREE: Final = ("MaxResults",)

P = ParamSpec("P")
T = TypeVar("T")


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

    async def call(
        self,
        params: Members,
        method: Callable[Concatenate[Store, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As `StoreThread.call`, about the target that a request names.

        Raises ObjectNotFoundException, LimitExceededException.
        """
        try:
            return await self.database.call(method, *args, **kwargs)
        except NoSuchTarget as error:
            raise no_target(params) from error
        except TooMany as error:
            raise AwsError("LimitExceededException", error.message) from error

    def new_arn(self, kind: str, resource_id: str, name: str) -> str:
        """The ARN of a new policy or scheduled action."""
        return (
            f"arn:aws:autoscaling:{self.region}:{self.account_id}:{kind}:{self.new_id()}"
            f":resource/sagemaker/{resource_id}:{name}"
        )


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


def target_words(params: Members) -> str:
    return (
        f"service namespace: {params['ServiceNamespace']}, resource ID: {params['ResourceId']},"
        f" scalable dimension: {params['ScalableDimension']}"
    )


def no_target(params: Members) -> AwsError:
    """The error of every call but RegisterScalableTarget for a missing target."""
    return not_found(f"No scalable target registered for {target_words(params)}")


def check_namespace(params: Members) -> None:
    """Raises ValidationException for another namespace than SageMaker's."""
    if params["ServiceNamespace"] != NAMESPACE:
        raise invalid("Unsupported service namespace, resource type or scalable dimension")


def named(params: Members) -> Named:
    """Raises ValidationException for a dimension that is not scaled here, or an invalid name."""
    check_namespace(params)
    resource_id, dimension = params["ResourceId"], params["ScalableDimension"]
    found = resource.parse(resource_id, dimension)
    if found is None:
        raise invalid("Unsupported service namespace, resource type or scalable dimension")
    return Named(resource_id, dimension, found)


def check_filters(params: Members) -> None:
    """Checks the filters of the Describe calls. Raises ValidationException."""
    check_namespace(params)
    if params.get("ScalableDimension") and not (
        params.get("ResourceId") or params.get("ResourceIds")
    ):
        raise invalid("A resource ID must be specified with a scalable dimension")


def passes(params: Members, resource_id: str, dimension: str) -> bool:
    """Whether a Describe call's filters include this target."""
    if params.get("ScalableDimension") not in (None, dimension):
        return False
    wanted = params.get("ResourceIds") or [params.get("ResourceId") or resource_id]
    return resource_id.lower() in {one.lower() for one in wanted}


class Scaling:
    """The driver, and the context of each call."""

    def __init__(
        self, config: ServerConfig, plane: ControlPlane, registry: MetricRegistry, clock: Clock
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._account_id = config.control.account_id
        self._periods = periods_of(config.scaling)
        loads = TargetLoads(
            registry,
            ready_counts=plane.current_counts,
            copy_counts=plane.copy_counts,
            start_s=plane.start_s,
        )
        self.driver = ScalingDriver(
            database=plane.database,
            loads=loads,
            notify=plane.notify,
            clock=clock,
            fast=config.scaling.fast,
            cooldown_s_max=config.scaling.cooldown_s_max,
        )

    def context(self, region: str) -> AutoscalingContext:
        """The context of a call for a region."""
        return AutoscalingContext(
            database=self._plane.database,
            changed=self.driver.changed,
            notify=self._plane.notify,
            clock=self._clock,
            periods=self._periods,
            new_id=lambda: str(uuid.uuid4()),
            region=region,
            account_id=self._account_id,
        )

    async def explain(self, endpoint: str, at: float | None) -> list[dict[str, Any]]:
        """The targets of an endpoint, each with the timeline of its decisions up to `at`.

        Raises `NotFound` where there is no such endpoint.
        """
        await self._plane.database.call(Store.describe_endpoint, endpoint)
        return await self._plane.database.call(
            endpoint_story,
            endpoint,
            self.driver.decisions(),
            self.driver.looks(),
            self.driver.faults(),
            at=at,
        )


def periods_of(config: ScalingConfig) -> AlarmPeriods:
    return AlarmPeriods(
        high_resolution_s=config.high_resolution_period_s,
        high_resolution_high=config.high_resolution_high_periods,
        high_resolution_low=config.high_resolution_low_periods,
        standard_s=config.standard_period_s,
        standard_high=config.standard_high_periods,
        standard_low=config.standard_low_periods,
        low_share=config.low_share,
    )


def size_of(params: Members) -> int:
    """MaxResults. Raises ValidationException beyond its bounds."""
    size = params.get("MaxResults")
    if size is None:
        return PAGE_MAX
    if not 1 <= size <= PAGE_MAX:
        raise invalid(f"MaxResults must be between 1 and {PAGE_MAX}")
    return int(size)


def page(
    params: Members, items: Iterable[T], key: Callable[[T], str]
) -> tuple[list[T], dict[str, Any]]:
    """The page's items in order of `key`, and its NextToken.

    Raises ValidationException, InvalidNextTokenException.
    """
    size = size_of(params)
    after = after_of(params)
    found = [one for one in sorted(items, key=key) if after is None or key(one) > after]
    rest = {"NextToken": next_token(params, key(found[size - 1]))} if len(found) > size else {}
    return found[:size], rest


def next_token(params: Members, last: str) -> str:
    return token_of(params, last, free=_FREE)


def after_of(params: Members) -> str | None:
    """The key of the last entry of the page before. Raises InvalidNextTokenException."""
    place: str | None = place_of(
        params,
        code="InvalidNextTokenException",
        fits=lambda place: isinstance(place, str),
        free=_FREE,
    )
    return place
