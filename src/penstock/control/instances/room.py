"""Room on the machine: observes it for `core/machine/room.py`, and queues who waits for room.

Room is requested twice for an instance: at its start, and before its model is loaded, when the need
of the model is known. Nothing is awaited between the observation, the decision and the ledger
entry, so the same room is never given twice.
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

#: Interval between tries, in s: other programs end without notice.
_ASK_AGAIN_S: Final = 2.0


class Room:
    """The room of one machine. `held` gives all instances with their copies; `available_bytes`
    gives the machine's free memory (None: unknown)."""

    def __init__(
        self,
        machine: ComputeResources,
        held: Callable[[], Iterable[tuple[InstanceEntry, Sequence[CopyEntry]]]],
        available_bytes: Callable[[], int | None],
        spares: Callable[[], Sequence[SpareObserved]] = tuple,
        end_guest: Callable[[str, str], None] = lambda instance_id, reason: None,
        type_limits: Mapping[str, int] | None = None,
    ) -> None:
        """`spares`: spare processes, the next to be used first. `end_guest` ends an instance at
        once, and the ledger shows it as leaving. `type_limits`: instance type -> highest number of
        its instances."""
        self._type_limits = type_limits or {}
        self._end_guest = end_guest
        self._spares = spares
        self._machine = machine
        self._held = held
        self._available_bytes = available_bytes
        self._waiting: list[asyncio.Future[None]] = []
        self._starts_wait = False  #: a start that is no guest's has waited since the last change
        #: copies that wait for room to load, without guests' copies
        self._loads_wait: set[int] = set()

    def for_start(self, kind: InstanceType, *, guest: bool = False) -> RoomDecision:
        """Whether an instance of this type may start. The need of its model is not known yet."""
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
            del spares[0]  # this spare becomes the instance that is started
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
        """Reserves what the model needs, after a wait if necessary: `placed`, or `no-room`.

        `measure` asks all instances for fresh figures, so that no old figure leads to a refusal.
        `waits` is called with the decision whenever there may be room later.
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
        """An instance or a load has ended: all that wait try again."""
        self._starts_wait = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _decide(self, entry: InstanceEntry, copy: CopyEntry, wanted: InstanceNeed) -> RoomDecision:
        """The decision, given the other instances and what else is on this one."""
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
    """Spares as placed instances: they take what is reserved for them, and will not take more."""
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
    """What a load adds to its instance. A model can't take more than its type allows: it would be
    ended. A type's promised memory was reserved when the instance was placed."""
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
