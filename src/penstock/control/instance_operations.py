"""Operations on instances: start, stop; and what is done when one ends by itself.

None of them decides anything: what came of them is in the ledger, and reconciliation looks again.
An instance that is to be stopped has what is under way on it and its copies cancelled first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.control.entries import InstanceEntry
from penstock.control.instance_client import InstanceClient, Json
from penstock.control.ledger import EndpointLedger
from penstock.control.operation_settings import OperationSettings
from penstock.control.ports import RoutePublisher
from penstock.control.under_way import UnderWay
from penstock.core.attempts import is_permanent
from penstock.core.endpoint_state import GONE, RUNNING, STARTING, STOPPING
from penstock.errors import PenstockError
from penstock.fleet.base import Fleet, InstanceSpec

#: Of an instance that has ended: what it said is in this machine's memory.
_LAST_WORDS_S_MAX: Final = 1.0


class InstanceOperations:
    """Of all endpoints of this server."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        publisher: RoutePublisher,
        settings: OperationSettings,
        under_way: UnderWay,
        on_event: Callable[[str, Json], None],
    ) -> None:
        """`on_event`: an instance's word about a copy on it."""
        self._fleet = fleet
        self._publisher = publisher
        self._settings = settings
        self._under_way = under_way
        self._on_event = on_event
        self._starts = asyncio.Semaphore(settings.starts_max)
        fleet.on_exit = self._on_exit

    def start(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        """A new entry, phase starting."""
        entry.asked_at = self._under_way.clock.monotonic()
        self._under_way.add(ledger, entry)
        self._under_way.enter(entry, STARTING, queued=True)
        self._under_way.begin(
            (entry.instance_id, None), self._start(ledger, entry), self._start_failed
        )

    def stop(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        self._under_way.enter(entry, STOPPING)
        under_way = self._under_way.take_tasks(entry.instance_id)
        self._under_way.aside(self._stop(ledger, entry, under_way))

    def give_up(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        message: str,
        reason: str,
        *,
        permanent: bool,
    ) -> None:
        """Records the slot's failure and stops the instance."""
        self._under_way.record(ledger, "instance failed", reason, message)
        now = self._under_way.clock.monotonic()
        ledger.fail_instance(entry, message, permanent=permanent, now=now)
        self.stop(ledger, entry)

    def log_path(self, ledger: EndpointLedger, entry: InstanceEntry) -> Path:
        """One file per slot, so that a slot's log goes on over its instances."""
        name = f"{entry.variant}-{entry.generation}-{entry.ordinal}.log"
        return self._settings.log_dir / ledger.desired.endpoint / name

    async def close(self) -> None:
        """Cancels what is under way and ends every instance. Nothing is recorded any more."""
        self._fleet.on_exit = lambda instance_id, what: None
        await self._under_way.cancel()
        for _, entry in self._under_way.instances():
            await self._publisher.disconnect(entry.instance_id)
        for client in list(self._under_way.clients.values()):
            client.close()
        await self._fleet.close()
        await self._under_way.wait_asides()

    async def _start(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        async with self._starts:
            self._under_way.enter(entry, STARTING)
            self._under_way.changed(ledger.desired.endpoint)  # its time limit runs from now
            settings = dict(self._settings.instance_settings)
            if self._settings.access is not None:
                settings["platform"] = (await self._settings.access()).to_dict()
            handle = await self._fleet.start(
                InstanceSpec(
                    instance_id=entry.instance_id,
                    instance_type=entry.kind,
                    log_path=self.log_path(ledger, entry),
                    cache_dir=self._settings.cache_dir,
                    settings=settings,
                )
            )
            entry.pid, entry.address = handle.pid, handle.address
            self._under_way.clients[entry.instance_id] = await InstanceClient.connect(
                entry.instance_id,
                handle.address,
                on_event=lambda event: self._on_event(entry.instance_id, event),
                on_close=lambda: self._on_close(entry.instance_id),
            )
            await self._publisher.connect(entry.instance_id, handle.address)
        entry.running_at = self._under_way.clock.monotonic()
        self._under_way.enter(entry, RUNNING)

    def _start_failed(
        self, ledger: EndpointLedger, entry: InstanceEntry, error: PenstockError
    ) -> None:
        if error.code == "instance-gone":
            self._under_way.enter(entry, GONE)  # the fleet will say how it ended
            return
        hint = f" {error.hint}" if error.hint else ""
        story = f"Variant {entry.variant}: {error.message}.{hint}"
        self.give_up(ledger, entry, story, error.code, permanent=is_permanent(error))

    async def _stop(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        under_way: list[asyncio.Task[None]],
    ) -> None:
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        try:
            # The data connection stays until the end: the instance answers what it still holds.
            client = self._under_way.clients.get(entry.instance_id)
            await self._fleet.stop(entry.instance_id, grace_s=self._settings.stop_grace_s)
            if client is not None:  # its last words are what its models were counted last
                await client.wait_ended(timeout_s=_LAST_WORDS_S_MAX)
        finally:
            self._remove(ledger, entry)

    def _on_exit(self, instance_id: str, what: str) -> None:
        """The fleet: an instance ended by itself."""
        found = self._under_way.find(instance_id)
        if found is None or found[1].phase == STOPPING:
            return
        ledger, entry = found
        loading = any(copy.ready_since is None for copy in ledger.copies_on(instance_id))
        when = " while it loaded its model" if loading else ""
        message = f"Variant {entry.variant}{when}: {what}"
        self._under_way.record(ledger, "instance ended", "instance-exit", message)
        now = self._under_way.clock.monotonic()
        ledger.fail_instance(entry, message, permanent=False, now=now)
        for task in self._under_way.take_tasks(instance_id):
            task.cancel()
        self._remove(ledger, entry)

    def _on_close(self, instance_id: str) -> None:
        self._under_way.clients.pop(instance_id, None)
        found = self._under_way.find(instance_id)
        if found is not None:
            ledger, entry = found
            if entry.phase not in (STARTING, STOPPING, GONE):
                self._under_way.enter(entry, GONE)
            self._under_way.changed(ledger.desired.endpoint)

    def _remove(self, ledger: EndpointLedger, entry: InstanceEntry) -> None:
        self._under_way.aside(self._publisher.disconnect(entry.instance_id))
        self._under_way.remove(ledger, entry)
