"""What to do next so that an endpoint becomes what was asked for.

One pure function, `decide`: recorded wish and one observation in, actions out. It knows the life of
an endpoint; what follows from it is asked of three deciders, in this order and on that observation:
`capacity` (which instances), `placement` (which copies on which instance), `routes` (what gateways
are told). The driver carries the actions out, and what came of them is part of the next
observation: what is being started, loaded, drained or stopped is seen in that phase, so nothing is
asked for twice.

The life of an endpoint:

    Creating   every variant at its counts and ready -> routes published -> InService
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

from dataclasses import dataclass, field

from penstock.core import capacity, endings, placement, routes
from penstock.core.attempts import ReconcileSpec, earliest, is_final
from penstock.core.deployment import DeploymentSpec
from penstock.core.endpoint_state import (
    DELETING,
    FAILED,
    IN_SERVICE,
    READY,
    RUNNING,
    UPDATING,
    Action,
    CopyObserved,
    DrainCopy,
    EndpointDesired,
    EndpointObserved,
    FinishDelete,
    InstanceObserved,
    SetStatus,
    SlotFailure,
    UnloadCopy,
)
from penstock.core.wish import VariantWish, wished

#: SageMaker bounds FailureReason.
_FAILURE_REASON_CHARS_MAX = 1024


@dataclass(frozen=True, slots=True)
class ReconcileDecision:
    """Actions, to be begun in this order, and when to decide again if nothing else happens."""

    actions: tuple[Action, ...]
    next_deadline: float | None


def decide(
    desired: EndpointDesired,
    observed: EndpointObserved,
    *,
    now: float,
    spec: ReconcileSpec | None = None,
) -> ReconcileDecision:
    """The next actions for one endpoint. See the module for the rules."""
    spec = spec or ReconcileSpec()
    expired = endings.expire(observed, now=now, spec=spec)
    turn = _Turn(desired, expired.observed, now, spec)
    turn.actions += expired.actions
    turn.deadline = expired.next_deadline
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


@dataclass(slots=True)
class _Held:
    """What one generation has, of what it should have."""

    wishes: tuple[VariantWish, ...] = ()
    instances: dict[str, tuple[InstanceObserved, ...]] = field(default_factory=dict)
    copies: dict[str, tuple[CopyObserved, ...]] = field(default_factory=dict)
    #: copies to be taken from instances that stay
    retires: list[DrainCopy | UnloadCopy] = field(default_factory=list)

    def instance_ids(self) -> set[str]:
        return {one.instance_id for kept in self.instances.values() for one in kept}

    def is_complete(self) -> bool:
        return all(self.reaches(wish, None) for wish in self.wishes)

    def reaches(self, wish: VariantWish, former: VariantWish | None) -> bool:
        """Whether a variant has its counts; those that were not raised are taken as reached."""
        running = sum(one.phase == RUNNING for one in self.instances[wish.name])
        if running < wish.instances and wish.instances > _instances(former):
            return False
        ready: dict[str, int] = {}
        for copy in self.copies[wish.name]:
            ready[copy.component] = ready.get(copy.component, 0) + (copy.phase == READY)
        return all(
            ready.get(one.name, 0) >= one.copies or one.copies <= _copies(former, one.name)
            for one in wish.components
        )


class _Turn:
    """One call of `decide`: gathers actions and the nearest deadline."""

    __slots__ = ("_now", "_observed", "_spec", "_wish", "actions", "deadline")

    def __init__(
        self, wish: EndpointDesired, observed: EndpointObserved, now: float, spec: ReconcileSpec
    ) -> None:
        self._wish = wish
        self._observed = observed
        self._now = now
        self._spec = spec
        self.actions: list[Action] = []
        self.deadline: float | None = None

    def end(self, reason: str) -> None:
        """Withdraws, drains and stops everything."""
        self.actions += routes.withdraw(self._observed.published, reason)
        copies = self._observed.copies_by_instance()
        for one in self._observed.instances:
            self.actions += endings.retire_instance(one, copies.get(one.instance_id, ()), reason)

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
        new = self._keep_up(target, "new-generation")
        if new.is_complete():
            self._publish(target, new, routes.GENERATION_READY)
            self.actions.append(
                SetStatus(IN_SERVICE, "generation-ready", "", active_generation=target.generation)
            )
            return
        if active is None:
            self._take_away([new], {target.generation})
            return
        old = self._keep_up(active, "variant-count") if self._was_seen(active) else _Held()
        self._publish(active, old, "copies-changed")
        self._take_away([new, old], {target.generation, active.generation})

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
        held = self._keep_up(active, "variant-count")
        self._publish(active, held, "weights-changed" if changing else "copies-changed")
        self._take_away([held], {active.generation})
        former = _by_name(previous)
        if changing and all(held.reaches(wish, former.get(wish.name)) for wish in held.wishes):
            self.actions.append(
                SetStatus(IN_SERVICE, "counts-reached", "", active_generation=active.generation)
            )

    def _keep_up(self, deployment: DeploymentSpec, start_reason: str) -> _Held:
        """Loads and starts what is missing. What is too much is taken away only after routes
        without it are published, by `_take_away`."""
        held = _Held(wished(deployment))
        for wish in held.wishes:
            instances = capacity.decide(
                wish,
                self._observed,
                now=self._now,
                spec=self._spec,
                start_reason=start_reason,
            )
            copies = placement.decide(
                wish, instances.kept, self._observed, now=self._now, spec=self._spec
            )
            held.instances[wish.name] = instances.kept
            held.copies[wish.name] = copies.kept
            held.retires += copies.retires
            self.actions += [*copies.loads, *copies.refusals, *instances.starts]
            self.deadline = earliest(self.deadline, instances.next_deadline, copies.next_deadline)
        return held

    def _publish(self, deployment: DeploymentSpec, held: _Held, reason: str) -> None:
        self.actions += routes.decide(deployment, held.copies, self._observed.published, reason)

    def _take_away(self, held: list[_Held], generations: set[int]) -> None:
        kept = {name for one in held for name in one.instance_ids()}
        for one in held:
            self.actions += one.retires
        self.actions += capacity.take_away(self._observed, kept, generations)

    def _was_seen(self, deployment: DeploymentSpec) -> bool:
        """Since this server was started."""
        seen = {one.generation for one in self._observed.instances}
        seen |= {failure.generation for failure in self._observed.failures}
        return deployment.generation in seen

    def _fatal(self, deployment: DeploymentSpec) -> SlotFailure | None:
        """The failure that ends a rollout, the earliest if there are several."""
        fatal = [
            failure
            for failure in self._observed.failures
            if failure.generation == deployment.generation and is_final(failure, self._spec)
        ]
        return min(fatal, key=lambda f: (f.at, f.variant, f.component, f.ordinal), default=None)

    def _unreachable(self, active: DeploymentSpec, previous: DeploymentSpec) -> SlotFailure | None:
        """The failure that keeps a variant from its new, higher counts.

        The ledger starts every count anew with a new wish, so these failures belong to it.
        """
        serving = self._serving_slots(active.generation)
        raised = _raised(active, previous)
        for failure in self._observed.failures:
            if (
                failure.generation == active.generation
                and (failure.variant, failure.component) in raised
                and (failure.variant, failure.component, failure.ordinal) not in serving
                and is_final(failure, self._spec)
            ):
                return failure
        return None

    def _serving_slots(self, generation: int) -> set[tuple[str, str, int]]:
        """Slots of instances and of copies (by component) that serve again."""
        ready = [
            copy
            for copy in self._observed.copies
            if copy.generation == generation and copy.phase == READY
        ]
        on = {copy.instance_id for copy in ready}
        serving = {(copy.variant, copy.component, copy.ordinal) for copy in ready}
        return serving | {
            (one.variant, "", one.ordinal)
            for one in self._observed.instances
            if one.generation == generation and one.phase == RUNNING and one.instance_id in on
        }


def _by_name(deployment: DeploymentSpec | None) -> dict[str, VariantWish]:
    return {} if deployment is None else {wish.name: wish for wish in wished(deployment)}


def _raised(active: DeploymentSpec, previous: DeploymentSpec) -> set[tuple[str, str]]:
    """(variant, component) of every higher count; "" for instances."""
    former = _by_name(previous)
    raised = set()
    for wish in wished(active):
        before = former.get(wish.name)
        if wish.instances > _instances(before):
            raised.add((wish.name, ""))
        for one in wish.components:
            if one.copies > _copies(before, one.name):
                raised.add((wish.name, one.name))
    return raised


def _instances(wish: VariantWish | None) -> int:
    return 0 if wish is None else wish.instances


def _copies(wish: VariantWish | None, component: str) -> int:
    if wish is None:
        return 0
    return next((one.copies for one in wish.components if one.name == component), 0)


def _failure_reason(message: str, target: DeploymentSpec, active: DeploymentSpec | None) -> str:
    if active is not None and not message.startswith("CapacityError:"):
        message = (
            f"the update to configuration {target.config_name} failed, {active.config_name} serves"
            f" on: {message}"
        )
    return message[:_FAILURE_REASON_CHARS_MAX]
