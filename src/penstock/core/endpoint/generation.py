"""What one generation of an endpoint has, compared with its spec, and which actions it needs.

Asks the deciders of counts and places in their order, on one observation: how many copies of each
revision of the components (`component_life`), how many instances where they follow the copies
(`managed_instances`), which instances (`capacity`), which copies on them (`placement`), and which
adapters on those (`adapters`), which take no place. It neither publishes routes nor stops
anything: it returns what the caller needs for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    ComponentSpec,
    VariantCapacitySpec,
    capacity_specs,
    component_of,
)
from penstock.core.deployment.deployment import DeploymentSpec, VariantSpec
from penstock.core.deployment.endpoint_state import (
    CONSOLIDATED,
    IN_SERVICE,
    READY,
    RELEASES,
    RUNNING,
    UPDATING,
    Action,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    InstanceObserved,
    StartInstance,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, earliest
from penstock.core.endpoint import adapters, capacity, managed_instances, placement
from penstock.core.endpoint.component_life import RolloutDecision, roll_out
from penstock.core.endpoint.managed_instances import COPIES_NEED_MORE

#: Statuses of adapters that a new generation waits for.
_SETTLED = (IN_SERVICE, UPDATING)


@dataclass(slots=True)
class GenerationObserved:
    """What one generation has, compared with its spec."""

    shadows: frozenset[str] = frozenset()  #: names of shadow variants
    specs: tuple[VariantCapacitySpec, ...] = ()
    instances: dict[str, tuple[InstanceObserved, ...]] = field(default_factory=dict)
    copies: dict[str, tuple[CopyObserved, ...]] = field(default_factory=dict)
    #: copies to remove from instances that stay
    retires: list[DrainCopy | UnloadCopy] = field(default_factory=list)
    #: variant -> why some of its instances are stopped; only where they are managed
    releases: dict[str, str] = field(default_factory=dict)
    rollouts: dict[str, RolloutDecision] = field(default_factory=dict)  #: by component
    actions: list[Action] = field(default_factory=list)  #: to be carried out now
    next_deadline: float | None = None
    adapters_missing: bool = False  #: a base copy that serves or will serve still lacks an adapter

    def component_counts(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (desired.name, one.name)
            for desired in self.specs
            for one in desired.components
            if one.component
        )

    def serving(self, component: ComponentSpec) -> ComponentSpec:
        """The component as routes should see it: a new revision that is complete is routed to
        before the record names it, so that whoever reads the record finds it serving."""
        rollout = self.rollouts.get(component.name)
        if rollout is None or not rollout.complete or component.target is None:
            return component
        return replace(component, active=component.target, target=None)

    def instance_ids(self) -> set[str]:
        return {one.instance_id for kept in self.instances.values() for one in kept}

    @property
    def serves(self) -> bool:
        """Whether any of its copies that answer callers is ready."""
        return any(
            copy.phase == READY
            for variant, kept in self.copies.items()
            if variant not in self.shadows
            for copy in kept
        )

    def reaches(self, counts: Collection[tuple[str, str]]) -> bool:
        """Whether these counts are reached: (variant, component), "" for instances."""
        return all(self._reaches(desired, counts) for desired in self.specs)

    def is_whole(self, desired: VariantCapacitySpec) -> bool:
        """Whether one variant has all its instances and copies."""
        return self._running(desired) >= desired.instances and self.reaches_copies(desired)

    def _reaches(self, desired: VariantCapacitySpec, counts: Collection[tuple[str, str]]) -> bool:
        if self._running(desired) < desired.instances and (desired.name, "") in counts:
            return False
        return self.reaches_copies(desired, counts)

    def _running(self, desired: VariantCapacitySpec) -> int:
        return sum(one.phase == RUNNING for one in self.instances[desired.name])

    def reaches_copies(
        self, desired: VariantCapacitySpec, counts: Collection[tuple[str, str]] | None = None
    ) -> bool:
        """As `reaches`, but only for one variant's copies; None: for all counts."""
        ready: dict[str, int] = {}
        for copy in self.copies[desired.name]:
            ready[copy.component] = ready.get(copy.component, 0) + (copy.phase == READY)
        return all(
            ready.get(one.name, 0) >= one.copies
            or (counts is not None and (desired.name, one.name) not in counts)
            for one in desired.components
        )


def keep_up(
    deployment: DeploymentSpec,
    components: Iterable[ComponentSpec],
    observed: EndpointObserved,
    *,
    now: float,
    spec: ReconcileSpec,
    start_reason: str,
    first: bool,
) -> GenerationObserved:
    """Starts and loads what is missing.

    Instances of shadow variants start once their generation serves, and only while its production
    variants lack none: so they never take the room that these need, and no failure of theirs
    belongs to a rollout.

    Args:
        deployment: the generation.
        components: those that should be on it.
        observed: the snapshot.
        now: seconds.
        spec: times and bounds.
        start_reason: for an instance that replaces none.
        first: the generation has not served yet.
    """
    wanted = tuple(components)
    mine = [one for one in observed.copies if one.generation == deployment.generation]
    riding = [one for one in mine if one.base_copy]
    placed = tuple(one for one in observed.copies if not one.base_copy)
    if first:
        deployment = replace(deployment, shadows=())
    turn = _GenerationTurn(replace(observed, copies=placed), now, spec)
    turn.held.shadows = frozenset(one.name for one in deployment.shadows)
    found: dict[str, tuple[ComponentCopiesSpec, ...]] = {}
    for component in wanted:
        if component.base:
            continue
        copies = adapters.as_ready(component, wanted, mine)
        found_so_far = observed.component_agreements.get(component.name)
        rollout = roll_out(component, copies, now=now, agreement=found_so_far)
        turn.held.rollouts[component.name] = rollout
        found[component.variant] = found.get(component.variant, ()) + rollout.specs
        turn.wake(rollout.next_deadline)
    variants = {one.name: one for one in deployment.hosted}
    turn.held.specs = tuple(
        turn.managed(variants[desired.name], desired, first=first)
        for desired in capacity_specs(deployment, found)
    )
    for desired in turn.held.specs:
        follows = variants[desired.name].managed is not None and not first
        turn.keep(desired, COPIES_NEED_MORE if follows else start_reason)
    turn.let_production_first()
    for component in wanted:
        if component.base:
            turn.adapt(component, riding, deployment.generation)
    turn.settle(riding)
    return turn.held


