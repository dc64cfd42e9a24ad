"""What to do next so that an endpoint becomes what was asked for.

One pure function, `decide`: recorded wish and observed instances in, actions out. The driver
carries the actions out, and what came of them is part of the next observation: an instance that is
being started, loaded, drained or stopped is seen in that phase, so nothing is asked for twice.

The life of an endpoint:

    Creating   every variant at its count and ready -> routes published -> InService
               a failure that trying again cannot help, or `attempts_max` failures -> Failed
    Updating   (new generation) its copies come up beside the old ones, which serve until ALL new
               ones are ready; then the routes change as a whole, and the old copies drain and stop.
               If the new generation fails it is stopped and the endpoint is InService as before,
               with the story of the update as FailureReason
    Updating   (weights, counts) copies are added, or drained and stopped; out of reach -> the
               former weights and counts are restored, with a FailureReason
    InService  what dies is replaced, 0.5 s to 30 s after its last failure; the status stays, even
               with nothing serving: the caller's wish has not changed
    Failed     everything is stopped; only DeleteEndpoint is left
    Deleting   routes are withdrawn, copies drain and stop, the endpoint is gone

After the server itself was started again nothing is observed, and the same rules bring everything
back. An endpoint found Updating goes straight to its target generation: old copies are kept up only
where they have been seen, so a machine that has room for one generation is enough. Until the switch
its routes name no copy; if the target fails, the old generation is started as for any InService.

Invariants: a copy that requests were routed to is drained before it is stopped (unless it died),
and only after routes without it were published; the only routed generation is never stopped for
one that is not published.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from penstock.core.deployment import (
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.endpoint_state import (  # fmt: skip
    DELETING,
    DRAINED,
    DRAINING,
    FAILED,
    GONE,
    IN_SERVICE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    STOPPING,
    UPDATING,
    Action,
    DrainCopy,
    EndpointDesired,
    EndpointObserved,
    FinishDelete,
    InstanceObserved,
    LoadCopy,
    PublishRoutes,
    SetStatus,
    SlotFailure,
    StartInstance,
    StopInstance,
    WithdrawRoutes,
)

#: Which of too many instances are kept: the most advanced.
_PROGRESS = {READY: 0, LOST: 1, LOADING: 2, RUNNING: 3, STARTING: 4}

#: SageMaker bounds FailureReason.
_FAILURE_REASON_CHARS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSpec:
    """The times and bounds of reconciliation."""

    backoff_s_min: float = 0.5  #: before the first replacement; doubles with each failure
    backoff_s_max: float = 30.0
    attempts_max: int = 3  #: failures of one slot after which a creation or an update has failed
    starting_max: int = 16  #: instances of one variant on their way to a connection at once
    stable_s: float = 60.0  #: a copy that was ready this long begins its count of failures anew
    start_s_max: float = 60.0  #: from asking the fleet to an accepted connection
    margin_s: float = 10.0  #: what the instance may be late with its own timeouts
    gone_s_max: float = 2.0  #: for the fleet to say why an instance broke its connection
    drain_s_max: float = 30.0  #: for requests in flight on a copy that is taken away


@dataclass(frozen=True, slots=True)
class ReconcileDecision:
    """Actions, to be begun in this order, and when to decide again if nothing else happens."""

    actions: tuple[Action, ...]
    next_deadline: float | None


def backoff_s(count: int, spec: ReconcileSpec) -> float:
    """Seconds from a slot's `count`-th failure in a row to the next attempt."""
    doublings = min(max(count - 1, 0), 16)
    return float(min(spec.backoff_s_max, spec.backoff_s_min * 2**doublings))


def failure_count(former: SlotFailure | None, *, ready_s: float, spec: ReconcileSpec) -> int:
    """The count of a slot that has just failed, after its copy was ready for `ready_s`."""
    return 1 if former is None or ready_s >= spec.stable_s else former.count + 1


