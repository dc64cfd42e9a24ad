"""Drives `core.idle_warm_up` on a host: runs shapes of loaded models while no request is served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from penstock.clock import Clock
from penstock.core.models.idle_warm_up import IdleWarmUp, IdleWarmUpSpec
from penstock.instance.models.loader import Loader
from penstock.instance.models.target import HostedTarget

_LOG = logging.getLogger(__name__)

#: How often it checks whether the host is idle, s.
_LOOK_S = 0.1


class IdleWarmUpDriver:
    """`run_on` runs as a task until it is cancelled."""

    def __init__(
        self,
        targets: Mapping[str, HostedTarget],
        loader: Loader,
        *,
        clock: Clock,
        quiet_since: Callable[[], float],
        free_share: Callable[[], float],
    ) -> None:
        """`quiet_since` and `free_share`: as `IdleWarmUp` takes them."""
        self._targets = targets
        self._loader = loader
        self._clock = clock
        self._quiet_since = quiet_since
        self._free_share = free_share
        self._machine = IdleWarmUp(IdleWarmUpSpec())
        self._asked = asyncio.Event()

    def loaded(self, target: HostedTarget) -> None:
        if target.loaded is not None and target.loaded.warms is not None:
            self._machine.loaded(target.name, target.loaded.warms.shapes)
            self._asked.set()

    def gone(self, target: HostedTarget) -> None:
        self._machine.gone(target.name)

    def called(self, target: HostedTarget) -> None:
        self._machine.called(target.name)

    def snapshot(self) -> dict[str, Any]:
        return {"shapes_left": self._machine.snapshot()}

    async def run_on(self) -> None:
        while True:
            await self._asked.wait()
            if not self._machine.snapshot():
                self._asked.clear()
                continue
            now = self._clock.monotonic()
            run = self._machine.next_run(
                quiet_since=self._quiet_since(), free_share=self._free_share(), now=now
            )
            if run is None:
                await asyncio.sleep(_LOOK_S)
                continue
            target = self._targets.get(run.model)
            if target is None or target.loaded is None or target.loaded.warms is None:
                self._machine.gone(run.model)
                continue
            # Memory that the run leaves is given back as after a request.
            target.rested, target.ran_at = False, now
            outcome: object
            try:
                outcome = await self._loader.run_shape(target.loaded.warms, run.shape)
            except Exception as error:  # of this model: others are warmed up all the same
                outcome = error
            if isinstance(outcome, Exception):
                _LOG.warning("model %s: warming up %s: %s", run.model, run.shape, outcome)
                self._machine.gone(run.model)
            self._machine.ran(run, self._clock.monotonic() - now)
