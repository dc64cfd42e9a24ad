"""The driver of `core/experiments`: carries out what each record wants of its endpoint.

A step is decided and recorded in one transaction. The endpoint's update follows: its configuration
has a name of the experiment's own, so one that exists already is this step's, from before a kill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.clock import Clock
from penstock.control.loop import DriverLoop
from penstock.control.store.records import EndpointBusy, NotFound
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.experiments.machine import MOVING, next_look
from penstock.errors import CallerError, NotNowError
from penstock.jobs.experiments import book
from penstock.jobs.experiments.records import ExperimentRecord
from penstock.jobs.schedules.driver import ControlPlaneCall
from penstock.metrics.item_failures import apart

_log = logging.getLogger(__name__)

_LOOP: Final = "experiments"  #: the name of this loop in the count of failures
#: How often endpoints that are being updated are looked at.
MOVING_EVERY_S: Final = 0.5
#: How often the others are: somebody else may update or delete an endpoint.
LOOK_EVERY_S: Final = 5.0
#: Steps in one look: from Creating to the endpoint's update.
_STEPS_MAX: Final = 4

#: Error codes after which the same call may succeed later.
_NOT_NOW: Final = frozenset(
    {"ServiceUnavailable", "ThrottlingException", "InternalFailure", "server-stopping"}
)
_EXISTS: Final = "Cannot create already existing"


class ExperimentsDriver:
    """All experiments of one server. `start`, then `close`; tests call `tick` instead."""

    def __init__(
        self,
        *,
        database: StoreThread,
        call: ControlPlaneCall,
        notify: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """`notify`: reports a changed record of an endpoint, so that it is reconciled."""
        self._database = database
        self._call = call
        self._notify = notify
        self._clock = clock
        loop = DriverLoop(_LOOP, self.tick, fault="experiments", retry_s=LOOK_EVERY_S)
        self.start, self.close = loop.start, loop.close
        self.changed = loop.wake  #: reports a changed record of an experiment

    async def tick(self) -> float:
        """One look at everything; returns the seconds until the next one."""
        for record in await self._database.call(book.open_experiments):
            with apart(_LOOP, record.name, but=(NotNowError,)):
                await self._advance(record.name)
        now = self._clock.wall()
        sleeps = [LOOK_EVERY_S * 4]
        for record in await self._database.call(book.open_experiments):
            due = next_look(record.spec())
            every_s = MOVING_EVERY_S if record.status in MOVING else LOOK_EVERY_S
            sleeps.append(min(every_s, max(0.0, due - now)) if due and due > now else every_s)
        return min(sleeps)

    async def _advance(self, name: str) -> None:
        for _ in range(_STEPS_MAX):
            done = await self._database.call(book.step, name, now=self._clock.wall())
            if done is None:
                return
            record, begins = done
            if begins:
                await self._update(record)
                return
            _log.info("experiment %s is %s %s", name, record.status, record.status_reason)

    async def _update(self, record: ExperimentRecord) -> None:
        try:
            if record.config:
                await self._update_to(record)
            else:
                await self._go_back(record)
        except (NotFound, EndpointBusy):
            return  # the next step sees what the endpoint is
        except CallerError as error:
            why = f"{error.code}: {error.message}"
            if error.code in _NOT_NOW:
                _log.warning("experiment %s: %s", record.name, why)
                return
            await self._database.call(book.refuse, record, why, now=self._clock.wall())
            return
        await self._database.call(book.note_begun, record, now=self._clock.wall())

    async def _update_to(self, record: ExperimentRecord) -> None:
        try:
            await self._call("CreateEndpointConfig", dict(record.config))
        except CallerError as error:
            if not error.message.startswith(_EXISTS):
                raise
        name = record.config["EndpointConfigName"]
        members = {"EndpointName": record.endpoint, "EndpointConfigName": name}
        await self._call("UpdateEndpoint", members)

    async def _go_back(self, record: ExperimentRecord) -> None:
        """To the very deployment before, whatever became of its configuration and its models."""
        assert record.before is not None, "it has started"
        await self._database.call(
            Store.begin_update,
            record.endpoint,
            replace(record.before, rollout=None),
            now=self._clock.wall(),
        )
        self._notify(record.endpoint)
