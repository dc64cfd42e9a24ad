"""All operations of one server on its instances and their copies, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.clock import Clock
from penstock.control.instances.copy_operations import CopyOperations
from penstock.control.instances.instance_client import InstanceClient, Json
from penstock.control.instances.instance_operations import InstanceOperations
from penstock.control.instances.instance_status import InstanceStatus
from penstock.control.instances.operation_settings import OperationSettings
from penstock.control.instances.room import Room
from penstock.control.instances.under_way import OperationsUnderWay
from penstock.control.ports import ModelCounted, RoutePublisher
from penstock.control.store.target_model_record import TargetModelRecord
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.ready_times import ReadyTimes
from penstock.fleet.base import Fleet

#: The event that reports how far an instance is with a span of a transform job.
TRANSFORM_PROGRESS: Final = "transform-progress"


class Operations:
    """Carries out what reconciliation decides. An operation takes a while. When it has changed a
    ledger, it calls `changed(endpoint)`, and reconciliation runs again."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        publisher: RoutePublisher,
        clock: Clock,
        settings: OperationSettings,
        spec: ReconcileSpec,
        changed: Callable[[str], None],
        room: Room,
        room_changed: Callable[[], None],
        record: TargetModelRecord,
        model_counted: ModelCounted = lambda *counted: None,
        ready_times: ReadyTimes | None = None,
        told: Callable[[str, Json], None] = lambda endpoint, event: None,
    ) -> None:
        """`room_changed` is called when an instance has ended and when a load has; `told` with the
        events of an instance about work that it was given."""
        self._told = told
        self._model_counted = model_counted
        self._under_way = OperationsUnderWay(
            clock=clock, changed=changed, room_changed=room_changed
        )
        self.status = InstanceStatus(settings, self._under_way)
        self.instances = InstanceOperations(
            fleet=fleet,
            publisher=publisher,
            settings=settings,
            under_way=self._under_way,
            record=record,
            on_event=self._on_event,
        )
        self.copies = CopyOperations(
            publisher=publisher,
            settings=settings,
            spec=spec,
            under_way=self._under_way,
            room=room,
            status=self.status,
            record=record,
            give_up_instance=self.instances.give_up,
            ready_times=ready_times or ReadyTimes(),
            imported=self.instances.keep_warm,
        )

    def client(self, instance_id: str) -> InstanceClient | None:
        """The control connection, for `explain` and `status` calls."""
        return self._under_way.clients.get(instance_id)

    def phase(self, instance_id: str) -> str:
        """Of an instance; empty for one that is gone."""
        found = self._under_way.find(instance_id)
        return found[1].phase if found is not None else ""

    async def close(self) -> None:
        """Cancels all operations and ends every instance. Nothing is recorded any more."""
        await self.instances.close()

    def _on_event(self, instance_id: str, event: Json) -> None:
        name = event.get("event")
        if name not in ("model-counts", TRANSFORM_PROGRESS):
            self.copies.on_event(instance_id, event)
            return
        found = self._under_way.find(instance_id)
        if found is None:
            return
        ledger, entry = found
        endpoint = ledger.desired.endpoint
        if name == TRANSFORM_PROGRESS:
            self._told(endpoint, event)
        else:
            self._model_counted(endpoint, entry.variant, instance_id, event["models"])
