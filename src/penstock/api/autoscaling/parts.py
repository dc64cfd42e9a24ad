"""Auto scaling of one server, put together: what drives it, and what its calls are given."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.api.autoscaling.context import AutoscalingContext
from penstock.clock import Clock
from penstock.config import ScalingConfig, ServerConfig
from penstock.control.plane import ControlPlane
from penstock.control.scaling.driver import ScalingDriver
from penstock.control.scaling.explain import endpoint_story
from penstock.control.scaling.load import ComponentLoad, LoadSource, VariantLoad
from penstock.control.scaling.resources import Components, Variants
from penstock.control.scaling.writing import Resources
from penstock.control.store.store import Store
from penstock.core.scaling.resource import COMPONENT, VARIANT
from penstock.core.scaling.spec import AlarmPeriods
from penstock.metrics.counts.registry import MetricRegistry


class Scaling:
    """The driver, and the context of each call."""

    def __init__(
        self, config: ServerConfig, plane: ControlPlane, registry: MetricRegistry, clock: Clock
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._account_id = config.control.account_id
        self._periods = periods_of(config.scaling)
        self._resources: Resources = {VARIANT: Variants(), COMPONENT: Components()}
        loads: dict[str, LoadSource] = {
            VARIANT: VariantLoad(registry, plane.current_counts, plane.start_s),
            COMPONENT: ComponentLoad(registry, plane.copy_counts, plane.start_s),
        }
        self.driver = ScalingDriver(
            database=plane.database,
            resources=self._resources,
            loads=loads,
            notify=plane.notify,
            clock=clock,
            fast=config.scaling.fast,
            cooldown_s_max=config.scaling.cooldown_s_max,
        )

    def context(self, region: str) -> AutoscalingContext:
        """Of a call for a region."""
        return AutoscalingContext(
            database=self._plane.database,
            resources=self._resources,
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
            self._resources,
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
