"""What to do next so that an endpoint becomes what its spec says.

One pure function, `decide`, turns the recorded spec and one observation into actions. It knows the
life of an endpoint and asks other deciders, in this order and on the same observation:
`component_life` (how many copies of each revision of its inference components),
`managed_instances` (how many instances, where they follow the copies), `capacity` (which
instances), `placement` (which copies on which instance), `adapters` (which adapters on which
copies), `target_rollouts` (which artifacts answer for target models), `routes` (what gateways get),
`component_life` (the status of each component). The driver
carries the actions out, and their results are part of the next observation: an instance or copy
that is being started, loaded, drained or stopped is observed in that phase, so nothing is
requested twice.

The life of an endpoint:

    Creating   every variant at its counts and ready -> routes published -> InService
               a failure that a retry cannot help, or `attempts_max` failures -> Failed
    Updating   (new generation) its copies start beside the old ones, which serve until ALL new
               ones are ready; then the routes change as a whole, and the old copies drain and
               stop. If the new generation fails it is stopped and the endpoint is InService as
               before, with the error of the update as FailureReason. With a rollout policy the
               new copies get a share of the traffic, which grows while alarms are watched
               (`core/rollout`); the old ones stay until it is over, and serve on if it goes back
    Updating   (weights, counts) copies are added, or drained and stopped; out of reach -> the
               former weights and counts are restored, with a FailureReason
    InService  what dies is replaced, 0.5 s to 30 s after its last failure; the status stays,
               even with nothing serving: the spec has not changed
    Failed     everything is stopped; only DeleteEndpoint is possible
    Deleting   routes are withdrawn, copies drain and stop, the endpoint is gone

Inference components start once the first generation of their endpoint is in service. A new
generation takes over when their copies are ready on it too.

A shadow variant starts once its generation is in service and production lacks nothing. It is kept
like any other variant, but nothing waits for it: no status, update or count depends on it, and no
failure of it is final.

After a restart of the server nothing is observed yet, and the same rules start everything again. An
endpoint found Updating goes straight to its target generation: old copies are kept up only where
they have been observed, so a machine that has room for one generation is enough. Until the switch
its routes name no copy; if the target fails, the old generation is started as for any InService.
With a rollout policy both are started again, and the rollout goes on where it was.

Invariants: a copy that requests were routed to is drained before it is stopped (unless it died),
and only after routes without it were published; the only routed generation is never stopped for
one that is not published.

Two kinds of failure end a rollout or a change of counts: one that a retry can't help, and the last
of several in one slot. Once a generation serves, no failure is final: what dies is always replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.deployment.capacity_spec import ComponentSpec, raised
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.endpoint_state import (
    DELETING,
    FAILED,
    FAILURE_REASON_CHARS_MAX,
    IN_SERVICE,
    READY,
    RUNNING,
    UPDATING,
    Action,
    EndpointObserved,
    EndpointSpec,
    FinishDelete,
    ForgetComponent,
    SetComponent,
    SetRollout,
    SetStatus,
    SlotFailure,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest, is_final
from penstock.core.endpoint import capacity, endings, generation, routes, target_rollouts
from penstock.core.endpoint import component_life as life
from penstock.core.endpoint.generation import GenerationObserved
from penstock.core.rollout import machine as rollout
from penstock.core.rollout.agreement import AgreementCounts, judge
from penstock.core.rollout.machine import RolloutStep
from penstock.core.rollout.policy import BAKING, RolloutPolicy, rollout_capacity

#: s. How soon an alarm, or what comparisons say, is heard of while a rollout bakes.
LOOK_S = 1.0


def of_rollout(
    target: DeploymentSpec, observed: EndpointObserved, spec: ReconcileSpec
) -> SlotFailure | None:
    """The failure that ends the rollout of a generation; the earliest if there are several."""
    fatal = [
        failure
        for failure in observed.failures
        if failure.generation == target.generation and is_final(failure, spec)
    ]
    return min(fatal, key=lambda f: (f.at, f.variant, f.component, f.ordinal), default=None)


def of_count(
    active: DeploymentSpec,
    previous: DeploymentSpec,
    observed: EndpointObserved,
    spec: ReconcileSpec,
) -> SlotFailure | None:
    """The failure that keeps a variant from its new, higher counts.

    Each change of the spec resets the counts of failures, so these failures belong to it.
    """
    serving = _serving_slots(active.generation, observed)
    higher = raised(active, previous)
    for failure in observed.failures:
        if (
            failure.generation == active.generation
            and (failure.variant, failure.component) in higher
            and (failure.variant, failure.component, failure.ordinal) not in serving
            and is_final(failure, spec)
        ):
            return failure
    return None


def _serving_slots(generation: int, observed: EndpointObserved) -> set[tuple[str, str, int]]:
    """Slots of copies (by component) and of instances that serve again."""
    ready = [
        copy for copy in observed.copies if copy.generation == generation and copy.phase == READY
    ]
    on = {copy.instance_id for copy in ready}
    serving = {(copy.variant, copy.component, copy.ordinal) for copy in ready}
    return serving | {
        (one.variant, "", one.ordinal)
        for one in observed.instances
        if one.generation == generation and one.phase == RUNNING and one.instance_id in on
    }


@dataclass(frozen=True, slots=True)
class ReconcileDecision:
    """Actions, to be carried out in this order, and when to decide again without any news."""

    actions: tuple[Action, ...]
    next_deadline: float | None


def decide(
    desired: EndpointSpec,
    observed: EndpointObserved,
    *,
    now: float,
    spec: ReconcileSpec | None = None,
    wall: float = 0.0,
) -> ReconcileDecision:
    """The next actions for one endpoint. See the module for the rules. `wall`: the time by the wall
    clock, which rollouts are recorded by."""
    spec = spec or ReconcileSpec()
    ending = desired.status in (DELETING, FAILED)
    expired = endings.expire(observed, now=now, spec=spec, ending=ending)
    turn = _ReconcileTurn(desired, expired.observed, now, spec, wall)
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


class _ReconcileTurn:
    """One call of `decide`: collects actions and the nearest deadline."""

    def __init__(
        self,
        desired: EndpointSpec,
        observed: EndpointObserved,
        now: float,
        spec: ReconcileSpec,
        wall: float,
    ) -> None:
        self._desired = desired
        self._observed = observed
        self._now = now
        self._spec = spec
        self._wall = wall
        self._targets = desired.targets
        self.actions: list[Action] = []
        self.deadline: float | None = None

    def end(self, reason: str) -> None:
        """Withdraws routes, then drains and stops everything."""
        self.actions += routes.withdraw(self._observed.published, reason)
        copies = self._observed.copies_by_instance()
        for one in self._observed.instances:
            self.actions += endings.retire_instance(one, copies.get(one.instance_id, ()), reason)

    def roll_out(self, target: DeploymentSpec, active: DeploymentSpec | None) -> None:
        """Decides for a first or a new generation that is being started."""
        failure = of_rollout(target, self._observed, self._spec)
        if active is not None and target.rollout is not None:
            self._move(target, active, target.rollout, failure)
            return
        if failure is not None:
            self._give_up(target, active, "generation-failed", failure.message)
            return
        # Components need a generation that serves.
        components = self._desired.components if active is not None else ()
        new = self._keep_up(target, "new-generation", components, first=True)
        if _is_whole(target, new):
            self._publish(target, new, routes.GENERATION_READY)
            self.actions.append(
                SetStatus(IN_SERVICE, "generation-ready", "", active_generation=target.generation)
            )
            return
        if active is None:
            self._take_away([new], {target.generation})
            return
        old = GenerationObserved()
        if self._was_seen(active):
            old = self._keep_up(active, "variant-count", components)
        self._publish(active, old, "copies-changed")
        self._take_away([new, old], {target.generation, active.generation})

    def _move(
        self,
        target: DeploymentSpec,
        active: DeploymentSpec,
        policy: RolloutPolicy,
        failure: SlotFailure | None,
    ) -> None:
        """Moves instances and traffic to a new generation as its policy says, or back."""
        components, progress = self._desired.components, self._desired.progress
        instances = sum(one.instance_count for one in target.variants)
        parts = rollout_capacity(policy, progress, instances)
        wanted, kept = target.scaled(parts.new), active.scaled(parts.old)
        new = self._keep_up(wanted, "new-generation", components, first=True)
        old = self._keep_up(kept, "variant-count", components)
        step = rollout.decide(
            policy,
            progress,
            instances=instances,
            ready=_is_whole(wanted, new),
            old_ready=_is_whole(kept, old),
            failure=failure.message if failure is not None else "",
            alarms=self._observed.alarms,
            wall=self._wall,
            verdict=None
            if policy.agreement is None
            else judge(policy.agreement, self._observed.agreement or AgreementCounts()),
        )
        if step.roll_back:
            self._give_up(target, active, step.reason, step.roll_back)
            return
        if step.complete:
            self._publish(target, new, routes.GENERATION_READY)
            done = SetStatus(IN_SERVICE, step.reason, "", active_generation=target.generation)
            self.actions.append(done)
            return
        share = step.progress.share
        why = step.reason or "copies-changed"
        if share >= 1.0 and (new.serves or not old.serves):
            self._publish(target, new, why)
        elif 0.0 < share < 1.0:
            incoming = routes.IncomingRoutes(
                deployment=target,
                copies=new.copies,
                share=share,
                agreement=policy.agreement,
                rollout=step.progress.number,
            )
            self._publish(active, old, why, incoming)
        else:  # also where the new copies have all died, or start again after a restart
            self._publish(active, old, why)
        # Recorded after its routes: whoever reads the record finds it so.
        if step.progress != progress:
            self.actions.append(SetRollout(target.generation, step.progress, step.reason, step.why))
        self._wake_for(step, policy)
        self._take_away([new, old], {target.generation, active.generation})

    def _wake_for(self, step: RolloutStep, policy: RolloutPolicy) -> None:
        if step.next_deadline is not None:
            due = self._now + max(step.next_deadline - self._wall, 0.0)
            self.deadline = earliest(self.deadline, due)
        watched = policy.alarms or policy.agreement is not None
        if watched and step.progress.stage == BAKING:
            self.deadline = earliest(self.deadline, self._now + LOOK_S)

    def _wake_for_revision(self, component: ComponentSpec) -> None:
        target = component.target
        if target is None or target.goes_back:
            return
        if target.alarms or component.compared is not None:
            self.deadline = earliest(self.deadline, self._now + LOOK_S)
        if target.expires:
            due = self._now + max(target.expires - self._wall, 0.0)
            self.deadline = earliest(self.deadline, due)

    def _give_up(
        self, target: DeploymentSpec, active: DeploymentSpec | None, reason: str, why: str
    ) -> None:
        """Ends the rollout of a generation: the one that serves goes on, if there is one."""
        self.actions.append(
            SetStatus(
                FAILED if active is None else IN_SERVICE,
                reason,
                _failure_reason(why, target, active),
                None if active is None else active.generation,
            )
        )

    def hold(self, active: DeploymentSpec, previous: DeploymentSpec | None) -> None:
        """Decides for a generation that serves, perhaps with new weights or counts."""
        changing = self._desired.status == UPDATING
        failure = (
            of_count(active, previous, self._observed, self._spec)
            if changing and previous is not None
            else None
        )
        if failure is not None:
            self.actions.append(
                SetStatus(
                    IN_SERVICE,
                    "counts-out-of-reach",
                    failure.message[:FAILURE_REASON_CHARS_MAX],
                    active.generation,
                    restore_previous=True,
                )
            )
            return
        held = self._keep_up(active, "variant-count", self._desired.components)
        moved = self._move_targets()
        self._publish(active, held, "weights-changed" if changing else "copies-changed")
        self.actions += moved  # whoever reads the record finds its routes so
        self._take_away([held], {active.generation})
        if changing and held.reaches(raised(active, previous)):
            self.actions.append(
                SetStatus(IN_SERVICE, "counts-reached", "", active_generation=active.generation)
            )
        for component in self._desired.components:
            self.actions += life.decide(
                component,
                held.rollouts[component.name],
                self._observed,
                generation=active.generation,
                spec=self._spec,
                others=self._desired.components,
                wall=self._wall,
            )
            self._wake_for_revision(component)

    def _move_targets(self) -> list[Action]:
        """Moves requests for target models to other artifacts, or back; returns what to record."""
        decided = [
            target_rollouts.decide(
                one,
                self._observed.target_agreements.get(one.target),
                self._observed.alarms,
                wall=self._wall,
            )
            for one in self._targets
        ]
        for one in decided:
            if one.step is not None and one.served.policy is not None:
                self._wake_for(one.step, one.served.policy)
        self._targets = tuple(one.served for one in decided)
        return [action for one in decided for action in one.actions]

    def end_components(self, reason: str) -> None:
        """Ends the components of an endpoint that will never serve."""
        for one in self._desired.components:
            if one.status == DELETING:
                self.actions.append(ForgetComponent(one.name, "nothing-left"))
            elif one.status != FAILED:
                story = "the endpoint that it was to be on has failed"
                self.actions.append(SetComponent(one.name, FAILED, one.copies, reason, story))

    def _keep_up(
        self,
        deployment: DeploymentSpec,
        start_reason: str,
        components: tuple[ComponentSpec, ...],
        *,
        first: bool = False,
    ) -> GenerationObserved:
        """Starts and loads what is missing. `_take_away` stops what is too much, after routes
        without it are published."""
        held = generation.keep_up(
            deployment,
            components,
            self._observed,
            now=self._now,
            spec=self._spec,
            start_reason=start_reason,
            first=first,
        )
        self.actions += held.actions
        self.deadline = earliest(self.deadline, held.next_deadline)
        return held

    def _publish(
        self,
        deployment: DeploymentSpec,
        held: GenerationObserved,
        reason: str,
        incoming: routes.IncomingRoutes | None = None,
    ) -> None:
        serving = [held.serving(one) for one in self._desired.components]
        self.actions += routes.decide(
            deployment,
            held.copies,
            self._observed.published,
            reason,
            serving,
            self._desired.served_names,
            incoming,
            tuple(target_rollouts.routes_of(one) for one in self._targets if not one.is_itself),
        )

    def _take_away(self, held: list[GenerationObserved], generations: set[int]) -> None:
        kept = {name for one in held for name in one.instance_ids()}
        reasons: dict[str, str] = {}
        for one in held:
            self.actions += one.retires
            reasons |= one.releases
        self.actions += capacity.take_away(self._observed, kept, generations, reasons)

    def _was_seen(self, deployment: DeploymentSpec) -> bool:
        """Whether any of it was observed since this server was started."""
        seen = {one.generation for one in self._observed.instances}
        seen |= {failure.generation for failure in self._observed.failures}
        return deployment.generation in seen


def _is_whole(deployment: DeploymentSpec, held: GenerationObserved) -> bool:
    """Whether a generation has all that it should have."""
    counts = raised(deployment, None) | held.component_counts()
    return held.reaches(counts) and not held.adapters_missing


def _failure_reason(message: str, target: DeploymentSpec, active: DeploymentSpec | None) -> str:
    if active is not None and not message.startswith("CapacityError:"):
        message = (
            f"the update to configuration {target.config_name} failed, {active.config_name} serves"
            f" on: {message}"
        )
    return message[:FAILURE_REASON_CHARS_MAX]
