"""The control side of a server: everything that there is once, however many gateways serve.

Instances are child processes of the local fleet. When this process dies, in whatever way, they end
too, and the next start restores everything from the database.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from penstock.api.access import key_of, strangers_call
from penstock.api.admin.app import AdminServices
from penstock.api.admin.deploying import deploying
from penstock.api.admin.traffic import TrafficFeed
from penstock.api.app import build_app
from penstock.api.autoscaling.context import Scaling
from penstock.api.autoscaling.operations import OPERATIONS as AUTOSCALING_OPERATIONS
from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.cloudwatch.rules import CloudWatchContext
from penstock.api.observation import Observation
from penstock.api.oip.models import OipModels
from penstock.api.oip.server_settings import ServerSettings
from penstock.api.oip.shared_memory import OwnRegions
from penstock.api.oip.targets import OipTargets
from penstock.api.runtime.asynchronous import AsyncDoor
from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.cleanup import ShieldedExitStack
from penstock.clock import Clock
from penstock.config import ServerConfig
from penstock.control.alarms.driver import AlarmsDriver, explained
from penstock.control.database.leader_table import Term
from penstock.control.instances.under_way import Elsewhere
from penstock.control.metric_history import MetricHistory
from penstock.control.plane import ControlPlane
from penstock.control.ports import RoutePublisher
from penstock.control.target_models import TargetModels
from penstock.core.resources import ComputeResources
from penstock.errors import CallerError
from penstock.fleet.base import Fleet, PlatformAccess
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.http.asgi import AsgiApp
from penstock.gateway.traffic_loads import TrafficLoads
from penstock.jobs.offline import OfflineWork
from penstock.metrics.catalogue.work_catalogue import LEADER_BEAT, LEADER_EPOCH
from penstock.metrics.counts.container_delta import CONTAINER_COUNTS
from penstock.metrics.counts.recent import RecentRequests
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.driver import MetricsDriver
from penstock.metrics.page.pages import MetricPages
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.store import MetricStore
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, SAGEMAKER

log = logging.getLogger(__name__)


class ControlSide:
    """Create it on the running loop and `start` it once; the stack passed to `start` ends it."""

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock,
        *,
        dispatcher: Dispatcher,
        publisher: RoutePublisher,
        fleet: Callable[[], Fleet],
        store: MetricStore,
        registry: MetricRegistry,
        access: Callable[[], Awaitable[PlatformAccess]],
        gateway_pids: Callable[[], Sequence[int]] | None = None,
        term: Term | None = None,
        beat_age_s: Callable[[], float] | None = None,
        machine: ComputeResources | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """
        Args:
            dispatcher: of this process: offline work goes through it.
            publisher: the dispatcher, or the publisher to all gateways.
            access: where instances reach the platform, once it listens.
            gateway_pids: the processes whose connections instances accept, besides this one.
            term: for a server that leads others on one database.
            beat_age_s: s since this server's last heartbeat in the database.
            machine: what is available to instances; None: all of this machine.
            elsewhere: what instances on other machines need from this one.
        """
        self._config = config
        self._clock = clock
        self._dispatcher = dispatcher
        self._store = store
        self._registry = registry
        self.plane = ControlPlane(
            config,
            fleet,
            publisher,
            clock,
            access=access,
            model_counted=self._model_counted,
            gateway_pids=gateway_pids,
            term=term,
            machine=machine,
            elsewhere=elsewhere,
            database_called=registry.work.database_called,
            compared=registry.compared,
        )
        artifacts = ArtifactSettings.from_config(config)
        self._places = NamedPlaces(artifacts)
        self._target_models = TargetModels(
            self.plane, dispatcher.hosts_for, artifacts, self.plane.target_models
        )
        self._scaling = Scaling(config, self.plane, registry, clock)
        act = self._scaling.driver.on_alarm
        self._alarms = AlarmsDriver(self.plane.database, store, clock, act)
        self._offline = OfflineWork(
            config,
            self.plane,
            clock,
            call=self.sagemaker,
            dispatcher=dispatcher,
            metrics=store,
            counts=registry.work,
            capacity_wanted=self.capacity_wanted,
        )
        if term is not None:
            registry.work.gauge(LEADER_EPOCH, [((), term.epoch)])
        if beat_age_s is not None:
            registry.work.gauge_from(LEADER_BEAT, lambda: [((), beat_age_s())])
        self.targets = OipTargets(dispatcher, self._target_models)
        self.models = OipModels(
            dispatcher,
            registry,
            self.targets,
            OwnRegions() if config.listen.client_shared_memory else None,
            ServerSettings(config.telemetry.share_recorded),
        )
        self.aws = AwsFrontDoor(
            self._services(),
            region_default=config.control.region,
            key_of=self._key_of,
            places=self._places,
        )

    async def start(self, stack: ShieldedExitStack) -> None:
        """Returns once the restoring of stored endpoints has begun.

        Raises what the parts raise (`state-dir-in-use`, ...); the stack undoes the rest.
        """
        stack.push_async_callback(self.plane.close)
        await self.plane.start()
        shared = MetricHistory(self.plane.database) if self._config.control.database else None
        if shared is not None:
            await shared.load(self._store, now=self._clock.wall())
        metrics = MetricsDriver(
            self._registry,
            self._store,
            self._clock,
            Observation(self.plane, self._dispatcher.published, self._clock),
            self._config.state_dir / "metrics.jsonl" if shared is None else None,
            history=shared,
        )
        stack.push_async_callback(metrics.stop)
        metrics.start()
        # first, so that their last counts are kept
        stack.push_async_callback(self.plane.end_instances)
        stack.push_async_callback(self._scaling.driver.close)
        await self._scaling.driver.start()
        stack.push_async_callback(self._alarms.stop)
        self._alarms.start()
        stack.push_async_callback(self._offline.close)
        await self._offline.start()

    def app(
        self,
        explain: Callable[[str], Awaitable[dict[str, Any] | None]],
        snapshot: Callable[[], dict[str, Any]],
        gateways: Callable[[], list[dict[str, Any]]],
        pages: Callable[[PrometheusPage], MetricPages],
        waiting: Callable[[str], int],
        captured: Callable[[], Awaitable[list[dict[str, Any]]]],
    ) -> AsgiApp:
        """The application for every path that is not hot.

        Args:
            explain: returns the trace of a request.
            snapshot: the routers'.
            gateways: the processes that serve, where there are several.
            pages: of metrics, made of this process's own.
            waiting: requests for an endpoint that wait for a copy in other processes.
            captured: captured calls that are not written yet, of each process.
        """
        admin = AdminServices(
            self.plane,
            self._target_models,
            explain,
            snapshot,
            self._scaling.explain,
            self._offline.schedules,
            self._offline.transform,
            costs=self._registry.costs,
            usage=self._registry.models.usage.rows,
            alarms=lambda: explained(self._alarms.seen()),
            asynchronous=self._offline.asynchronous.snapshot,
            captured=captured,
            gateways=gateways,
            key_of=self._key_of,
        )
        triton = self._config.telemetry.triton_metrics
        page = PrometheusPage(
            self._registry, self._store, version_of=self.models.version_of if triton else None
        )
        recent = RecentRequests(self._registry)
        loads = TrafficLoads(
            self._dispatcher, self._config.limits, waiting=waiting, row_s=recent.row_s
        )
        traffic = TrafficFeed(loads, recent, self._clock)
        app: AsgiApp = build_app(self.aws, admin, pages(page), traffic)
        return app

    def async_door(self) -> AsyncDoor:
        return AsyncDoor(
            self._offline.asynchronous, self.plane.shown, self._clock, self._config, self._places
        )

    def capacity_wanted(self, endpoint: str, variant: str, component: str, count: int) -> None:
        """Reports that `count` requests wait for copies."""
        component, count = self.plane.waiting_for(endpoint, variant, component, count)
        self.plane.capacity_wanted(endpoint, variant, component, count)
        self._scaling.driver.capacity_wanted(endpoint, variant, component, count)

    def ready_in_s(self, endpoint: str, variant: str, component: str) -> float | None:
        """s until a copy can be ready at the earliest; None where that is unknown."""
        component = self.plane.base_of(endpoint, component)
        return self.plane.ready_in_s(endpoint, variant, component)

    async def sagemaker(
        self, operation: str, members: dict[str, Any], *, owner: str = ""
    ) -> dict[str, Any]:
        """One internal control plane call; raises CallerError as a client would see it.

        `owner`: id of the key that the call is made for; empty = none.
        """
        headers = {
            "x-amz-target": f"SageMaker.{operation}",
            "content-type": "application/x-amz-json-1.1",
        }
        http = HttpRequest("POST", "/", "", headers, orjson.dumps(members))
        answer = await self.aws.handle(http, self._dispatcher.ids.text(0), owner=owner)
        fields: dict[str, Any] = orjson.loads(answer.body or b"{}")
        if answer.status >= 300:
            raise CallerError(fields.get("__type", "unknown"), fields.get("message", ""))
        return fields

    def _key_of(self, http: HttpRequest) -> str:
        return key_of(http, self.plane.key_ring)

    async def deploying(self, endpoint: str) -> dict[str, Any]:
        """As the admin API has it. Raises CallerError (`endpoint-not-found`)."""
        return await deploying(self.plane, endpoint)

    def _model_counted(
        self, endpoint: str, variant: str, instance_id: str, event: dict[str, Any]
    ) -> None:
        now = self._clock.wall()
        if event["event"] == CONTAINER_COUNTS:
            self._registry.containers.add(endpoint, variant, event["containers"], now)
        else:
            self._registry.add_models(endpoint, variant, instance_id, event["models"], now)

    def _services(self) -> Sequence[AwsService]:
        account_id = self._config.control.account_id
        return (
            AwsService(
                SAGEMAKER,
                SAGEMAKER_OPERATIONS,
                lambda region: SagemakerContext(
                    self.plane.database,
                    self.plane,
                    self._clock,
                    region,
                    account_id,
                    self._offline.transform,
                    asynchronous=self._offline.asynchronous,
                    strangers=strangers_call(self._config.listen),
                    experiment_changed=self._offline.experiments.changed,
                ),
                lambda context, access_key: replace(context, access_key=access_key),
            ),
            AwsService(
                CLOUDWATCH,
                CLOUDWATCH_OPERATIONS,
                lambda region: CloudWatchContext(
                    self._store, self.plane.database, self._alarms, self._clock, region, account_id
                ),
            ),
            AwsService(AUTOSCALING, AUTOSCALING_OPERATIONS, self._scaling.context),
        )