class _GenerationTurn:
    """One call of `keep_up`."""

    def __init__(self, observed: EndpointObserved, now: float, spec: ReconcileSpec) -> None:
        self._observed = observed
        self._now = now
        self._spec = spec
        self.held = GenerationObserved()

    def wake(self, *deadlines: float | None) -> None:
        self.held.next_deadline = earliest(self.held.next_deadline, *deadlines)

    def managed(
        self, variant: VariantSpec, desired: VariantCapacitySpec, *, first: bool
    ) -> VariantCapacitySpec:
        """Sets the number of instances that the copies need, where it follows them."""
        if variant.managed is None:
            return desired
        decision = managed_instances.decide(
            variant.managed,
            desired,
            capacity.alive(desired, self._observed),
            self._observed,
            now=self._now,
            instances_min=variant.instance_count if first else 0,
        )
        self.wake(decision.next_deadline)
        if decision.reason in RELEASES:
            self.held.releases[desired.name] = decision.reason
        return replace(desired, instances=decision.instances)

    def keep(self, desired: VariantCapacitySpec, start_reason: str) -> None:
        """Decides the instances of one variant, and the copies on them."""
        instances = capacity.decide(
            desired, self._observed, now=self._now, spec=self._spec, start_reason=start_reason
        )
        copies = placement.decide(
            desired, instances.kept, self._observed, now=self._now, spec=self._spec
        )
        held = self.held
        held.instances[desired.name] = instances.kept
        held.copies[desired.name] = copies.kept
        held.retires += copies.retires
        held.actions += [*copies.loads, *copies.refusals, *instances.refusals, *instances.starts]
        self.wake(instances.next_deadline, copies.next_deadline)
        if held.releases.get(desired.name) == CONSOLIDATED and not held.reaches_copies(desired):
            self._hold_back(desired)

    def let_production_first(self) -> None:
        """Starts no instance of a shadow variant while production lacks any."""
        held = self.held
        if all(held.is_whole(one) for one in held.specs if one.name not in held.shadows):
            return
        held.actions = [
            one
            for one in held.actions
            if not (isinstance(one, StartInstance) and one.variant in held.shadows)
        ]

    def adapt(
        self, adapter: ComponentSpec, riding: Collection[CopyObserved], generation: int
    ) -> None:
        """Decides one adapter on the copies of its base that stay."""
        held = self.held
        staying = held.instance_ids()
        kept = held.copies.get(adapter.variant, ())
        decision = adapters.decide(
            adapter,
            [one for one in kept if component_of(one.component) == adapter.base],
            [
                one
                for one in riding
                if component_of(one.component) == adapter.name and one.instance_id in staying
            ],
            self._observed.failures,
            generation=generation,
            now=self._now,
            spec=self._spec,
            agreement=self._observed.component_agreements.get(adapter.name),
        )
        if adapter.variant in held.copies:
            held.copies[adapter.variant] += decision.kept
        held.rollouts[adapter.name] = decision.rollout
        held.actions += decision.loads
        held.retires += decision.retires
        held.adapters_missing |= decision.missing and adapter.status in _SETTLED
        self.wake(decision.rollout.next_deadline)

    def settle(self, riding: Collection[CopyObserved]) -> None:
        """Lets adapters leave before their base does, or with it."""
        held = self.held
        gone = adapters.without_base(riding, {one.copy: one for one in self._observed.copies})
        ended = {one.copy for one in gone}
        held.copies = {
            variant: tuple(one for one in kept if one.copy not in ended)
            for variant, kept in held.copies.items()
        }
        held.retires = [
            *gone,
            *(one for one in adapters.held_back(held.retires, riding) if one.copy not in ended),
        ]

    def _hold_back(self, desired: VariantCapacitySpec) -> None:
        """Copies to be removed serve until their replacements on other instances are ready."""
        staying = {one.instance_id for one in self.held.instances[desired.name]}
        going = [
            one for one in capacity.alive(desired, self._observed) if one.instance_id not in staying
        ]
        ids = {one.instance_id for one in going}
        names = {one.name for one in desired.components}
        self.held.instances[desired.name] += tuple(going)
        self.held.copies[desired.name] += tuple(
            copy
            for copy in self._observed.copies
            if copy.instance_id in ids
            and copy.generation == desired.generation
            and copy.component in names
        )
