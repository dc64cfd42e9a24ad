"""Operations on copies (load, drain, unload), and the events that instances report about them.

Nothing is decided here. Results go to the ledger, and reconciliation runs again. If a copy that has
its instance to itself fails, its instance goes too; any other copy fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from penstock.artifacts.sources.source import ArtifactSource
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_client import ANSWER_S, Json
from penstock.control.instances.instance_status import InstanceStatus
from penstock.control.instances.ledger import EndpointLedger
from penstock.control.instances.room import Room
from penstock.control.instances.under_way import OperationSettings, OperationsUnderWay
from penstock.control.ports import RoutePublisher
from penstock.control.store.target_model_record import TargetModelRecord
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    GONE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    UNLOADING,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, is_permanent
from penstock.core.endpoint.component_memory import after_load, before_load
from penstock.core.endpoint.ready_times import ReadyTimes, TimeToReady
from penstock.core.machine.room import NO_ROOM, RoomDecision
from penstock.core.models.memory_need import MemoryEstimate
from penstock.core.request.grants import trusts
from penstock.errors import ModelError, NotNowError, PenstockError


def load_request(endpoint: str, entry: InstanceEntry, copy: CopyEntry) -> Json:
    """The part of a prepare or load call that says what the copy may use. A copy alone on its
    instance may use all of it; any other gets the cores and accelerators that it requested. The
    memory limit is the instance's memory, or the most that a copy of the component may take."""
    component, need, kind = copy.component, copy.component.need, entry.kind
    asked, given = need.resources, kind.resources
    whole, share_bytes = need.whole_instance, kind.share_bytes or given.memory_bytes
    return {
        "op": "load",
        "copy": copy.copy,
        "base_copy": copy.base_copy,
        "endpoint": endpoint,
        "variant": copy.variant,
        **_source_of(component.model),
        "containers": [
            {"hostname": part.hostname, **_source_of(part)} for part in component.model.containers
        ],
        "direct": component.model.direct,
        "network_isolated": component.model.network_isolated,
        "cores": given.cores if whole or not asked.cores else asked.cores,
        "memory_bytes_max": min(share_bytes, need.memory_bytes_max or share_bytes),
        "accelerators": given.accelerators if whole else asked.accelerators,
        "multi_model": {"keeps_models": component.model.keeps_models}
        if component.model.multi_model
        else None,
        "download_timeout_s": component.download_timeout_s,
        "startup_timeout_s": component.startup_timeout_s,
    }


def _source_of(model: ModelSource) -> Json:
    environment = dict(model.environment)
    source = ArtifactSource(
        uri=model.uri,
        compressed=model.compressed,
        image=model.image,
        image_id=model.image_id,
        environment=environment,
        # Whoever may write to the prefix of a multi-model endpoint has not been asked.
        trusted=not model.multi_model and trusts(environment),
    )
    return {"source": source.to_dict(), "environment": environment}


#: (endpoint, generation, name -> (id, what names it for good)): records what images are.
KeepImages = Callable[[str, int, Mapping[str, tuple[str, str]]], Coroutine[Any, Any, None]]


def _images_of(copy: CopyEntry) -> dict[str, tuple[str, str]]:
    """What the names of the copy's images stand for, as its instance says, where the record doesn't
    say so yet. Components have records of their own, which say nothing of images."""
    parts = () if copy.component.component else copy.component.model.parts
    told = copy.model.get("containers") or [copy.model]
    return {
        part.image: (str(seen["image"]["id"]), str(seen["image"]["resolved"]))
        for part, seen in zip(parts, told, strict=False)
        if part.image and not part.image_id and seen.get("image")
    }


class NoRoom(NotNowError):
    """There is not enough memory to load a model. The code is the reason of the decision."""

    def __init__(self, decision: RoomDecision) -> None:
        super().__init__(decision.reason, decision.message)


class TooLarge(ModelError):
    """A model takes more memory than a copy of its component may."""

    def __init__(self, story: str) -> None:
        super().__init__("larger-than-requirement", story)


class GiveUpInstance(Protocol):
    """The signature of `InstanceOperations.give_up`."""

    def __call__(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        message: str,
        reason: str,
        *,
        permanent: bool,
    ) -> None: ...


