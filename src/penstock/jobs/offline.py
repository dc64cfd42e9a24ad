"""Builds and starts the drivers of a server's offline work: work for which no client waits."""

from __future__ import annotations

from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock
from penstock.config import ServerConfig
from penstock.control.plane import ControlPlane
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.jobs.asynchronous.driver import CapacityWanted
from penstock.jobs.asynchronous.parts import asynchronous_work
from penstock.jobs.schedules.driver import ControlPlaneCall, SchedulesDriver
from penstock.jobs.schedules.service import Schedules
from penstock.jobs.transform.driver import TransformDriver
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.series.store import MetricStore


class OfflineWork:
    """The drivers of one server. `start` once the control plane is open, then `close` before it."""

    def __init__(
        self,
        config: ServerConfig,
        plane: ControlPlane,
        clock: Clock,
        *,
        call: ControlPlaneCall,
        dispatcher: Dispatcher,
        metrics: MetricStore,
        counts: WorkCounts,
        capacity_wanted: CapacityWanted,
    ) -> None:
        """`call`: calls an operation of the control plane's API, as a client would."""
        artifacts = ArtifactSettings.from_config(config)
        self.transform = TransformDriver(
            plane=plane,
            clock=clock,
            settings=artifacts,
            jobs_dir=config.state_dir / "jobs",
            metrics=metrics,
            counts=counts,
        )
        self.asynchronous = asynchronous_work(
            config, plane, dispatcher, metrics, counts, clock, capacity_wanted
        )
        driver = SchedulesDriver(database=plane.database, call=call, clock=clock, counts=counts)
        self.schedules = Schedules(plane.database, driver, call, clock, NamedPlaces(artifacts))

    async def start(self) -> None:
        """Resumes the work that is on record."""
        await self.transform.start()
        await self.asynchronous.start()
        self.schedules.driver.start()

    async def close(self) -> None:
        """The next start resumes unfinished work. Idempotent."""
        await self.schedules.driver.close()
        await self.asynchronous.close()
        await self.transform.close()
