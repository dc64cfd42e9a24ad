"""Once per second: samples and publishes what is due, and from time to time saves the history.

A function that is passed in reports copies and instances; metrics never make the data plane wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from penstock.clock import Clock
from penstock.core.resources import ComputeResources
from penstock.errors import PenstockError
from penstock.fleet.machine import this_machine
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.window_metrics import ALWAYS, Publishing
from penstock.metrics.item_failures import apart
from penstock.metrics.series.snapshot import Snapshot, load
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.cost import Accounts, InstanceHeld, MachineRead
from penstock.metrics.utilization.energy import EnergyMeter, EnergyRead, load_nvml
from penstock.metrics.utilization.instances import InstanceSample

_log = logging.getLogger(__name__)

_LOOP: Final = "metrics"  #: the label of this loop in the count of failures
COLLECT_EVERY_S: Final = 1.0
#: CloudWatch's utilization metrics have points of 10 s; cost follows them
OBSERVE_EVERY_S: Final = 10.0
SAVE_EVERY_S: Final = 60.0
#: reading energy counters takes some milliseconds, unless their driver hangs
READ_S_MAX: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantObserved:
    """Copies and instances of one variant at one moment."""

    endpoint: str
    variant: str
    copies: dict[str, int]  #: state -> copies; an instance without a copy counts in its own state
    serving_count: int  #: instances with a ready copy
    instances: tuple[InstanceHeld, ...] = ()  #: for cost and energy
    #: inference component -> state -> its copies; also components without copies
    components: dict[str, dict[str, int]] = field(default_factory=dict)
    publishing: Publishing = ALWAYS  #: how often each kind of metric is published
    #: (component, part of its last start, or "forecast") -> s
    ready_s: dict[tuple[str, str], float] = field(default_factory=dict)


class Observed(Protocol):
    """Reports which copies exist and what their instances use: the control plane."""

    def variants(self) -> Sequence[VariantObserved]: ...

    async def samples(self) -> Sequence[InstanceSample]: ...


class History(Protocol):
    """Keeps metrics so that another server can continue with them."""

    async def save(self, snapshot: Snapshot) -> None:
        """Raises PenstockError."""


class MetricsDriver:
    """Drives one registry and its store."""

    def __init__(
        self,
        registry: MetricRegistry,
        store: MetricStore,
        clock: Clock,
        observed: Observed,
        path: Path | None,
        *,
        history: History | None = None,
        machine: ComputeResources | None = None,
        meter: EnergyMeter | None = None,
    ) -> None:
        """
        Args:
            path: the file that keeps the history over a restart; None: no file.
            history: another store for the history; its maker has loaded the store from it already.
            machine: the machine whose energy is read, with all its cores; None = this one.
        """
        self._history = history
        self._registry = registry
        self._store = store
        self._clock = clock
        self._observed = observed
        self._path = path
        self._task: asyncio.Task[None] | None = None
        self._machine = machine or this_machine()
        self._meter = meter
        #: a reading that is under way or late; None: none is
        self._reading: asyncio.Task[EnergyRead] | None = None
        self._accounts = Accounts()
        self._noted_at: float | None = None
        self._charged_at = clock.monotonic()

    def start(self) -> None:
        """Loads the history. If the file can't be read, only the history is lost.

        The file is moved aside: the next save must not replace a file that may be intact.
        """
        if self._path is not None:
            self._load(self._path)
        self._task = asyncio.create_task(self._run(), name="metrics")
        self._registry.loop_lag.start()

    def _load(self, path: Path) -> None:
        try:
            load(path, self._store, now=self._clock.wall())
        except PenstockError as error:
            aside = path.with_name(path.name + ".unreadable")
            with contextlib.suppress(OSError):
                path.replace(aside)
            _log.warning("%s %s It is kept as %s.", error.message, error.hint, aside)

    async def stop(self) -> None:
        """Collects and saves a last time. Idempotent."""
        if self._task is None:
            return
        self._registry.loop_lag.stop()
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        if self._reading is not None:
            self._reading.cancel()
        self._registry.collect(self._clock.wall(), final=True)
        await self._save()

    async def _run(self) -> None:
        observe_at = save_at = self._clock.monotonic()
        save_at += SAVE_EVERY_S
        if self._meter is None:
            self._meter = EnergyMeter(nvml=await asyncio.to_thread(load_nvml))
        while True:
            now = self._clock.monotonic()
            observes, saves = now >= observe_at, now >= save_at
            if observes:
                observe_at = now + OBSERVE_EVERY_S
            if saves:
                save_at = now + SAVE_EVERY_S
            try:
                await self._round(self._meter if observes else None, saves=saves)
            except Exception:  # no free descriptor, or a counter disappeared: it may be back later
                _log.exception("metrics of this second are lost")
            await asyncio.sleep(COLLECT_EVERY_S)

    async def _round(self, meter: EnergyMeter | None, *, saves: bool) -> None:
        """One second's work; `meter` is passed when it is time to observe."""
        with apart(_LOOP, "counts"):
            self._counts()
        if meter is not None:
            with apart(_LOOP, "samples"):
                await self._sample()
            with apart(_LOOP, "charges"):
                await self._charge(meter)
        self._registry.collect(self._clock.wall())
        if saves:
            await self._save()

    def _counts(self) -> None:
        """Sets how many copies and instances each variant has, and removes everything else."""
        seen = set()
        components = set()
        held: list[InstanceHeld] = []
        for one in self._observed.variants():
            held += one.instances
            seen.add((one.endpoint, one.variant))
            components |= {(one.endpoint, one.variant, name) for name in one.components}
            with apart(_LOOP, f"{one.endpoint} {one.variant}"):
                self._count(one)
        self._registry.keep(seen, components, self._clock.wall())
        self._registry.keep_instances({one.instance_id for one in held})
        now = self._clock.monotonic()
        elapsed_s = now - self._noted_at if self._noted_at is not None else 0.0
        self._accounts.note(held, elapsed_s)
        self._registry.models.usage.note(held, elapsed_s)
        self._noted_at = now

    def _count(self, one: VariantObserved) -> None:
        self._registry.set_copies(one.endpoint, one.variant, one.copies)
        self._registry.set_ready(one.endpoint, one.variant, one.ready_s)
        self._registry.set_instance_count(one.endpoint, one.variant, max(1, one.serving_count))
        self._registry.set_publishing(one.endpoint, one.variant, one.publishing)
        for component, states in one.components.items():
            self._registry.set_component_copies((one.endpoint, one.variant, component), states)

    async def _charge(self, meter: EnergyMeter) -> None:
        now = self._clock.monotonic()
        host_j, boards_j = await self._read(meter, now)
        read = MachineRead(
            interval_s=now - self._charged_at,
            cores=self._machine.cores,
            boards=self._machine.accelerators,
            host_j=host_j,
            boards_j=boards_j,
        )
        self._charged_at = now
        charges = self._accounts.charge(self._registry.busy_cores(), read)
        self._registry.add_charges(charges, self._clock.wall())

    async def _read(self, meter: EnergyMeter, now: float) -> EnergyRead:
        """Reads energy. If a driver hangs, only its readings are lost, not the metrics."""
        if self._reading is not None:
            if not self._reading.done():
                return EnergyRead(None, None)
            self._reading.exception()  # its interval was already charged by estimate
        self._reading = asyncio.create_task(asyncio.to_thread(meter.read, now), name="energy")
        await asyncio.wait([self._reading], timeout=READ_S_MAX)
        if not self._reading.done():
            return EnergyRead(None, None)
        reading, self._reading = self._reading, None
        return reading.result()

    async def _sample(self) -> None:
        for sample in await self._observed.samples():
            with apart(_LOOP, sample.instance_id):
                self._registry.add_instance_sample(sample, self._clock.wall())

    async def _save(self) -> None:
        snapshot = Snapshot.take(self._store)
        try:
            if self._history is not None:
                await self._history.save(snapshot)
            if self._path is not None:
                await asyncio.to_thread(snapshot.write, self._path)
        except PenstockError as error:
            _log.warning("metrics can't be kept: %s", error.message)
        except OSError as error:
            _log.warning("metrics can't be written to %s: %s", self._path, error.strerror)
