"""Repeated checks of a host: its memory, its counts, and whether artifacts have changed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.clock import Clock
from penstock.core.residency import Footprint
from penstock.errors import PenstockError
from penstock.instance.models import memory
from penstock.instance.models.loader import Loader
from penstock.instance.models.target import HostedTarget
from penstock.metrics.item_failures import apart

_LOG = logging.getLogger(__name__)

#: A model's content is checked when it is called, at most once in this time, s.
LOOK_EVERY_S = 5.0
#: How often the host's memory is measured, besides around each load, s.
_MEASURE_EVERY_S = 1.0
#: After this time without a request, a model gives back memory that its runs left, s.
_REST_S = 2.0
#: How often each model's counts are reported, a part of the models at a time. Loaded models without
#: calls are reported only once in so many rounds.
_COUNT_EVERY_S = 1.0
_COUNT_PARTS = 10
_USE_EVERY = 10

#: (target model -> its `ModelDelta`): sends the deltas to the process that adds them up.
OnCounts = Callable[[dict[str, Any]], None]


class Watch:
    """`measure_on` and `count_on` run as tasks until they are cancelled."""

    def __init__(
        self,
        targets: Mapping[str, HostedTarget],
        loader: Loader,
        prefix: ModelPrefix,
        *,
        clock: Clock,
        on_memory: Callable[[Footprint, Mapping[str, Footprint]], None],
        on_counts: OnCounts,
        on_replaced: Callable[[HostedTarget], None],
    ) -> None:
        """`on_memory`: (the host's memory, memory of models with processes of their own)."""
        self._targets = targets
        self._loader = loader
        self._prefix = prefix
        self._clock = clock
        self._on_memory = on_memory
        self._on_counts = on_counts
        self._on_replaced = on_replaced

    async def measure_on(self) -> None:
        while True:
            with apart("target-models", "rest"):
                await self._rest()
            with apart("target-models", "memory"):
                await self._measure()
            await asyncio.sleep(_MEASURE_EVERY_S)

    async def _measure(self) -> None:
        used = await self._loader.measured()
        here = {name: one for name, one in self._targets.items() if one.loaded is not None}
        prepared, pids = {}, {}
        for name, one in here.items():
            with apart("target-models", name):
                if one.prepared is not None and one.loaded is not None:
                    pids[name] = one.loaded.pids()
                    prepared[name] = one.prepared
        by_model = await self._loader.by_model(prepared, pids)
        # A model that was ended or loaded again meanwhile is not the one that was measured.
        still = {
            name: taken
            for name, taken in by_model.items()
            if name in here and here[name].copy is not None
        }
        now = self._clock.monotonic()
        for name, taken in still.items():
            with apart("target-models", name):
                here[name].counts.resized(taken, here[name].run_us, now)
        self._on_memory(used, still)

    async def _rest(self) -> None:
        """Models that have not run for a while keep only their weights."""
        before = self._clock.monotonic() - _REST_S
        idle = [
            target
            for target in self._targets.values()
            if not target.rested
            and target.loaded is not None
            and target.copy is not None
            and not target.copy.unanswered
            and target.ran_at <= before
        ]
        if idle:
            for target in idle:
                target.rested = True
            await memory.rest({one.name: one.loaded.runtime for one in idle if one.loaded})

    async def count_on(self) -> None:
        """Reports a part of the models at a time: the receiver has other work as well."""
        for turn in itertools.count():
            await asyncio.sleep(_COUNT_EVERY_S / _COUNT_PARTS)
            part = list(self._targets.values())[turn % _COUNT_PARTS :: _COUNT_PARTS]
            self.tell_counts(part, use=turn // _COUNT_PARTS % _USE_EVERY == 0)

    def tell_counts(self, targets: Iterable[HostedTarget], *, use: bool) -> None:
        now = self._clock.monotonic()
        models: dict[str, Any] = {}
        for target in targets:
            with apart("target-models", target.name):
                delta = target.counts.take(target.run_us, now, use=use)
                if delta is not None:
                    models[target.name] = delta
        if models:
            with apart("target-models", "counts"):
                self._on_counts(models)

    async def look(self, target: HostedTarget) -> None:
        """Checks whether its content is still that of its load. If it was replaced, it is loaded
        again."""
        target.looking = True
        try:
            stamp = await asyncio.to_thread(self._prefix.stamp, target.name)
            if stamp and stamp != target.stamp and _counts(target):
                content, stamp = await self._loader.content(target.name)
                if _counts(target) and content == target.digest:
                    target.stamp = stamp
        except PenstockError as error:
            # A loaded model goes on serving while its place can't be reached.
            _LOG.warning("model %s can't be looked at: %s", target.name, error.message)
            return
        finally:
            target.looking, target.looked_at = False, self._clock.monotonic()
        if stamp != target.stamp:
            target.stamp, target.error, target.described = stamp, None, None
            self._on_replaced(target)


def _counts(target: HostedTarget) -> bool:
    """Whether the digest must be checked when only the stamp has changed. A loaded model stays with
    the same content, and so does a quarantine. A model that could not be loaded is tried again even
    if its files were only touched."""
    return target.prepared is not None or target.left_alone
