"""Auto scaling of one server, put together: its driver, the context of its calls, and pages.

The Describe calls answer in pages; a token names the entry after which the next page begins.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from penstock.api.autoscaling.context import AutoscalingContext, invalid
from penstock.clock import Clock
from penstock.config import ScalingConfig, ServerConfig
from penstock.control.plane import ControlPlane
from penstock.control.scaling.driver import ScalingDriver
from penstock.control.scaling.explain import endpoint_story
from penstock.control.scaling.loading import TargetLoads
from penstock.control.store.store import Store
from penstock.core.scaling.spec import AlarmPeriods
from penstock.metrics.counts.registry import MetricRegistry
from penstock.wire.aws.errors import AwsError


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


T = TypeVar("T")


def size_of(params: dict[str, Any], most: int) -> int:
    """MaxResults. Raises ValidationException beyond its bounds."""
    size = params.get("MaxResults")
    if size is None:
        return most
    if not 1 <= size <= most:
        raise invalid(f"MaxResults must be between 1 and {most}")
    return int(size)


def page(
    params: dict[str, Any], items: Sequence[T], key: Callable[[T], str], most: int
) -> tuple[list[T], dict[str, Any]]:
    """The page's items and its NextToken. Items come in order of `key`.

    Raises ValidationException, InvalidNextTokenException.
    """
    size = size_of(params, most)
    after = place_of(params)
    found = [one for one in items if after is None or key(one) > after]
    rest = {"NextToken": token_of(params, key(found[size - 1]))} if len(found) > size else {}
    return found[:size], rest


def token_of(params: dict[str, Any], place: str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([_digest(params), place])).decode()


def place_of(params: dict[str, Any]) -> str | None:
    """The entry after which the page begins; None on the first. Raises
    InvalidNextTokenException."""
    token = params.get("NextToken")
    if not token:
        return None
    try:
        digest, place = orjson.loads(base64.urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, TypeError):
        digest, place = "", None
    if digest != _digest(params) or not isinstance(place, str):
        raise AwsError(
            "InvalidNextTokenException", "The NextToken is invalid, or belongs to another request."
        )
    return place


def _digest(params: dict[str, Any]) -> str:
    same = {
        name: value for name, value in params.items() if name not in ("NextToken", "MaxResults")
    }
    data = orjson.dumps(same, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(data, digest_size=9).hexdigest()