def decide(
    desired: EndpointDesired,
    observed: EndpointObserved,
    *,
    now: float,
    spec: ReconcileSpec | None = None,
) -> ReconcileDecision:
    """The next actions for one endpoint. See the module for the rules."""
    turn = _Turn(desired, observed, now, spec or ReconcileSpec())
    turn.expire()
    if desired.status == DELETING:
        turn.end("endpoint-deleted")
        if not observed.instances:
            turn.actions.append(FinishDelete("nothing-left"))
    elif desired.status == FAILED:
        turn.end("endpoint-failed")
    elif desired.target is not None:
        turn.roll_out(desired.target, desired.active)
    elif desired.active is not None:
        turn.hold(desired.active, desired.previous)
    return ReconcileDecision(tuple(turn.actions), turn.deadline)


class _Turn:
    """One call of `decide`: gathers actions and the nearest deadline."""

    __slots__ = ("_expired", "_failures", "_now", "_observed", "_spec", "_wish", "actions",
                 "deadline")  # fmt: skip

    def __init__(
        self, wish: EndpointDesired, observed: EndpointObserved, now: float, spec: ReconcileSpec
    ) -> None:
        self._wish = wish
        self._observed = observed
        self._now = now
        self._spec = spec
        self._failures = {(f.generation, f.variant, f.ordinal): f for f in observed.failures}
        self._expired: set[str] = set()  #: stopped by this very decision; asked for membership only
        self.actions: list[Action] = []
        self.deadline: float | None = None

    def expire(self) -> None:
        """Stops what has been in one phase for too long."""
        for one in self._observed.instances:
            limit = self._limit(one)
            if limit is None or one.since is None:
                continue
            duration_s, reason, permanent, story = limit
            if self._now >= one.since + duration_s:
                self._expired.add(one.instance_id)
                self.actions.append(StopInstance(one.instance_id, reason, story, permanent))
            else:
                self._wake(one.since + duration_s)

    def _limit(self, one: InstanceObserved) -> tuple[float, str, bool, str] | None:
        """(seconds, reason, permanent, story) of the phase; None where it may last for ever."""
        spec = self._spec
        where = f"variant {one.variant}, instance {one.instance_id}"
        if one.phase == STARTING:
            story = f"{where} did not start within {spec.start_s_max:g} s. Look at its log."
            return spec.start_s_max, "start-timeout", False, story
        if one.phase == LOADING:
            story = (
                f"startup timeout: {where} has not loaded its model within {one.load_s_max:g} s."
                " Raise ContainerStartupHealthCheckTimeoutInSeconds or"
                " ModelDataDownloadTimeoutInSeconds, or look at its log."
            )
            return one.load_s_max + spec.margin_s, "startup-timeout", True, story
        if one.phase == LOST:
            story = f"{where}: its model's process ended and did not come back in time."
            return one.load_s_max + spec.margin_s, "copy-not-back", False, story
        if one.phase == GONE:
            return spec.gone_s_max, "connection-lost", False, f"{where} broke its connection."
        if one.phase == DRAINING:
            return spec.drain_s_max, "drain-timeout", False, ""
        return None

    def end(self, reason: str) -> None:
        """Withdraws, drains and stops everything."""
        if self._observed.published is not None:
            self.actions.append(WithdrawRoutes(reason))
        for one in self._observed.instances:
            self._retire(one, reason)

    def roll_out(self, target: DeploymentSpec, active: DeploymentSpec | None) -> None:
        """A first or a new generation on its way up."""
        failure = self._fatal(target)
        if failure is not None:
            self.actions.append(
                SetStatus(
                    FAILED if active is None else IN_SERVICE,
                    "generation-failed",
                    _failure_reason(failure.message, target, active),
                    None if active is None else active.generation,
                )
            )
            return
        kept = self._keep_up(target, "new-generation")
        if _all_ready(target, kept):
            self._publish(target, kept, "generation-ready")
            self.actions.append(
                SetStatus(IN_SERVICE, "generation-ready", "", active_generation=target.generation)
            )
            return
        generations = {target.generation}
        if active is not None:
            generations.add(active.generation)
            observed = self._observed
            seen = active.generation in {one.generation for one in observed.instances} | {
                failure.generation for failure in observed.failures
            }
            old = self._keep_up(active, "variant-count") if seen else {}
            self._publish(active, old, "copies-changed")
        self._retire_others(generations)

    def hold(self, active: DeploymentSpec, previous: DeploymentSpec | None) -> None:
        """A generation that serves, perhaps on its way to new weights and counts."""
        changing = self._wish.status == UPDATING
        failure = self._unreachable(active, previous) if changing and previous else None
        if failure is not None:
            self.actions.append(
                SetStatus(
                    IN_SERVICE,
                    "counts-out-of-reach",
                    failure.message[:_FAILURE_REASON_CHARS_MAX],
                    active.generation,
                    restore_previous=True,
                )
            )
            return
        kept = self._keep_up(active, "variant-count")
        self._publish(active, kept, "weights-changed" if changing else "copies-changed")
        self._retire_others({active.generation})
        if changing and all(
            _ready(kept[variant.name]) >= variant.instance_count
            or variant.instance_count <= _count_of(previous, variant.name)
            for variant in active.variants
        ):
            self.actions.append(
                SetStatus(IN_SERVICE, "counts-reached", "", active_generation=active.generation)
            )

    def _fatal(self, deployment: DeploymentSpec) -> SlotFailure | None:
        """The failure that ends a rollout, the earliest if there are several."""
        fatal = [
            failure
            for failure in self._observed.failures
            if failure.generation == deployment.generation
            and (failure.permanent or failure.count >= self._spec.attempts_max)
        ]
        return min(fatal, key=lambda f: (f.at, f.variant, f.ordinal), default=None)

    def _unreachable(self, active: DeploymentSpec, previous: DeploymentSpec) -> SlotFailure | None:
        """The failure that keeps a variant from its new, higher count.

        The ledger starts every count anew with a new wish, so these failures belong to it.
        """
        serving = {
            (one.variant, one.ordinal)
            for one in self._observed.instances
            if one.generation == active.generation and one.phase == READY
        }
        raised = {
            variant.name
            for variant in active.variants
            if variant.instance_count > _count_of(previous, variant.name)
        }
        for failure in self._observed.failures:
            if (
                failure.generation == active.generation
                and failure.variant in raised
                and (failure.variant, failure.ordinal) not in serving
                and (failure.permanent or failure.count >= self._spec.attempts_max)
            ):
                return failure
        return None

    def _keep_up(
        self, deployment: DeploymentSpec, start_reason: str
    ) -> dict[str, tuple[InstanceObserved, ...]]:
        """Loads and starts what is missing. Returns what counts, by variant; the rest is retired
        only after routes without it are published, by `_retire_others`."""
        kept = {}
        for variant in deployment.variants:
            kept[variant.name] = self._kept(deployment.generation, variant)
            for one in kept[variant.name]:
                if one.phase == RUNNING:
                    self.actions.append(LoadCopy(one.instance_id, variant.name, "instance-running"))
            self._start_missing(deployment.generation, variant, kept[variant.name], start_reason)
        return kept

    def _kept(self, generation: int, variant: VariantSpec) -> tuple[InstanceObserved, ...]:
        """At most `instance_count` instances: those that are furthest, then the oldest slots."""
        alive = [
            one
            for one in self._observed.instances
            if one.generation == generation
            and one.variant == variant.name
            and one.phase in _PROGRESS
            and one.instance_id not in self._expired
        ]
        alive.sort(key=lambda one: (_PROGRESS[one.phase], one.ordinal, one.instance_id))
        return tuple(alive[: variant.instance_count])

    def _start_missing(
        self,
        generation: int,
        variant: VariantSpec,
        kept: tuple[InstanceObserved, ...],
        start_reason: str,
    ) -> None:
        """Starts a few at a time. A count is a number that somebody wrote: what it costs to decide,
        and the processes that are begun before the machine is known to be full, don't grow with it.
        """
        taken = {one.ordinal for one in kept}
        # An instance that is about to be reported dead still owns its slot: its failure decides
        # when the next attempt is due.
        taken |= {
            one.ordinal
            for one in self._observed.instances
            if one.variant == variant.name
            and one.generation == generation
            and (one.phase == GONE or one.instance_id in self._expired)
        }
        free = (at for at in range(variant.instance_count) if at not in taken)
        startable = self._spec.starting_max - sum(one.phase in (STARTING, RUNNING) for one in kept)
        for ordinal in islice(free, variant.instance_count - len(kept)):
            if startable <= 0:
                return
            failure = self._failures.get((generation, variant.name, ordinal))
            reason = start_reason if failure is None else "replace-failed"
            if failure is not None:
                due = failure.at + backoff_s(failure.count, self._spec)
                if self._now < due:
                    self._wake(due)
                    continue
            startable -= 1
            self.actions.append(StartInstance(variant.name, generation, ordinal, reason))

    def _publish(
        self,
        deployment: DeploymentSpec,
        kept: dict[str, tuple[InstanceObserved, ...]],
        reason: str,
    ) -> None:
        routes = EndpointRoutes(
            endpoint=deployment.endpoint,
            variants=tuple(
                _variant_routes(variant, kept.get(variant.name, ()))
                for variant in deployment.variants
            ),
        )
        if self._observed.published is None and reason != "generation-ready":
            reason = "endpoint-known"
        if routes != self._observed.published:
            self.actions.append(PublishRoutes(routes, reason))

    def _retire_others(self, generations: set[int]) -> None:
        """Retires instances of other generations, and those above a variant's count."""
        wanted: set[str] = set()
        for deployment in (self._wish.active, self._wish.target):
            if deployment is not None and deployment.generation in generations:
                for variant in deployment.variants:
                    kept = self._kept(deployment.generation, variant)
                    wanted |= {one.instance_id for one in kept}
        for one in self._observed.instances:
            if one.instance_id not in wanted and one.phase != GONE:
                same = one.generation in generations
                self._retire(one, "variant-count" if same else "old-generation")

    def _retire(self, one: InstanceObserved, reason: str) -> None:
        if one.phase in (STOPPING, DRAINING) or one.instance_id in self._expired:
            return
        if one.routed and one.copy is not None and one.phase in (READY, LOST):
            self.actions.append(DrainCopy(one.instance_id, one.copy, reason))
        else:
            stop_reason = "drained" if one.phase == DRAINED else reason
            self.actions.append(StopInstance(one.instance_id, stop_reason))

    def _wake(self, at: float) -> None:
        if self.deadline is None or at < self.deadline:
            self.deadline = at


