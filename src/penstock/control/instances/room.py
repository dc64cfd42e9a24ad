"""Room on the machine: what `core/machine/room.py` decides with, and who waits for it.

An instance asks twice: at its start, and when the need of its model is known, before it is loaded.
Nothing is awaited between what was observed, the decision and its being written to the ledger, so
no two are given the same room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from penstock.control.instances.entries import CopyEntry, InstanceEntry, placed
from penstock.core.machine.room import (  # fmt: skip
    NO_ROOM,
    NOMINAL,
    PLACED,
    STARTING,
    WAIT,
    InstanceNeed,
    PlacedInstance,
    RoomDecision,
    decide,
)
from penstock.core.models.memory_need import START_BYTES, MemoryEstimate
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType, SpareObserved

#: Other programs end without telling us.
_ASK_AGAIN_S: Final = 2.0


class Room:
    """One machine's. `held` are all instances on it with their copies; `available_bytes` asks the
    machine."""

    def __init__(
        self,
        machine: ComputeResources,
        held: Callable[[], Iterable[tuple[InstanceEntry, Sequence[CopyEntry]]]],
        available_bytes: Callable[[], int | None],
        spares: Callable[[], Sequence[SpareObserved]] = tuple,
        end_guest: Callable[[str, str], None] = lambda instance_id, reason: None,
        type_limits: Mapping[str, int] | None = None,
    ) -> None:
        """`spares`: processes that stand ready to become instances, the next to be taken first.
        `end_guest` ends an instance at once; from then on it is seen to be leaving. `type_limits`:
        instances that there may be of a type."""
        self._type_limits = type_limits or {}
        self._end_guest = end_guest
        self._spares = spares
        self._machine = machine
        self._held = held
        self._available_bytes = available_bytes
        self._waiting: list[asyncio.Future[None]] = []
        self._starts_wait = False  #: one that is no guest's, since the last change
        self._loads_wait: set[int] = set()  #: copies that wait for room, and are no guests'

    def for_start(self, kind: InstanceType, *, guest: bool = False) -> RoomDecision:
        """Whether an instance of that type may start. What its model needs is not known yet."""
        need = InstanceNeed(
            instance_type=kind.name,
            set_aside=ComputeResources(
                memory_bytes=kind.resources.memory_bytes if kind.promised else START_BYTES,
                accelerators=kind.resources.accelerators,
            ),
            promised=kind.promised,
            basis=NOMINAL if kind.promised else STARTING,
            guest=guest,
            type_limit=self._type_limits.get(kind.name),
        )
        others = [placed(*one) for one in self._held()]
        spares = list(self._spares())
        if spares and spares[0].ready and not guest:
            del spares[0]  # it becomes the very instance that is asked for
        decision = decide(
            self._machine,
            others + _spares_placed(spares),
            need,
            others_wait=self._starts_wait or bool(self._loads_wait),
        )
        self._starts_wait |= decision.outcome == WAIT and not guest
        return self._with_stops(decision)

    async def for_load(
        self,
        entry: InstanceEntry,
        copy: CopyEntry,
        need: MemoryEstimate,
        *,
        measure: Callable[[], Awaitable[None]],
        waits: Callable[[RoomDecision], None],
    ) -> RoomDecision:
        """Sets aside what the model needs, perhaps after a while: `placed`, or `no-room`.

        `measure` asks all instances what they take: nobody is refused for an old figure. `waits` is
        called with the reason whenever there may be room later.
        """
        wanted = _need_to_load(entry, need)
        measured = False
        try:
            while True:
                decision = self._decide(entry, copy, wanted)
                if decision.outcome == PLACED:
                    copy.need_bytes = wanted.expected_bytes
                    return decision
                if decision.outcome == NO_ROOM and measured:
                    return decision
                if decision.outcome == NO_ROOM:
                    await measure()
                    measured = True
                    continue
                measured = False
                copy.waits_for_room = True
                if not entry.guest:
                    self._loads_wait.add(copy.copy)
                waits(decision)
                await self._change()
        finally:
            copy.waits_for_room = False
            self._loads_wait.discard(copy.copy)

    def changed(self) -> None:
        """An instance has ended, or a load: whoever waits asks again."""
        self._starts_wait = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _decide(self, entry: InstanceEntry, copy: CopyEntry, wanted: InstanceNeed) -> RoomDecision:
        """Beside the other instances, and what else is on this one."""
        beside = [
            (one, [other for other in copies if other is not copy]) for one, copies in self._held()
        ]
        others = [placed(one, copies) for one, copies in beside if one is not entry or copies]
        others += _spares_placed(self._spares())
        decision = decide(
            self._machine,
            others,
            wanted,
            available_bytes=self._available_bytes(),
            others_wait=self._starts_wait or bool(self._loads_wait),
        )
        return self._with_stops(decision)

    def _with_stops(self, decision: RoomDecision) -> RoomDecision:
        for instance_id in decision.stops:
            self._end_guest(instance_id, decision.reason)
        return decision

    async def _change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await asyncio.wait([future], timeout=_ASK_AGAIN_S)


def _spares_placed(spares: Iterable[SpareObserved]) -> list[PlacedInstance]:
    """What they take is set aside and taken, and no more will be."""
    return [
        PlacedInstance(
            instance_id=f"spare-{one.pid}",
            set_aside=ComputeResources(memory_bytes=one.memory_bytes),
            expected_bytes=one.memory_bytes,
            taken_bytes=one.memory_bytes,
        )
        for one in spares
    ]


def _need_to_load(entry: InstanceEntry, need: MemoryEstimate) -> InstanceNeed:
    """A model takes no more than its type allows, or it is ended. What a type has promised was set
    aside when the instance was placed."""
    kind, bytes_max = entry.kind, entry.kind.resources.memory_bytes
    expected_bytes = min(need.memory_bytes, bytes_max)
    return InstanceNeed(
        instance_type=kind.name,
        set_aside=ComputeResources(memory_bytes=0 if kind.promised else expected_bytes),
        expected_bytes=expected_bytes,
        least_bytes=need.least_bytes,
        bytes_max=bytes_max,
        promised=kind.promised,
        basis=need.basis,
        guest=entry.guest,
    )