class CopyOperations:
    """The copies of all endpoints of this server."""

    def __init__(
        self,
        *,
        publisher: RoutePublisher,
        settings: OperationSettings,
        spec: ReconcileSpec,
        under_way: OperationsUnderWay,
        room: Room,
        status: InstanceStatus,
        record: TargetModelRecord,
        give_up_instance: GiveUpInstance,
        ready_times: ReadyTimes,
        imported: Callable[[list[str]], None],
        keep_images: KeepImages,
    ) -> None:
        """`imported`: called with the modules that an instance has imported for a model;
        `keep_images`, with what the names of its images stand for."""
        self._imported = imported
        self._keep_images = keep_images
        self.settings = settings
        self._ready_times = ready_times
        self._publisher = publisher
        self._spec = spec
        self._under_way = under_way
        self._room = room
        self._status = status
        self._record = record
        self._give_up_instance = give_up_instance
        self._loads = asyncio.Semaphore(settings.loads_max)
        #: those that yield load one at a time, so that nobody else waits behind them
        self._yielding_loads = asyncio.Semaphore(1)

    def load(self, ledger: EndpointLedger, entry: InstanceEntry, copy: CopyEntry) -> None:
        """Loads a new copy. Its phase is loading."""
        copy.asked_at = self._under_way.clock.monotonic()
        if not entry.held_copies:
            entry.held_copies = True
            copy.came_with = entry
        ledger.copies[copy.copy] = copy
        self._under_way.enter(copy, LOADING, queued=True)
        self._begin(copy, self._load(ledger, entry, copy))

    def drain(self, ledger: EndpointLedger, copy: CopyEntry) -> None:
        self._under_way.enter(copy, DRAINING)
        self._begin(copy, self._drain(ledger, copy))

    def unload(self, ledger: EndpointLedger, copy: CopyEntry) -> None:
        """Takes a copy from an instance that stays. The copy may be in any phase."""
        self._under_way.enter(copy, UNLOADING)
        under_way = self._under_way.take_task((copy.instance_id, copy.copy))
        self._begin(copy, self._unload(ledger, copy, under_way))

    def give_up(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        copy: CopyEntry,
        message: str,
        reason: str,
        *,
        permanent: bool,
    ) -> None:
        """Records the failure, and removes the copy, or its instance with it."""
        if copy.component.need.whole_instance:
            self._give_up_instance(ledger, entry, message, reason, permanent=permanent)
            return
        self._under_way.record(ledger, "copy failed", reason, message)
        now = self._under_way.clock.monotonic()
        ledger.fail_copy(copy, message, permanent=permanent, now=now, reason=reason)
        self.unload(ledger, copy)

    def on_event(self, instance_id: str, event: Json) -> None:
        """Handles copy-lost, copy-ready and copy-failed: an instance reports its workers."""
        found = self._under_way.find(instance_id)
        copy = found[0].copies.get(event.get("copy", 0)) if found is not None else None
        if found is None or copy is None or copy.instance_id != instance_id:
            return
        ledger, entry = found
        if entry.phase != RUNNING:
            return
        name = event.get("event")
        if name == "copy-lost" and copy.phase == READY:
            self._under_way.enter(copy, LOST)
        elif name == "copy-ready" and copy.phase == LOST:
            self._under_way.enter(copy, READY)
        elif name == "copy-failed" and copy.phase in (READY, LOST):
            fields = event.get("error") or {}
            story = fields.get("message") or event.get("reason") or "its process keeps ending"
            where = _of(copy)
            message = f"{where[0].upper()}{where[1:]}: {story}"
            self.give_up(ledger, entry, copy, message, "copy-failed", permanent=False)
        else:
            return
        reason = str(event.get("reason", ""))
        self._under_way.record(ledger, f"instance says {name}", reason, instance_id)
        self._under_way.changed(ledger.desired.endpoint)

    async def _load(self, ledger: EndpointLedger, entry: InstanceEntry, copy: CopyEntry) -> None:
        endpoint, component = ledger.desired.endpoint, copy.component
        request = load_request(endpoint, entry, copy)
        for part in (request, *request["containers"]):
            self.settings.offer(ArtifactSource.from_dict(part["source"]))
        if _is_asynchronous(ledger, entry):
            request["waits_for_others"] = True
        # The core's own limit ends a load that hangs; these limits are only a safety net.
        download_s = component.download_timeout_s + 2 * self._spec.margin_s
        client = self._under_way.client
        async with self._turn_to_load(entry):
            self._under_way.enter(copy, LOADING)
            self._under_way.changed(endpoint)
            began = self._under_way.clock.monotonic()
            reply = await client(entry.instance_id).call(
                {**request, "op": "prepare"}, timeout_s=download_s
            )
            copy.fetch_s = self._under_way.clock.monotonic() - began
        copy.digest = str(reply.get("digest", ""))
        await self._find_room(ledger, entry, copy, MemoryEstimate(**reply["need"]))
        if component.model.multi_model:
            request["multi_model"]["quarantined"] = await self._record.quarantined(endpoint)
        async with self._turn_to_load(entry):
            self._under_way.enter(copy, LOADING)
            self._under_way.changed(endpoint)
            copy.asked = True
            reply = await client(entry.instance_id).call(
                request, timeout_s=download_s + component.startup_timeout_s
            )
        if copy.phase == LOADING:  # otherwise it is being unloaded already
            self._loaded(ledger, entry, copy, reply)
            if images := _images_of(copy):
                self._under_way.aside(self._keep_images(endpoint, copy.generation, images))
            if component.model.multi_model:
                await self._tell_pins(endpoint, copy)

    async def _tell_pins(self, endpoint: str, copy: CopyEntry) -> None:
        """Sends the pins so far to a host that is ready. Later pins are sent as they are set."""
        async with self._record.telling:
            pins = await self._record.pins(endpoint)
            if not pins:
                return
            client = self._under_way.client(copy.instance_id)
            await client.call({"op": "models", "copy": copy.copy, "pins": pins}, timeout_s=ANSWER_S)

    def _loaded(
        self, ledger: EndpointLedger, entry: InstanceEntry, copy: CopyEntry, reply: Json
    ) -> None:
        description = reply.get("description") or {}
        copy.model = description
        copy.outstanding_max = int(description.get("outstanding_max", 1))
        copy.model_memory_bytes = int(reply.get("memory_bytes", 0))
        copy.load_s = float(reply.get("load_s", 0.0))
        story = after_load(copy.component, copy.model_memory_bytes)
        if story:
            raise TooLarge(story)
        copy.ready_since = self._under_way.clock.monotonic()
        if copy.base_copy:
            copy.need_bytes = 0  # its memory is measured as part of its base
        entry.memory_bytes = sum(  # an estimate until the first status call
            one.model_memory_bytes for one in ledger.copies_on(entry.instance_id)
        )
        entry.note_memory(reply)
        self._under_way.enter(copy, READY)
        detail = f"{entry.instance_id} {copy.load_s:.2f}s"
        self._under_way.record(ledger, "copy loaded", "load-done", detail)
        copy.took = _took(copy, warm_up_s=float(reply.get("warm_up_s", 0.0)), now=copy.ready_since)
        self._imported([str(name) for name in reply.get("modules", ())])
        name = copy.component.component or copy.variant
        self._ready_times.observe(ledger.desired.endpoint, name, copy.took)

    async def _find_room(
        self, ledger: EndpointLedger, entry: InstanceEntry, copy: CopyEntry, need: MemoryEstimate
    ) -> None:
        """Reserves the memory that the model needs, after a wait if necessary. Raises `NoRoom`."""

        def waits(decision: RoomDecision) -> None:
            # The time limit of the load does not run while it waits for others.
            self._under_way.enter(copy, LOADING, queued=True)
            self._under_way.record(ledger, "wait for room", decision.reason, entry.instance_id)

        story = before_load(copy.component, need)
        if story:
            raise TooLarge(story)
        decision = await self._room.for_load(
            entry, copy, need, measure=self._status.measure, waits=waits
        )
        if decision.outcome == NO_ROOM:
            raise NoRoom(decision)
        detail = f"{entry.instance_id} needs {copy.need_bytes / 2**30:.2f} GiB, {need.basis}"
        self._under_way.record(ledger, "room for the model", decision.reason, detail)

    @asynccontextmanager
    async def _turn_to_load(self, entry: InstanceEntry) -> AsyncIterator[None]:
        """Waits for one of the places to load. The place is given back after a while, so that
        models that never finish loading do not block others."""
        loads = self._yielding_loads if entry.yields else self._loads
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                loads.release()

        await loads.acquire()
        timer = asyncio.get_running_loop().call_later(self.settings.load_turn_s_max, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    async def _drain(self, ledger: EndpointLedger, copy: CopyEntry) -> None:
        if not await self._publisher.drained((copy.copy,), self._spec.drain_s_max):
            self._under_way.record(ledger, "requests cut off", "drain-timeout", copy.instance_id)
        self._under_way.enter(copy, DRAINED)

    async def _unload(
        self, ledger: EndpointLedger, copy: CopyEntry, under_way: asyncio.Task[None] | None
    ) -> None:
        if under_way is not None:
            # An instance that was told to load finishes the load: only then can it unload.
            if not copy.asked or copy.ready_since is not None:
                under_way.cancel()
            try:
                await asyncio.wait([under_way])
            finally:
                under_way.cancel()
        timeout_s = self._spec.last_drain_s + self._spec.margin_s
        await self._under_way.client(copy.instance_id).unload(copy.copy, timeout_s=timeout_s)
        ledger.copies.pop(copy.copy, None)
        self._under_way.record(ledger, "copy unloaded", "unload-done", copy.instance_id)

    def _begin(self, copy: CopyEntry, work: Coroutine[Any, Any, None]) -> None:
        self._under_way.begin(
            (copy.instance_id, copy.copy),
            work,
            lambda ledger, entry, error: self._failed(ledger, entry, copy, error),
        )

    def _failed(
        self,
        ledger: EndpointLedger,
        entry: InstanceEntry,
        copy: CopyEntry,
        error: PenstockError,
    ) -> None:
        if error.code == "instance-gone":
            self._under_way.enter(entry, GONE)  # the fleet will report how it ended
        elif copy.phase == UNLOADING:
            # Nobody knows what it still holds: its instance goes, and its other copies are started
            # anew.
            story = f"Variant {copy.variant}: {error.message}"
            self._give_up_instance(ledger, entry, story, error.code, permanent=False)
        elif isinstance(error, NoRoom):
            self.give_up(ledger, entry, copy, error.message, error.code, permanent=True)
        else:
            permanent = is_permanent(error)
            story = _story(copy, error)
            self.give_up(ledger, entry, copy, story, error.code, permanent=permanent)


def _took(copy: CopyEntry, *, warm_up_s: float, now: float) -> TimeToReady:
    """Times from the request for the copy on. If the instance existed before, its start is left
    out."""
    instance = copy.came_with
    parts = TimeToReady(
        start_s=0.0 if instance is None else instance.start_s,
        connect_s=0.0 if instance is None else instance.connect_s,
        fetch_s=copy.fetch_s,
        load_s=max(copy.load_s - warm_up_s, 0.0),
        warm_up_s=warm_up_s,
    )
    since = copy.asked_at if instance is None else instance.asked_at
    return replace(parts, waited_s=max(now - since - parts.total_s, 0.0))


def _story(copy: CopyEntry, error: PenstockError) -> str:
    """Text for FailureReason: which model, what happened, what to do."""
    hint = f" {error.hint}" if error.hint else ""
    return (
        f"Model {copy.component.model.model_name} of {_of(copy)} could not be"
        f" loaded: {error.message}{'' if error.message.endswith('.') else '.'}{hint}"
    )


def _of(copy: CopyEntry) -> str:
    """The owner of a copy, for people."""
    component = copy.component.component
    return f"inference component {component}" if component else f"variant {copy.variant}"


def _is_asynchronous(ledger: EndpointLedger, entry: InstanceEntry) -> bool:
    """Whether its generation serves asynchronous requests: callers that wait go before them."""
    return any(
        one.generation == entry.generation and one.asynchronous is not None
        for one in ledger.desired.generations
    )