def _variant_routes(variant: VariantSpec, kept: tuple[InstanceObserved, ...]) -> VariantRoutes:
    ready = sorted(
        ((one.copy, one) for one in kept if one.phase == READY and one.copy is not None),
        key=lambda pair: pair[0],
    )
    return VariantRoutes(
        name=variant.name,
        weight=variant.weight,
        strategy=variant.strategy,
        copies=tuple(
            CopyRoute(copy=copy, instance_id=one.instance_id, outstanding_max=one.outstanding_max)
            for copy, one in ready
        ),
        model=ready[0][1].model if ready else {},
        prefix_length_max=variant.prefix_length_max,
        concurrency_threshold=variant.concurrency_threshold,
    )


def _ready(kept: tuple[InstanceObserved, ...]) -> int:
    return sum(one.phase == READY for one in kept)


def _all_ready(deployment: DeploymentSpec, kept: dict[str, tuple[InstanceObserved, ...]]) -> bool:
    return all(_ready(kept[v.name]) == v.instance_count for v in deployment.variants)


def _count_of(deployment: DeploymentSpec | None, name: str) -> int:
    if deployment is None:
        return 0
    return next((v.instance_count for v in deployment.variants if v.name == name), 0)


def _failure_reason(message: str, target: DeploymentSpec, active: DeploymentSpec | None) -> str:
    if active is not None and not message.startswith("CapacityError:"):
        message = (
            f"the update to configuration {target.config_name} failed, {active.config_name} serves"
            f" on: {message}"
        )
    return message[:_FAILURE_REASON_CHARS_MAX]
