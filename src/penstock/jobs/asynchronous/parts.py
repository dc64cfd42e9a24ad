"""Builds the parts of one server's asynchronous inference."""

from __future__ import annotations

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
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.series.store import MetricStore


def asynchronous_work(
    config: ServerConfig,
    plane: ControlPlane,
    dispatcher: Dispatcher,
    store: MetricStore,
    counts: WorkCounts,
    clock: Clock,
    capacity_wanted: CapacityWanted,
) -> AsynchronousDriver:
    """The driver; call its `start` once the control plane has started."""

    def configured(endpoint: str) -> AsyncSpec | None:
        shown = plane.shown(endpoint)
        return None if shown is None else shown.asynchronous

    return AsynchronousDriver(
        database=plane.database,
        dispatcher=dispatcher,
        work=RequestWork(
            database=plane.database,
            dispatcher=dispatcher,
            objects=Objects(
                ArtifactSettings.from_config(config),
                inputs=config.control.async_inputs if config.listen.auth else (),
            ),
            clock=clock,
            bytes_max=config.limits.async_bytes_max,
            region=config.control.region,
        ),
        notifier=Notifier(plane.database, config.control.topics, clock, counts),
        published=Published(store, counts),
        clock=clock,
        configured=configured,
        capacity_wanted=capacity_wanted,
    )
