"""Builds and starts the drivers of a server's offline work: work for which no client waits."""

from __future__ import annotations

from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock
from penstock.config import ServerConfig
from penstock.control.plane import ControlPlane
from penstock.core.deployment.deployment import AsyncSpec
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.jobs.asynchronous.driver import AsynchronousDriver, CapacityWanted
from penstock.jobs.asynchronous.notifier import Notifier
from penstock.jobs.asynchronous.objects import Objects
from penstock.jobs.asynchronous.outcome import Published
from penstock.jobs.asynchronous.work import RequestWork
from penstock.jobs.experiments.driver import ExperimentsDriver
from penstock.jobs.schedules.driver import ControlPlaneCall, SchedulesDriver
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

        def configured(endpoint: str) -> AsyncSpec | None:
            shown = plane.shown(endpoint)
            return None if shown is None else shown.asynchronous

        inputs = config.control.async_inputs if config.listen.auth else ()
        self.asynchronous = AsynchronousDriver(
            database=plane.database,
            dispatcher=dispatcher,
            work=RequestWork(
                database=plane.database,
                dispatcher=dispatcher,
                objects=Objects(artifacts, inputs=inputs),
                clock=clock,
                bytes_max=config.limits.async_bytes_max,
                region=config.control.region,
            ),
            notifier=Notifier(plane.database, config.control.topics, clock, counts),
            published=Published(metrics, counts),
            clock=clock,
            configured=configured,
            capacity_wanted=capacity_wanted,
        )
        self.schedules = SchedulesDriver(
            database=plane.database,
            call=call,
            clock=clock,
            counts=counts,
            places=NamedPlaces(artifacts),
        )
        self.experiments = ExperimentsDriver(
            database=plane.database, call=call, notify=plane.notify, clock=clock
        )

    async def start(self) -> None:
        """Resumes the work that is on record."""
        await self.transform.start()
        await self.asynchronous.start()
        self.schedules.start()
        self.experiments.start()

    async def close(self) -> None:
        """The next start resumes unfinished work. Idempotent."""
        await self.experiments.close()
        await self.schedules.close()
        await self.asynchronous.close()
        await self.transform.close()
