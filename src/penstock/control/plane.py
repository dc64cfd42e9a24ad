"""The control plane of one server, put together: lock, database, reconciler, keys.

Front doors and the command line talk to this object: they write through `database`, then `notify`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.cleanup import shielded
from penstock.clock import Clock, SystemClock
from penstock.config import CAPACITY_STRICT, FLEET_LOCAL, ServerConfig
from penstock.control.access.keys import FollowedKeys
from penstock.control.alarms import rows as alarm_rows
from penstock.control.database.leader_table import Term
from penstock.control.housekeeping import Housekeeping
from penstock.control.instances.instance_client import InstanceClient
from penstock.control.instances.instance_operations import folder_name
from penstock.control.instances.instance_status import memory_bytes
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.instances.under_way import Elsewhere, OperationSettings
from penstock.control.ports import ModelCounted, RoutePublisher, WaitingObserved
from penstock.control.reconcile.agreements import Compared
from penstock.control.reconcile.hosted import HostedObserved, seen_of
from penstock.control.reconcile.reconciler import ReconcilerDriver
from penstock.control.reconcile.views import InstanceView, instance_view
from penstock.control.state_dir import StateDirLock, make_private
from penstock.control.store.activities import Activity
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.control.store.target_model_record import TargetModelRecord
from penstock.control.target_models import MultiModel, multi_model_of
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.ready_times import ReadyTimes
from penstock.core.resources import ComputeResources
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.fleet.base import Fleet, PlatformAccess, SpareObserved
from penstock.fleet.catalogue import InstanceCatalogue
from penstock.fleet.local import START_S_MAX
from penstock.fleet.machine import available_bytes, this_machine
from penstock.runtimes.container.settings import ContainerSettings

_log = logging.getLogger(__name__)

#: Limit for starts and for loads at once, if instances are on many machines: each machine does its
#: own, and only this process handles all of them.
_AT_ONCE_MAX: Final = 64
#: Time for a cluster to start a node's process, and then the instance's own, in s.
_NODE_START_S: Final = 240.0


class ControlPlane:
    """Runs in the server's process. Call all methods on its event loop."""

    def __init__(
        self,
        config: ServerConfig,
        fleet: Fleet | Callable[[], Fleet],
        publisher: RoutePublisher,
        clock: Clock | None = None,
        *,
        machine: ComputeResources | None = None,
        spec: ReconcileSpec | None = None,
        access: Callable[[], Awaitable[PlatformAccess]] | None = None,
        model_counted: ModelCounted = lambda *counted: None,
        elsewhere: Elsewhere | None = None,
        gateway_pids: Callable[[], Sequence[int]] | None = None,
        term: Term | None = None,
        database_called: Callable[[float, str], None] = lambda took_s, failure: None,
        compared: Compared = lambda endpoint, rollout, component: {},
    ) -> None:
        """`fleet` may be a function that makes it; it is called once the state directory is locked.

        `access` waits until the platform listens and says how instances reach it. `model_counted`
        gets the events with counts of target models, and of models' containers. `elsewhere`:
        settings for instances on other machines. `gateway_pids`: processes that connect to
        instances, besides this one.
        `term`: the term of a server that leads others on one database; that server holds the state
        directory's lock. `database_called`: see `StoreThread`; `compared`: see the reconciler.
        """
        self._config = config
        self._fleet = fleet
        self._publisher = publisher
        self._clock = clock or SystemClock()
        self._spec = spec
        self._access = access
        self._model_counted = model_counted
        self._elsewhere = elsewhere or Elsewhere()
        self._gateway_pids = gateway_pids
        self._compared = compared
        self._log_dir = config.state_dir / "logs"
        self._lock: StateDirLock | None = None
        self._reconciler: ReconcilerDriver | None = None
        # A cluster's instance gets a node for what it requests; what the node has free does not
        # matter.
        nodes = config.control.fleet != FLEET_LOCAL
        strict = config.control.capacity == CAPACITY_STRICT or nodes
        self.catalogue = InstanceCatalogue(
            machine or this_machine(), strict=strict, many_machines=nodes
        )
        # If the caller passes a machine, that machine is taken as free: nothing is measured.
        self._available_bytes = available_bytes if machine is None else lambda: None
        #: (endpoint, variant, component) -> requests that wait for a copy
        self.wanted: dict[tuple[str, str, str], WaitingObserved] = {}
        #: pool of copies -> component that requests name -> requests that wait: a base and its
        #: adapters share a pool
        self._waiting: dict[tuple[str, str, str], dict[str, int]] = {}
        self._term = term
        self.database = StoreThread(
            lambda: Store(config.state_dir, config.control.database, term=term), database_called
        )
        self._keys = FollowedKeys(self.database, config.state_dir, config.control.key_file)
        self.key_ring = self._keys.ring  #: always the same object; its content is refreshed
        self.target_models = TargetModelRecord(self.database, self._clock)

    async def start(self) -> None:
        """Locks the state directory, opens the database, and begins to start all recorded
        endpoints.

        Raises what `StateDirLock`, `DatabaseConnection` and `FollowedKeys.open` raise.
        """
        state_dir = self._config.state_dir
        if self._term is None:
            self._lock = StateDirLock(state_dir)
        try:
            make_private(self._log_dir)
            # Notes of a killed server's instances: those ended with it.
            shutil.rmtree(state_dir / "work", ignore_errors=True)
            await self.database.open()
            if self._config.listen.auth:
                await self._keys.open()
            fleet = self._fleet() if callable(self._fleet) else self._fleet
            artifact = replace(
                ArtifactSettings.from_config(self._config),
                server_files=self._elsewhere.server_files(),
            ).to_dict()
            cores = min(max(int(self.catalogue.machine.cores), 1), _AT_ONCE_MAX)
            self._reconciler = ReconcilerDriver(
                database=self.database,
                fleet=fleet,
                publisher=self._publisher,
                clock=self._clock,
                catalogue=self.catalogue,
                available_bytes=self._available_bytes,
                settings=OperationSettings(
                    log_dir=self._log_dir,
                    cache_dir=state_dir / "cache",
                    work_dir=state_dir / "work",
                    instance_settings={"artifact": artifact},
                    access=self._access,
                    tls=self._elsewhere.tls,
                    offer=self._elsewhere.offer,
                    gateway_pids=self._gateway_pids,
                    warm_instances=self._config.control.warm_instances,
                    starts_max=max(cores, 2),
                    loads_max=cores,
                    instance_limits=self._config.control.instance_limits,
                ),
                housekeeping=Housekeeping(
                    cache_dir=state_dir / "cache",
                    cache_bytes_max=self._config.control.cache_bytes_max,
                    log_dir=self._log_dir,
                    clock=self._clock,
                    containers=ContainerSettings.from_config(self._config),
                ),
                spec=self._spec or _spec_for(self._config),
                record=self.target_models,
                model_counted=self._model_counted,
                ready_times_file=state_dir / "ready-times.json",
                alarm_states=_alarm_states,
                compared=self._compared,
            )
            await self._reconciler.start()
        except BaseException:
            await shielded(self.close())
            raise

    async def end_instances(self) -> None:
        """Ends all instances after reading their last messages. Idempotent; `close` calls it."""
        if self._reconciler is not None:
            await self._reconciler.close()
            self._reconciler = None

    async def close(self) -> None:
        """Ends all instances and unlocks the state directory. Idempotent."""
        await self._keys.close()
        await self.end_instances()
        await self.database.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def notify(self, endpoint: str) -> None:
        """Call after each change of an endpoint in the database."""
        if self._reconciler is not None:
            self._reconciler.notify(endpoint)

    def _ledger(self, endpoint: str) -> EndpointLedger | None:
        return self._reconciler.ledger(endpoint) if self._reconciler is not None else None

    def _client(self, instance_id: str) -> InstanceClient | None:
        return self._reconciler.work.client(instance_id) if self._reconciler is not None else None

    def current_counts(self, endpoint: str) -> dict[str, int]:
        """Variant -> instances that serve now (CurrentInstanceCount). It lags behind the desired
        count."""
        ledger = self._ledger(endpoint)
        return ledger.ready_counts() if ledger is not None else {}

    def pool_counts(self, endpoint: str) -> dict[str, dict[str, int]]:
        """Variant -> instance type -> instances that serve now, as `current_counts`."""
        ledger = self._ledger(endpoint)
        return ledger.pool_counts() if ledger is not None else {}

    def last_failure(self, endpoint: str, variant: str) -> str:
        """Why an instance or a copy of the variant failed last; empty: none has failed."""
        ledger = self._ledger(endpoint)
        return ledger.last_failure(variant) if ledger is not None else ""

    def kept_counts(self, endpoint: str) -> dict[str, int]:
        """Variant -> instances that exist or are starting: the count that managed scaling wants
        now."""
        ledger = self._ledger(endpoint)
        return ledger.kept_counts() if ledger is not None else {}

    def copy_counts(self, endpoint: str) -> dict[str, int]:
        """Component -> ready copies (CurrentCopyCount). It lags behind the desired count."""
        ledger = self._ledger(endpoint)
        return ledger.component_counts() if ledger is not None else {}

    def copy_types(self, endpoint: str) -> dict[str, dict[str, int]]:
        """Component -> type of the instances -> ready copies, as `copy_counts`."""
        ledger = self._ledger(endpoint)
        return ledger.component_types() if ledger is not None else {}

    def shown(self, endpoint: str) -> DeploymentSpec | None:
        """The generation that serves, or else the first one; None for an unknown endpoint."""
        ledger = self._ledger(endpoint)
        return ledger.desired.shown if ledger is not None else None

    def waiting_for(
        self, endpoint: str, variant: str, component: str, waiting: int
    ) -> tuple[str, int]:
        """(component whose copies are needed, number of requests that wait for those copies)."""
        base = self.base_of(endpoint, component)
        lines = self._waiting.setdefault((endpoint, variant, base), {})
        lines[component] = waiting
        total = sum(lines.values())
        if not total:
            del self._waiting[endpoint, variant, base]
        return base, total

    def capacity_wanted(self, endpoint: str, variant: str, component: str, waiting: int) -> None:
        """A gateway reports how many requests wait for copies of a variant, or of its component.

        0: none waits any more. A request that could not be held is reported too: first with a
        number that includes it, then with one that does not.
        """
        key = endpoint, variant, component
        if not waiting:
            self.wanted.pop(key, None)
            return
        before = self.wanted.get(key)
        since = before.since if before is not None else self._clock.monotonic()
        self.wanted[key] = WaitingObserved(waiting=waiting, since=since)

    def base_of(self, endpoint: str, component: str) -> str:
        """The component whose copies serve this one: an adapter's base, or the component itself."""
        ledger = self._ledger(endpoint)
        known = ledger.desired.components if ledger is not None and component else ()
        return next((one.base for one in known if one.name == component and one.base), component)

    def start_s(self, endpoint: str, variant: str, component: str) -> float | None:
        """Expected time to start a copy now, in s; None: no start was observed."""
        return self.ready_times.forecast_s(endpoint, component or variant)

    def ready_in_s(self, endpoint: str, variant: str, component: str) -> float | None:
        """When a copy can be ready at the earliest, in s from now; None: not known."""
        ledger = self._ledger(endpoint)
        fastest_s = self.ready_times.fastest_s(endpoint, component or variant)
        if ledger is None or fastest_s is None:
            return None
        return ledger.ready_in_s(variant, component, fastest_s, now=self._clock.monotonic())

    def spares(self) -> Sequence[SpareObserved]:
        """Instance processes that stand ready for the next starts."""
        return self._reconciler.spares() if self._reconciler is not None else ()

    @property
    def ready_times(self) -> ReadyTimes:
        """How long copies took to become ready, and the forecast for the next."""
        return self._reconciler.ready_times if self._reconciler is not None else ReadyTimes()

    def activities(self, endpoint: str) -> list[Activity]:
        """What was done for an endpoint, and why; oldest first. Of what was done before this server
        began: changes of the endpoint's own state."""
        ledger = self._ledger(endpoint)
        return list(ledger.activities) if ledger is not None else []

    def wall(self) -> float:
        """s since the epoch."""
        return self._clock.wall()

    def last_agreement(
        self, endpoint: str, component: str = "", *, model: str = ""
    ) -> tuple[AgreementSpec, AgreementCounts] | None:
        """What the latest rollout with an agreement, of the endpoint or of one of its components or
        target models, is or was held to, and what was found, also before a restart; None: there was
        none."""
        if self._reconciler is None:
            return None
        return self._reconciler.agreements.latest(endpoint, component, model)

    def instances(self, endpoint: str) -> list[InstanceView]:
        """The endpoint's instances as they are now."""
        ledger = self._ledger(endpoint)
        if self._reconciler is None or ledger is None:
            return []
        log_path = self._reconciler.work.instances.log_path
        return [
            instance_view(entry, copies, log_path(ledger, entry)) for entry, copies in ledger.held()
        ]

    def log_paths(self, endpoint: str) -> list[Path]:
        """The log files of an endpoint, also of ended instances and old generations."""
        # Names are compared without case.
        folders = self._log_dir.iterdir() if self._log_dir.is_dir() else ()
        return sorted(
            log
            for folder in folders
            if folder.name.lower() == folder_name(endpoint).lower()
            for log in folder.glob("*.log")
        )

    async def instance_status(self, instance_id: str, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """The answer of an instance to `status`, with `memory_bytes` of it and its workers.

        Empty if it is gone or does not answer.
        """
        client = self._client(instance_id)
        if client is None:
            return {}
        try:
            status = await client.status(timeout_s=timeout_s)
        except PenstockError:
            return {}
        return status | {"memory_bytes": memory_bytes(status)}

    async def explain_copy(
        self, instance_id: str, copy: int, *, timeout_s: float = 5.0
    ) -> dict[str, Any]:
        """The state of a copy's batcher; empty if the instance is gone."""
        client = self._client(instance_id)
        return await client.explain(copy, timeout_s=timeout_s) if client is not None else {}

    def multi_model(self, endpoint: str) -> MultiModel | None:
        """A multi-model endpoint with its hosts; None if it is of another kind.

        Raises CallerError (`endpoint-not-found`).
        """
        ledger = self._ledger(endpoint)
        if ledger is None:
            raise CallerError(
                "endpoint-not-found",
                f"Endpoint {endpoint[:63]} not found.",
                hint="ListEndpoints names those that exist.",
                status=404,
            )
        return multi_model_of(ledger, self._client)

    def host(
        self,
        deployment: DeploymentSpec,
        changed: Callable[[], None],
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        """Runs a deployment that is not an endpoint; see `control/reconcile/hosted.py`."""
        if self._reconciler is not None:
            self._reconciler.hosted.add(deployment, changed, on_event)
            self._reconciler.notify(deployment.endpoint)

    def unhost(self, name: str) -> None:
        """Stops such a deployment; `hosted` is None once nothing is left of it."""
        if self._reconciler is not None:
            self._reconciler.hosted.end(name)
            self._reconciler.notify(name)

    def hosted(self, name: str) -> HostedObserved | None:
        """The current state of a hosted deployment; None if it is not known (yet, or any more)."""
        ledger = self._ledger(name)
        return seen_of(ledger) if ledger is not None else None

    def instance_phase(self, instance_id: str) -> str:
        """The phase of an instance; empty if it is gone."""
        return self._reconciler.work.phase(instance_id) if self._reconciler is not None else ""

    def answers(self, instance_id: str) -> bool:
        """Whether the instance has a control connection."""
        return self._client(instance_id) is not None

    async def shares_disk(self) -> bool:
        """Whether instances can read this machine's files, as far as is known."""
        return self._reconciler is None or await self._reconciler.fleet.shares_disk()

    async def call_instance(
        self, instance_id: str, op: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """An instance's answer; raises what `InstanceClient.call` raises."""
        client = self._client(instance_id)
        if client is None:
            raise NotNowError("instance-gone", f"{instance_id} has closed its connection")
        return await client.call(op, timeout_s=timeout_s)

    async def admit_gateways(self, pids: Sequence[int]) -> None:
        """Returns once every instance accepts connections of these processes, and of no others."""
        if self._reconciler is not None:
            await self._reconciler.work.instances.admit_gateways(pids)


def _alarm_states(store: Store, names: Sequence[str]) -> dict[str, str]:
    """Name -> state, of those that exist."""
    with store.read() as db:
        return {one.name: one.state for one in alarm_rows.find(db, names)}


def _spec_for(config: ServerConfig) -> ReconcileSpec:
    """A copy that is removed gets as much time to drain as its longest request may take. The
    fleet's own limit for a start comes first, since its error says more. An instance of a cluster
    may first need a node."""
    spec, limits = ReconcileSpec(), config.limits
    start_s_max = START_S_MAX + spec.margin_s
    if config.control.fleet != FLEET_LOCAL:
        start_s_max = config.control.node_wait_s + _NODE_START_S
    spec = replace(spec, start_s_max=start_s_max)
    longest_s = max(limits.request_timeout_s, limits.stream_timeout_s)
    return replace(spec, drain_s_max=longest_s + spec.margin_s)
