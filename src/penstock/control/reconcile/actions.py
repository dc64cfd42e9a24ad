"""Carries out reconciliation's actions: each becomes an entry in the ledger and an operation.

The visible effect of an action is in the ledger when its method returns, so the next decision sees
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.clock import Clock
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_operations import Operations
from penstock.control.instances.ledger import EndpointLedger, Slot
from penstock.control.instances.room import Room
from penstock.core.deployment.capacity_spec import (
    ComponentCopiesSpec,
    capacity_specs,
    component_of,
    copies_spec,
)
from penstock.core.deployment.endpoint_state import (
    LOADING,
    RELEASES,
    STARTING,
    Action,
    DrainCopy,
    FinishDelete,
    ForgetComponent,
    LoadCopy,
    PublishRoutes,
    RefuseCopy,
    RefuseInstance,
    SetComponent,
    SetRollout,
    SetStatus,
    SetTarget,
    StartInstance,
    StopInstance,
    UnloadCopy,
    WithdrawRoutes,
)
from penstock.core.endpoint.instance_pools import passes_over
from penstock.core.machine.room import NO_ROOM, WAIT
from penstock.errors import CallerError
from penstock.fleet.catalogue import InstanceCatalogue

#: Results of a start.
BEGUN: Final = "begun"
WAITS: Final = "waits"  #: there is no room on the machine yet
FAILED: Final = "failed"  #: its slot has failed; decide again


class Actions:
    """Actions on the instances and copies of one server."""

    def __init__(
        self, *, work: Operations, room: Room, catalogue: InstanceCatalogue, clock: Clock
    ) -> None:
        self._work = work
        self._room = room
        self._catalogue = catalogue
        self._clock = clock
        self._instance_last = 0
        self._copy_last = 0

    def start(self, ledger: EndpointLedger, action: StartInstance) -> str:
        """Finds room and starts an instance: begun | waits | failed."""
        desired = ledger.desired
        slot = Slot(variant=action.variant, generation=action.generation, ordinal=action.ordinal)
        now, wall = self._clock.monotonic(), self._clock.wall()
        variant = ledger.variant(action.variant, action.generation)
        try:
            kind = self._catalogue.resolve(action.instance_type or variant.instance_type)
        except CallerError as error:
            story = f"{error.message}. {error.hint}"
            ledger.fail(slot, story, permanent=True, now=now, reason=error.code)
            return FAILED
        room = self._room.for_start(kind, guest=variant.guest)
        where = f"{action.variant} generation {action.generation} slot {action.ordinal}"
        if action.instance_type and passes_over(room):
            ledger.record(wall, f"no {kind.name} for {where}", room.reason, room.message)
            ledger.short(
                action.variant,
                action.generation,
                kind.name,
                room.reason,
                room.message,
                now=now,
                waits=room.outcome == WAIT,
            )
            return FAILED
        if room.outcome == WAIT:
            ledger.record(wall, f"wait for room: {where}", room.reason)
            return WAITS
        if room.outcome == NO_ROOM:
            ledger.record(wall, f"no room: {where}", room.reason, room.message)
            ledger.fail(slot, room.message, permanent=True, now=now, reason=room.reason)
            return FAILED
        self._instance_last += 1
        whose = desired.endpoint.replace("/", "-")  # the name becomes part of file names
        name = f"{whose}-{action.variant}-{action.generation}-{action.ordinal}"
        entry = InstanceEntry(
            instance_id=f"{name}-{self._instance_last}",
            variant=action.variant,
            generation=action.generation,
            ordinal=action.ordinal,
            kind=kind,
            phase=STARTING,
            since=None,
            shadow=variant in ledger.deployment(action.generation).shadows,
            guest=variant.guest,
            cores_max=variant.cores_max,
        )
        ledger.record(wall, f"start {kind.name} for {where}", action.reason, entry.instance_id)
        self._work.instances.start(ledger, entry)
        return BEGUN

    def stop(self, ledger: EndpointLedger, action: StopInstance) -> None:
        entry = ledger.instances[action.instance_id]
        self._note_release(ledger, entry, action.reason)
        if action.failure:
            self._work.instances.give_up(
                ledger, entry, action.failure, action.reason, permanent=action.permanent
            )
        else:
            self._work.instances.stop(ledger, entry)

    def load(self, ledger: EndpointLedger, action: LoadCopy) -> None:
        entry = ledger.instances[action.instance_id]
        component = _component_spec(ledger, action, entry)
        self._copy_last += 1
        copy = CopyEntry(
            copy=self._copy_last,
            instance_id=entry.instance_id,
            variant=entry.variant,
            generation=action.generation,
            component=component,
            ordinal=action.ordinal,
            phase=LOADING,
            since=None,
            base_copy=action.base_copy,
        )
        self._work.copies.load(ledger, entry, copy)

    def drain(self, ledger: EndpointLedger, action: DrainCopy) -> None:
        self._note_release(ledger, ledger.instances[action.instance_id], action.reason)
        self._work.copies.drain(ledger, ledger.copies[action.copy])

    def unload(self, ledger: EndpointLedger, action: UnloadCopy) -> None:
        copy = ledger.copies[action.copy]
        if action.failure:
            entry = ledger.instances[action.instance_id]
            self._work.copies.give_up(
                ledger, entry, copy, action.failure, action.reason, permanent=action.permanent
            )
        else:
            self._work.copies.unload(ledger, copy)

    def refuse(self, ledger: EndpointLedger, action: RefuseCopy) -> None:
        """Records a failure of the copy's slot; decide again."""
        slot = Slot(
            variant=action.variant,
            generation=action.generation,
            component=action.component,
            ordinal=action.ordinal,
        )
        now = self._clock.monotonic()
        ledger.fail(slot, action.failure, permanent=True, now=now, refused=True)

    def refuse_instance(self, ledger: EndpointLedger, action: RefuseInstance) -> None:
        """As `refuse`, for an instance."""
        slot = Slot(variant=action.variant, generation=action.generation, ordinal=action.ordinal)
        now = self._clock.monotonic()
        ledger.fail(slot, action.failure, permanent=True, now=now, reason=action.reason)

    def _note_release(self, ledger: EndpointLedger, entry: InstanceEntry, reason: str) -> None:
        """Records that an instance is removed because its copies are served elsewhere."""
        if reason in RELEASES and not entry.leaving:
            entry.leaving = True
            ledger.released[entry.variant] = self._clock.monotonic()


