"""What the control plane observes of one endpoint: instances, copies, failures, routes, history.

It records and counts; `core/endpoint/reconcile.py` decides from it. Nothing here survives the
process but the history of the endpoint's own state: after a start all else is observed anew.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.store.activities import ACTIVITIES_MAX, Activity
from penstock.core.deployment.capacity_spec import component_of
from penstock.core.deployment.deployment import DeploymentSpec, EndpointRoutes, VariantSpec
from penstock.core.deployment.endpoint_state import (
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    EndpointObserved,
    EndpointSpec,
    PoolShortage,
    SlotFailure,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, failure_count
from penstock.core.endpoint import instance_pools
from penstock.core.rollout.agreement import AgreementCounts

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for an instance of a variant, or for a copy of one of its components."""

    variant: str
    generation: int
    ordinal: int
    component: str = ""  #: empty: the slot of an instance


class EndpointLedger:
    """The ledger of one endpoint."""

    def __init__(
        self, desired: EndpointSpec, spec: ReconcileSpec, before: Iterable[Activity] = ()
    ) -> None:
        """`before`: activities of servers before this one, oldest first."""
        self.desired = desired
        self.instances: dict[str, InstanceEntry] = {}
        self.copies: dict[int, CopyEntry] = {}
        self.published: EndpointRoutes | None = None
        self.activities: deque[Activity] = deque(before, maxlen=ACTIVITIES_MAX)
        #: variant -> when an instance was last removed because no copy needed it
        self.released: dict[str, float] = {}
        self._failures: dict[Slot, SlotFailure] = {}
        self._shortages: dict[tuple[str, int, str], PoolShortage] = {}
        self._spec = spec

    @property
    def guest(self) -> bool:
        """Whether the endpoint's instances are guests, which take only what others leave free."""
        return any(one.guest for one in self.desired.generations)

    def record(self, at: float, what: str, reason: str, detail: str = "") -> None:
        """Adds to the history. An entry equal to the last one is not added again."""
        last = self.activities[-1] if self.activities else None
        if last is None or (last.what, last.reason, last.detail) != (what, reason, detail):
            self.activities.append(Activity(at=at, what=what, reason=reason, detail=detail))
            _log.info("%s: %s (%s) %s", self.desired.endpoint, what, reason, detail)

    def take_spec(self, desired: EndpointSpec) -> None:
        """Takes a new spec. Slots that it changes may try again, and generations and components
        that are gone are forgotten. A change of one component does not affect another's."""
        if desired == self.desired:
            return
        former, self.desired = self.desired, desired
        named = replace(former, served_names=desired.served_names, progress=desired.progress)
        if named == desired:
            return  # another name changes no slot, nor does a step of a rollout
        concerned = {one.name for one in set(former.components) ^ set(desired.components)}
        every = replace(former, components=()) != replace(desired, components=())
        generations = {one.generation for one in desired.generations}
        there = {one.name for one in desired.components}
        kept: dict[Slot, SlotFailure] = {}
        for slot, failure in self._failures.items():
            component = component_of(slot.component)
            if slot.generation not in generations or (component and component not in there):
                continue
            fresh = every or not component or component in concerned
            kept[slot] = replace(failure, count=0, permanent=False) if fresh else failure
        self._failures = kept
        if every:
            self._shortages.clear()

    def deployment(self, generation: int) -> DeploymentSpec:
        """Raises `AssertionError` if the generation is not part of the spec (any more)."""
        for one in self.desired.generations:
            if one.generation == generation:
                return one
        raise AssertionError(f"{self.desired.endpoint} has no generation {generation}")

    def variant(self, name: str, generation: int) -> VariantSpec:
        """As `deployment`, for a variant."""
        variants = self.deployment(generation).hosted
        return next(one for one in variants if one.name == name)

    def copies_on(self, instance_id: str) -> list[CopyEntry]:
        return [copy for copy in self.copies.values() if copy.instance_id == instance_id]

    def remove_instance(self, instance_id: str) -> None:
        """Removes an instance and the copies on it."""
        self.instances.pop(instance_id, None)
        for copy in self.copies_on(instance_id):
            del self.copies[copy.copy]

    def fail_instance(
        self,
        entry: InstanceEntry,
        message: str,
        *,
        permanent: bool,
        now: float,
        reason: str = "",
    ) -> None:
        """Records the failure of an instance's slot; the caller cleans up. A lack of room is a
        failure of its pool only: another pool may have room."""
        kind = entry.kind.name
        if reason in instance_pools.SHORTAGES and self._has_pools(entry.variant, entry.generation):
            self.short(entry.variant, entry.generation, kind, reason, message, now=now)
            return
        since = [
            copy.ready_since
            for copy in self.copies_on(entry.instance_id)
            if copy.ready_since is not None
        ]
        slot = Slot(variant=entry.variant, generation=entry.generation, ordinal=entry.ordinal)
        ready_s = now - min(since) if since else 0.0
        self.fail(
            slot, message, permanent=permanent, ready_s=ready_s, now=now, reason=reason,
            guest=entry.guest,
        )  # fmt: skip

    def short(
        self,
        variant: str,
        generation: int,
        instance_type: str,
        reason: str,
        message: str,
        *,
        now: float,
        waits: bool = False,
    ) -> None:
        """Records that one of several pools of a variant can't give an instance now."""
        key = variant, generation, instance_type
        found = PoolShortage(
            variant=variant,
            generation=generation,
            instance_type=instance_type,
            count=1,
            at=now,
            reason=reason,
            message=message,
            waits=waits,
        )
        former = self._shortages.get(key)
        self._shortages[key] = instance_pools.shortage_of(former, found, spec=self._spec)

    def had(self, entry: InstanceEntry) -> None:
        """An instance runs, so its pool is not short of instances."""
        key = entry.variant, entry.generation, entry.kind.name
        former = self._shortages.get(key)
        if former is not None and former.at < entry.asked_at:
            del self._shortages[key]

    def _has_pools(self, variant: str, generation: int) -> bool:
        return any(
            one.name == variant and one.pools
            for deployment in self.desired.generations
            if deployment.generation == generation
            for one in deployment.hosted
        )

    def fail_copy(
        self, copy: CopyEntry, message: str, *, permanent: bool, now: float, reason: str = ""
    ) -> None:
        """As `fail_instance`, for a copy whose instance goes on without it."""
        slot = Slot(
            variant=copy.variant,
            generation=copy.generation,
            component=copy.component.name,
            ordinal=copy.ordinal,
        )
        ready_s = 0.0 if copy.ready_since is None else now - copy.ready_since
        self.fail(slot, message, permanent=permanent, ready_s=ready_s, now=now, reason=reason)

    def fail(
        self,
        slot: Slot,
        message: str,
        *,
        permanent: bool,
        now: float,
        ready_s: float = 0.0,
        refused: bool = False,
        reason: str = "",
        guest: bool = False,
    ) -> None:
        former = self._failures.get(slot)
        self._failures[slot] = SlotFailure(
            variant=slot.variant,
            generation=slot.generation,
            component=slot.component,
            ordinal=slot.ordinal,
            count=failure_count(former, ready_s=ready_s, spec=self._spec, guest=guest),
            at=now,
            message=message,
            permanent=permanent,
            refused=refused,
            reason=reason,
        )

    def last_failure(self, variant: str) -> str:
        """Why an instance or a copy of the variant failed last; empty: none has failed."""
        failures = (one for one in self._failures.values() if one.variant == variant)
        last = max(failures, key=lambda one: (one.generation, one.at), default=None)
        return "" if last is None else last.message

    def publish(self, routes: EndpointRoutes | None) -> None:
        """Remembers the published routes. A copy that was once in them may have requests in
        flight."""
        self.published = routes
        if routes is None:
            return
        for variant in routes.hosted:
            for route in variant.copies:
                if route.copy in self.copies:
                    self.copies[route.copy].routed = True

    def observed(
        self,
        outstanding: Callable[[int], int] = lambda copy: 0,
        alarms: Mapping[str, str] | None = None,
        agreement: AgreementCounts | None = None,
        component_agreements: Mapping[str, AgreementCounts] | None = None,
        target_agreements: Mapping[str, AgreementCounts] | None = None,
    ) -> EndpointObserved:
        """`outstanding`: copy -> its requests in flight now; `alarms`: name -> state, of those that
        its rollouts watch; `agreement`: what its rollout's comparisons found;
        `component_agreements`, `target_agreements`: the same by component and by target model."""
        return EndpointObserved(
            instances=tuple(entry.observed() for entry in self.instances.values()),
            copies=tuple(
                copy.observed(outstanding(copy.copy), instance_type=self._type_of(copy.instance_id))
                for copy in self.copies.values()
            ),
            failures=tuple(self._failures.values()),
            published=self.published,
            released=tuple(self.released.items()),
            shortages=tuple(self._shortages.values()),
            alarms=alarms or {},
            agreement=agreement,
            component_agreements=component_agreements or {},
            target_agreements=target_agreements or {},
        )

    def _type_of(self, instance_id: str) -> str:
        entry = self.instances.get(instance_id)
        return entry.kind.name if entry is not None else ""

    def awaits_copy(self) -> bool:
        """Whether an instance is about to be told what to load. An instance for inference
        components may stay empty for any time."""
        takes = any(one.takes_components for one in self.desired.generations)
        return not takes and any(entry.phase == RUNNING and not on for entry, on in self.held())

    def component_counts(self) -> dict[str, int]:
        """Component -> its ready copies, in the generation that is shown."""
        return {name: sum(types.values()) for name, types in self.component_types().items()}

    def component_types(self) -> dict[str, dict[str, int]]:
        """Component -> instance type -> ready copies, as `component_counts`."""
        deployment = self.desired.shown
        counts: dict[str, dict[str, int]] = {one.name: {} for one in self.desired.components}
        for copy in self.copies.values():
            name = component_of(copy.component.name)
            if (
                name in counts
                and copy.phase == READY
                and deployment is not None
                and copy.generation == deployment.generation
            ):
                kind = self._type_of(copy.instance_id)
                counts[name][kind] = counts[name].get(kind, 0) + 1
        return counts

    def kept_counts(self) -> dict[str, int]:
        """Variant -> instances that exist or are starting and will stay."""
        deployment = self.desired.shown
        counts: dict[str, int] = {}
        for entry in self.instances.values():
            if (
                entry.phase in (STARTING, RUNNING)
                and not entry.leaving
                and deployment is not None
                and entry.generation == deployment.generation
            ):
                counts[entry.variant] = counts.get(entry.variant, 0) + 1
        return counts

    def ready_counts(self) -> dict[str, int]:
        """Variant -> instances that serve now, in the generation that is shown. An instance for
        inference components serves once it runs."""
        return {name: sum(types.values()) for name, types in self.pool_counts().items()}

    def pool_counts(self) -> dict[str, dict[str, int]]:
        """Variant -> instance type -> instances that serve now, as `ready_counts`."""
        deployment = self.desired.shown
        if deployment is None:
            return {}
        ready = {variant.name for variant in deployment.variants if variant.model is None}
        serving = {copy.instance_id for copy in self.copies.values() if copy.phase == READY}
        counts: dict[str, dict[str, int]] = {one.name: {} for one in deployment.hosted}
        for entry in self.instances.values():
            if (
                entry.phase == RUNNING
                and entry.generation == deployment.generation
                and (entry.instance_id in serving or entry.variant in ready)
            ):
                of_type = counts.setdefault(entry.variant, {})
                of_type[entry.kind.name] = of_type.get(entry.kind.name, 0) + 1
        return counts

    def held(self) -> Iterator[tuple[InstanceEntry, list[CopyEntry]]]:
        """Every instance with the copies on it."""
        for entry in self.instances.values():
            yield entry, self.copies_on(entry.instance_id)

    def ready_in_s(
        self, variant: str, component: str, fastest_s: float, *, now: float
    ) -> float | None:
        """When a copy can be ready at the earliest, in s from now; None: not known.

        It is not known for a copy that its instance is restarting, or that the gateway can't reach
        for a moment: no new start is under way for it.

        Args:
            fastest_s: duration of the fastest of the last starts.
        """
        copies = [
            one
            for one in self.copies.values()
            if (one.variant, component_of(one.component.name)) == (variant, component)
        ]
        if any(one.phase in (READY, LOST) for one in copies):
            return None
        asked_at = [_asked_at(one) for one in copies if one.phase == LOADING]
        asked_at += [
            one.asked_at
            for one in self.instances.values()
            if one.variant == variant and one.phase == STARTING
        ]
        return max(0.0, min(asked_at, default=now) + fastest_s - now)


def _asked_at(copy: CopyEntry) -> float:
    """When the copy was requested, or its instance if that was started for it."""
    return copy.asked_at if copy.came_with is None else copy.came_with.asked_at
