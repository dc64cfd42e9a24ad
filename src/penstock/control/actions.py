"""Begins what reconciliation asks for: an action becomes an entry in the ledger and an operation.

What an action leaves to be seen is in the ledger when it returns, so the next decision sees it.
"""

from __future__ import annotations

from typing import Final

from penstock.clock import Clock
from penstock.control.entries import CopyEntry, InstanceEntry
from penstock.control.ledger import EndpointLedger, Slot
from penstock.control.operations import Operations
from penstock.control.room import Room
from penstock.core.components.spec import component_of, copies_wish
from penstock.core.deployment import DeploymentSpec
from penstock.core.endpoint_state import (
    LOADING,
    RELEASES,
    STARTING,
    Action,
    DrainCopy,
    EndpointDesired,
    FinishDelete,
    ForgetComponent,
    LoadCopy,
    PublishRoutes,
    RefuseCopy,
    SetComponent,
    SetStatus,
    StartInstance,
    StopInstance,
    UnloadCopy,
    WithdrawRoutes,
)
from penstock.core.room import NO_ROOM, WAIT
from penstock.core.wish import ComponentWish, wished
from penstock.errors import CallerError
from penstock.fleet.catalogue import InstanceCatalogue

#: What became of a start.
BEGUN: Final = "begun"
WAITS: Final = "waits"  #: for room on the machine
FAILED: Final = "failed"  #: its slot has; decide again


class Actions:
    """On the instances and copies of one server."""

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
        """Finds room and starts: begun | waits | failed."""
        desired = ledger.desired
        slot = Slot(variant=action.variant, generation=action.generation, ordinal=action.ordinal)
        now, wall = self._clock.monotonic(), self._clock.wall()
        try:
            kind = self._catalogue.resolve(_instance_type(desired, action))
        except CallerError as error:
            ledger.fail(slot, f"{error.message}. {error.hint}", permanent=True, now=now)
            return FAILED
        room = self._room.for_start(kind)
        where = f"{action.variant} generation {action.generation} slot {action.ordinal}"
        if room.outcome == WAIT:
            ledger.record(wall, f"wait for room: {where}", room.reason)
            return WAITS
        if room.outcome == NO_ROOM:
            ledger.record(wall, f"no room: {where}", room.reason, room.message)
            ledger.fail(slot, room.message, permanent=True, now=now)
            return FAILED
        self._instance_last += 1
        name = f"{desired.endpoint}-{action.variant}-{action.generation}-{action.ordinal}"
        entry = InstanceEntry(
            instance_id=f"{name}-{self._instance_last}",
            variant=action.variant,
            generation=action.generation,
            ordinal=action.ordinal,
            kind=kind,
            phase=STARTING,
            since=None,
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
        component = _component_wish(ledger.desired, action, entry.variant)
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
        """The failure of its slot; decide again."""
        slot = Slot(
            variant=action.variant,
            generation=action.generation,
            component=action.component,
            ordinal=action.ordinal,
        )
        now = self._clock.monotonic()
        ledger.fail(slot, action.failure, permanent=True, now=now, refused=True)

    def _note_release(self, ledger: EndpointLedger, entry: InstanceEntry, reason: str) -> None:
        """An instance whose copies are served elsewhere goes, and does not count any more."""
        if reason in RELEASES and not entry.leaving:
            entry.leaving = True
            ledger.released[entry.variant] = self._clock.monotonic()


def told(action: Action) -> tuple[str, str, str]:
    """(what, reason, detail) for the history."""
    match action:
        case LoadCopy(instance_id=where, component=name):
            what = f"load copy of {name}" if component_of(name) else "load copy"
            return what, action.reason, where
        case PublishRoutes(routes=routes):
            copies = ", ".join(
                f"{v.component or v.name}: {len(v.copies)} copies" for v in routes.variants
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
        case SetComponent(component=component, status=status):
            return f"component {component} {status}", action.reason, action.failure_reason
        case ForgetComponent(component=component):
            return f"forget component {component}", action.reason, ""
        case WithdrawRoutes():
            return "withdraw routes", action.reason, ""
        case FinishDelete():
            return "forget endpoint", action.reason, ""
        case StartInstance():
            return "start instance", action.reason, ""


def _deployment(desired: EndpointDesired, generation: int) -> DeploymentSpec:
    for deployment in (desired.active, desired.target):
        if deployment is not None and deployment.generation == generation:
            return deployment
    raise AssertionError(f"{desired.endpoint} has no generation {generation}")


def _instance_type(desired: EndpointDesired, action: StartInstance) -> str:
    variants = _deployment(desired, action.generation).variants
    return next(one.instance_type for one in variants if one.name == action.variant)


def _component_wish(desired: EndpointDesired, action: LoadCopy, variant: str) -> ComponentWish:
    for component in desired.components:
        for revision in component.revisions():
            wish = copies_wish(component, revision, component.copies)
            if wish.name == action.component:
                return wish
    wishes = wished(_deployment(desired, action.generation))
    return next(one for one in wishes if one.name == variant).component(action.component)