def told(action: Action) -> tuple[str, str, str]:
    """(what, reason, detail) of an action, for the history."""
    match action:
        case LoadCopy(instance_id=where, component=name):
            what = f"load copy of {name}" if component_of(name) else "load copy"
            return what, action.reason, where
        case PublishRoutes(routes=routes):
            copies = ", ".join(
                f"{'new ' if v.incoming else ''}{v.component or v.name}: {len(v.copies)} copies"
                for v in routes.hosted
            )
            return "publish routes", action.reason, copies
        case DrainCopy(instance_id=where):
            return "drain copy", action.reason, where
        case UnloadCopy(instance_id=where):
            return "unload copy", action.reason, where
        case RefuseCopy(component=component, ordinal=ordinal):
            what = f"no room: copy {ordinal} of {component} generation {action.generation}"
            return what, action.reason, action.failure
        case StopInstance(instance_id=where):
            return "stop instance", action.reason, where
        case SetStatus(status=status):
            return f"status {status}", action.reason, action.failure_reason
        case SetRollout(progress=progress):
            what = f"rollout {progress.stage}: {progress.share:.0%} of the traffic"
            of = f"generation {action.generation}"
            return what, action.reason, f"{of}: {action.why}" if action.why else of
        case SetTarget(served=served):
            if served.progress is None:
                what = f"model {served.target}: answered by {served.serves}"
                return what, action.reason, action.why
            share = f"{served.progress.share:.0%} of the requests"
            what = f"model {served.target} {served.progress.stage}: {share} to {served.incoming}"
            return what, action.reason, action.why
        case SetComponent(component=component, status=status):
            detail = action.failure_reason or action.why
            return f"component {component} {status}", action.reason, detail
        case ForgetComponent(component=component):
            return f"forget component {component}", action.reason, ""
        case WithdrawRoutes():
            return "withdraw routes", action.reason, ""
        case FinishDelete():
            return "forget endpoint", action.reason, ""
        case StartInstance():
            return "start instance", action.reason, ""
        case RefuseInstance(variant=variant, ordinal=ordinal):
            what = f"no room: {variant} generation {action.generation} slot {ordinal}"
            return what, action.reason, action.failure


def _component_spec(
    ledger: EndpointLedger, action: LoadCopy, entry: InstanceEntry
) -> ComponentCopiesSpec:
    """For a variant's own model: the build that instances of this type load."""
    for component in ledger.desired.components:
        for revision in component.revisions():
            desired = copies_spec(component, revision, component.copies)
            if desired.name == action.component:
                return desired
    specs = capacity_specs(ledger.deployment(action.generation))
    desired = next(one for one in specs if one.name == entry.variant).component(action.component)
    variant = ledger.variant(entry.variant, action.generation)
    model = variant.model_on(entry.kind.name)
    return replace(desired, model=model) if desired.model == variant.model and model else desired
