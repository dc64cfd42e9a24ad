"""What to do next so that an endpoint becomes what was asked for.

One pure function, `decide`: recorded wish and one observation in, actions out. It knows the life of
an endpoint; what follows from it is asked of deciders, in this order and on that observation:
`components/rollout` (how many copies of each revision of its inference components),
`managed_instances` (how many instances, where they follow the copies), `capacity` (which
instances), `placement` (which copies on which instance), `routes` (what gateways are told),
`components/life` (the status of each component). The driver carries the actions out, and what came
of them is part of the next observation: what is being started, loaded, drained or stopped is seen
in that phase, so nothing is asked for twice.

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

Inference components begin once the first generation of their endpoint is in service. A new
generation takes over when their copies are ready on it too.

After the server itself was started again nothing is observed, and the same rules bring everything
back. An endpoint found Updating goes straight to its target generation: old copies are kept up only
where they have been seen, so a machine that has room for one generation is enough. Until the switch
its routes name no copy; if the target fails, the old generation is started as for any InService.

Invariants: a copy that requests were routed to is drained before it is stopped (unless it died),
and only after routes without it were published; the only routed generation is never stopped for
one that is not published.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from penstock.core import capacity, endings, final_failures, managed_instances, placement, routes
from penstock.core.attempts import ReconcileSpec, earliest
from penstock.core.components import life
from penstock.core.components import rollout as components_rollout
from penstock.core.components.rollout import RolloutDecision
from penstock.core.components.spec import ComponentDesired
from penstock.core.deployment import DeploymentSpec, VariantSpec
from penstock.core.endpoint_state import (
    CONSOLIDATED,
    DELETING,
    FAILED,
    IN_SERVICE,
    READY,
    RELEASES,
    RUNNING,
    UPDATING,
    Action,
    CopyObserved,
    DrainCopy,
    EndpointDesired,
    EndpointObserved,
    FinishDelete,
    ForgetComponent,
    InstanceObserved,
    SetComponent,
    SetStatus,
    UnloadCopy,
)
from penstock.core.managed_instances import COPIES_NEED_MORE
from penstock.core.wish import ComponentWish, VariantWish, raised, wished

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
        turn.end_components("endpoint-failed")
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
    #: by variant whose instances are managed, why some of them go
    releases: dict[str, str] = field(default_factory=dict)
    rollouts: dict[str, RolloutDecision] = field(default_factory=dict)  #: by component

    def component_counts(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (wish.name, one.name)
            for wish in self.wishes
            for one in wish.components
            if one.component
        )

    def serving(self, component: ComponentDesired) -> ComponentDesired:
        """As it is to be routed to: a new revision that is complete serves before its record says
        so, so that whoever reads the record finds it serving."""
        rollout = self.rollouts.get(component.name)
        if rollout is None or not rollout.complete or component.target is None:
            return component
        return replace(component, active=component.target, target=None)

    def instance_ids(self) -> set[str]:
        return {one.instance_id for kept in self.instances.values() for one in kept}

    def reaches(self, counts: Collection[tuple[str, str]]) -> bool:
        """Whether these counts are reached: (variant, component), "" for instances."""
        return all(self._reaches(wish, counts) for wish in self.wishes)

    def _reaches(self, wish: VariantWish, counts: Collection[tuple[str, str]]) -> bool:
        running = sum(one.phase == RUNNING for one in self.instances[wish.name])
        if running < wish.instances and (wish.name, "") in counts:
            return False
        return self.reaches_copies(wish, counts)

    def reaches_copies(
        self, wish: VariantWish, counts: Collection[tuple[str, str]] | None = None
    ) -> bool:
        """As `reaches`, of one variant's copies; None: of all."""
        ready: dict[str, int] = {}
        for copy in self.copies[wish.name]:
            ready[copy.component] = ready.get(copy.component, 0) + (copy.phase == READY)
        return all(
            ready.get(one.name, 0) >= one.copies
            or (counts is not None and (wish.name, one.name) not in counts)
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
        failure = final_failures.of_rollout(target, self._observed, self._spec)
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
        # Components come once there is something for them to be on.
        components = self._wish.components if active is not None else ()
        new = self._keep_up(target, "new-generation", components, first=True)
        if new.reaches(raised(target, None) | new.component_counts()):
            self._publish(target, new, routes.GENERATION_READY)
            self.actions.append(
                SetStatus(IN_SERVICE, "generation-ready", "", active_generation=target.generation)
            )
            return
        if active is None:
            self._take_away([new], {target.generation})
            return
        old = _Held()
        if self._was_seen(active):
            old = self._keep_up(active, "variant-count", components)
        self._publish(active, old, "copies-changed")
        self._take_away([new, old], {target.generation, active.generation})

    def hold(self, active: DeploymentSpec, previous: DeploymentSpec | None) -> None:
        """A generation that serves, perhaps on its way to new weights and counts."""
        changing = self._wish.status == UPDATING
        failure = (
            final_failures.of_count(active, previous, self._observed, self._spec)
            if changing and previous is not None
            else None
        )
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
        held = self._keep_up(active, "variant-count", self._wish.components)
        self._publish(active, held, "weights-changed" if changing else "copies-changed")
        self._take_away([held], {active.generation})
        if changing and held.reaches(raised(active, previous)):
            self.actions.append(
                SetStatus(IN_SERVICE, "counts-reached", "", active_generation=active.generation)
            )
        for component in self._wish.components:
            self.actions += life.decide(
                component,
                held.rollouts[component.name],
                self._observed,
                generation=active.generation,
                spec=self._spec,
            )

    def end_components(self, reason: str) -> None:
        """Of an endpoint that will never serve."""
        for one in self._wish.components:
            if one.status == DELETING:
                self.actions.append(ForgetComponent(one.name, "nothing-left"))
            elif one.status != FAILED:
                story = "the endpoint that it was to be on has failed"
                self.actions.append(SetComponent(one.name, FAILED, one.copies, reason, story))

    def _keep_up(
        self,
        deployment: DeploymentSpec,
        start_reason: str,
        components: tuple[ComponentDesired, ...],
        *,
        first: bool = False,
    ) -> _Held:
        """Loads and starts what is missing. What is too much is taken away only after routes
        without it are published, by `_take_away`. `first`: the generation has not served yet."""
        held = _Held()
        found: dict[str, tuple[ComponentWish, ...]] = {}
        copies = [one for one in self._observed.copies if one.generation == deployment.generation]
        for component in components:
            rollout = components_rollout.decide(component, copies, now=self._now)
            held.rollouts[component.name] = rollout
            found[component.variant] = found.get(component.variant, ()) + rollout.wishes
            self.deadline = earliest(self.deadline, rollout.next_deadline)
        variants = {one.name: one for one in deployment.variants}
        held.wishes = tuple(
            self._managed(variants[wish.name], wish, held, first=first)
            for wish in wished(deployment, found)
        )
        for wish in held.wishes:
            reason = start_reason if variants[wish.name].managed is None else COPIES_NEED_MORE
            self._keep_variant(wish, held, start_reason if first else reason)
        return held

    def _managed(
        self, variant: VariantSpec, wish: VariantWish, held: _Held, *, first: bool
    ) -> VariantWish:
        """With as many instances as the copies need, where they follow them."""
        if variant.managed is None:
            return wish
        decision = managed_instances.decide(
            variant.managed,
            wish,
            capacity.alive(wish, self._observed),
            self._observed,
            now=self._now,
            instances_min=variant.instance_count if first else 0,
        )
        self.deadline = earliest(self.deadline, decision.next_deadline)
        if decision.reason in RELEASES:
            held.releases[wish.name] = decision.reason
        return replace(wish, instances=decision.instances)

    def _keep_variant(self, wish: VariantWish, held: _Held, start_reason: str) -> None:
        instances = capacity.decide(
            wish, self._observed, now=self._now, spec=self._spec, start_reason=start_reason
        )
        copies = placement.decide(
            wish, instances.kept, self._observed, now=self._now, spec=self._spec
        )
        held.instances[wish.name] = instances.kept
        held.copies[wish.name] = copies.kept
        held.retires += copies.retires
        self.actions += [*copies.loads, *copies.refusals, *instances.starts]
        self.deadline = earliest(self.deadline, instances.next_deadline, copies.next_deadline)
        if held.releases.get(wish.name) == CONSOLIDATED and not held.reaches_copies(wish):
            self._hold_back(wish, held)

    def _hold_back(self, wish: VariantWish, held: _Held) -> None:
        """What is to be taken away serves until its copies are ready on the others."""
        staying = {one.instance_id for one in held.instances[wish.name]}
        going = [
            one for one in capacity.alive(wish, self._observed) if one.instance_id not in staying
        ]
        ids = {one.instance_id for one in going}
        names = {one.name for one in wish.components}
        held.instances[wish.name] += tuple(going)
        held.copies[wish.name] += tuple(
            copy
            for copy in self._observed.copies
            if copy.instance_id in ids
            and copy.generation == wish.generation
            and copy.component in names
        )

    def _publish(self, deployment: DeploymentSpec, held: _Held, reason: str) -> None:
        serving = [held.serving(one) for one in self._wish.components]
        self.actions += routes.decide(
            deployment, held.copies, self._observed.published, reason, serving
        )

    def _take_away(self, held: list[_Held], generations: set[int]) -> None:
        kept = {name for one in held for name in one.instance_ids()}
        reasons: dict[str, str] = {}
        for one in held:
            self.actions += one.retires
            reasons |= one.releases
        self.actions += capacity.take_away(self._observed, kept, generations, reasons)

    def _was_seen(self, deployment: DeploymentSpec) -> bool:
        """Since this server was started."""
        seen = {one.generation for one in self._observed.instances}
        seen |= {failure.generation for failure in self._observed.failures}
        return deployment.generation in seen


def _failure_reason(message: str, target: DeploymentSpec, active: DeploymentSpec | None) -> str:
    if active is not None and not message.startswith("CapacityError:"):
        message = (
            f"the update to configuration {target.config_name} failed, {active.config_name} serves"
            f" on: {message}"
        )
    return message[:_FAILURE_REASON_CHARS_MAX]
