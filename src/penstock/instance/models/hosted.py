"""Creates a host of target models, which the server uses like a loaded model.

The host's settings come from its load call and from the model's Environment. Its models may also be
kept warm by schedule (`core.residency.keep_warm`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.clock import Clock, zone_of
from penstock.core.models.instruction_sets import BuildChoice, Proof
from penstock.core.models.memory_need import MemoryEstimate
from penstock.core.residency import Footprint, ResidencySpec
from penstock.core.residency.keep_warm import Keep, KeepWarm, Schedule, parse
from penstock.errors import CallerError, PenstockError
from penstock.instance.batcher_driver import CallAt, Timer
from penstock.instance.copy import Elsewhere
from penstock.instance.loading.load import LoadCall
from penstock.instance.models.calls import TargetCalls
from penstock.instance.models.host import ModelHost, OnEvent
from penstock.instance.models.loader import Loader
from penstock.instance.models.shared import SharedProcesses
from penstock.instance.models.siblings import Siblings
from penstock.instance.models.watch import OnCounts
from penstock.instance.models.work_note import WorkNote
from penstock.instance.settings import InstanceSettings

_LOG = logging.getLogger(__name__)

#: The variable of the model's Environment with schedules, as `core.residency.keep_warm` reads them.
VARIABLE: Final = "PENSTOCK_KEEP_WARM"
#: The longest sleep, because a wall clock may be set, and differs from timers.
_SLEEP_S_MAX: Final = 60.0
_SLEEP_S_MIN: Final = 0.01


def schedules_of(environment: Mapping[str, str]) -> tuple[Schedule, ...]:
    """Raises CallerError (`keep-warm-invalid`)."""
    return parse(environment.get(VARIABLE, ""), zone_of)


#: `all`: models are loaded when the host starts, in the order of their names, as long as they fit.
AT_START: Final = "PENSTOCK_MODELS_AT_START"
_ALL: Final = "all"
#: How many models a host looks for then, and the longest load of one.
_AT_START_MAX: Final = 10_000
_AT_START_S_MAX: Final = 3600.0


def loads_at_start(environment: Mapping[str, str]) -> bool:
    """Raises CallerError (`environment-invalid`)."""
    text = environment.get(AT_START, "")
    if text not in ("", _ALL):
        raise CallerError(
            "environment-invalid",
            f"{AT_START} is {text!r}",
            hint=f"Give {_ALL}, or leave it out: then each model is loaded by its first call.",
        )
    return text == _ALL


#: LRU. GDSF was another policy: records with it are accepted, with a note that it has no effect.
POLICY: Final = "PENSTOCK_MODEL_CACHE_POLICY"
_LRU: Final = "LRU"
_RETIRED: Final = "GDSF"
#: The part of the instance's memory that its process and all its models may take together.
SHARE: Final = "PENSTOCK_MODEL_CACHE_SHARE"
#: Minimum residency: s that a model stays once it is loaded; not set: derived from its load's cost.
RESIDENCY_S_MIN: Final = "PENSTOCK_MODEL_RESIDENCY_SECONDS_MIN"

#: The rest is for memory that runs need beyond loads.
_SHARE_DEFAULT: Final = 0.8
#: Parts of that budget: what loads may fill, because running requests need memory as well; and what
#: both may fill before idle models are evicted, below 1 because a measurement may be a second old.
_LOADS_SHARE: Final = 0.9
_RUNS_SHARE: Final = 0.95
#: Bounds of loads at once. A load keeps a core busy, so half of the cores are left to loaded
#: models; but at least two run, of which one computes while the other waits for the disk.
_LOADS_LEAST: Final = 2
_LOADS_MOST: Final = 8


def residency_spec(call: LoadCall) -> ResidencySpec:
    """Raises CallerError (`environment-invalid`)."""
    environment = {**call.source.environment, **call.environment}
    asked = call.multi_model or {}
    share = _number(environment, SHARE, _SHARE_DEFAULT, least=0.05, most=1.0)
    policy = environment.get(POLICY, _LRU).upper()
    if policy not in (_LRU, _RETIRED):
        raise CallerError("environment-invalid", f"{POLICY} is {policy!r}", hint=f"Give {_LRU}.")
    spec = ResidencySpec(
        budget=Footprint(host_bytes=int(_LOADS_SHARE * share * call.memory_bytes_max)),
        budget_running=Footprint(host_bytes=int(_RUNS_SHARE * share * call.memory_bytes_max)),
        loads_max=min(max(int(call.cores / 2), _LOADS_LEAST), _LOADS_MOST),
        keep=bool(asked.get("keeps_models", True)),
    )
    if RESIDENCY_S_MIN not in environment:
        return spec
    residency_s_min = _number(environment, RESIDENCY_S_MIN, 0.0, least=0.0, most=86_400.0)
    return dataclasses.replace(spec, residency_s_min=residency_s_min)


def retired_of(call: LoadCall) -> str:
    """A note about a setting that is accepted without effect; empty: none."""
    environment = {**call.source.environment, **call.environment}
    if environment.get(POLICY, _LRU).upper() != _RETIRED:
        return ""
    return (
        f"{POLICY}={_RETIRED} has no effect any more: the model that was unused for longest is "
        f"unloaded ({_LRU}). Take the setting out of the model's Environment."
    )


def _number(
    environment: Mapping[str, str], name: str, default: float, *, least: float, most: float
) -> float:
    text = environment.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise CallerError(
            "environment-invalid",
            f"{name} is {text!r}",
            hint=f"Give a number from {least:g} to {most:g}.",
        )
    return value


#: How many requests a host takes at once, those that wait for a load included; each has a body.
OUTSTANDING_MAX = 4096
#: More than can wait for loaded models: each of these has its own bounded queue.
_LANES = 1024


def prefix_of(call: LoadCall, settings: InstanceSettings) -> ModelPrefix:
    """Raises CallerError for a URI that is no prefix."""
    source = call.source
    return ModelPrefix(
        source.uri,
        settings.artifact,
        {**source.environment, **call.environment},
        image=source.image,
        compressed=source.compressed,
        seconds_max=call.download_timeout_s,
    )


async def prepared_host(call: LoadCall, settings: InstanceSettings) -> MemoryEstimate:
    """The host's memory need, which is its whole budget. Raises the errors of reading its
    prefix."""
    await asyncio.to_thread(prefix_of(call, settings).list, limit=1)
    return MemoryEstimate(memory_bytes=residency_spec(bounded(call)).budget.host_bytes)


def bounded(call: LoadCall) -> LoadCall:
    """The call with the machine's memory, if the instance has no limit."""
    if call.memory_bytes_max:
        return call
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return dataclasses.replace(call, memory_bytes_max=machine_bytes)


class HostedModels:
    """A running host, with the interface of a running model (`Loaded`)."""

    proof: Proof | None = None
    build: BuildChoice | None = None

    def __init__(
        self,
        call: LoadCall,
        settings: InstanceSettings,
        *,
        clock: Clock,
        call_at: CallAt,
        elsewhere: Elsewhere,
        on_event: OnEvent,
        on_counts: OnCounts,
    ) -> None:
        """Raises CallerError for invalid settings."""
        call = bounded(call)
        prefix = prefix_of(call, settings)
        environment = {**call.source.environment, **call.environment}
        schedules = schedules_of(environment)
        for model in (model for schedule in schedules for model in schedule.models):
            prefix.resolve(model)
        spec = residency_spec(call)

        def log(line: str) -> None:
            _LOG.info("[%s/%s copy %d] %s", call.endpoint, call.variant, call.copy, line)

        retired = retired_of(call)
        if retired:
            log(retired)
        self._note = WorkNote(
            settings.work_dir / f"{settings.instance_id}.{call.copy}" if settings.work_dir else None
        )
        shared = SharedProcesses(
            settings.cache_dir / "views",
            cores=call.cores,
            budget=spec.budget,
            make_room=self._make_room,
            log=log,
            clock=clock,
        )
        siblings = Siblings(prefix, settings.cache_dir)
        calls = TargetCalls(siblings, clock)
        self.host: ModelHost = ModelHost(
            call.copy,
            spec,
            prefix,
            Loader(call, settings, prefix, clock, shared, siblings, calls),
            shared,
            calls,
            clock=clock,
            call_at=call_at,
            elsewhere=elsewhere,
            on_event=on_event,
            on_counts=on_counts,
            note=self._note,
        )
        for one in (call.multi_model or {}).get("quarantined", ()):
            self.host.quarantined(
                str(one["model"]), str(one["digest"]), float(one["seconds"]), str(one["message"])
            )
        if loads_at_start(environment):
            self.host.loads.begin(self._load_all(prefix, log))
        self._keep_warm = KeepWarmDriver(schedules, self.host, clock=clock, call_at=call_at)
        self.described: dict[str, Any] = {
            "task": "multi-model",
            "multi_model": True,
            "lanes": _LANES,
            "outstanding_max": OUTSTANDING_MAX,
            "inputs": [],
            "outputs": [],
            "batching": {},
        }

    async def _load_all(self, prefix: ModelPrefix, log: Callable[[str], None]) -> None:
        """Loads what fits; a model that can't be loaded keeps no other from it."""
        try:
            found = await asyncio.to_thread(prefix.list, limit=_AT_START_MAX)
        except PenstockError as error:
            log(f"no model is loaded at the start: {error.message}")
            return
        for entry in found:
            try:
                await self.host.explicit.load(entry.name, wait_s=_AT_START_S_MAX, if_room=True)
            except PenstockError as error:
                log(f"model {entry.name} is not loaded at the start: {error.message}")

    async def _make_room(self, name: str) -> bool:
        return await self.host.loads.make_room(name)

    def pids(self) -> list[int]:
        return self.host.pids()

    def kill(self) -> None:
        self._note.close()
        self.host.kill_workers()

    async def explain(self) -> dict[str, Any]:
        return self._keep_warm.snapshot()

    async def close(self) -> None:
        self._keep_warm.close()
        await self.host.end()
        self._note.close()


class KeepWarmDriver:
    """Makes wishes and pins of one host. Starts at once; `close` it with the host."""

    def __init__(
        self, schedules: tuple[Schedule, ...], host: ModelHost, *, clock: Clock, call_at: CallAt
    ) -> None:
        self._keeper = KeepWarm(schedules)
        self._host = host
        self._clock = clock
        self._call_at = call_at
        self._timer: Timer | None = None
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def snapshot(self) -> dict[str, Any]:
        return self._keeper.snapshot()

    def _set_timer(self) -> None:
        when = self._keeper.next_deadline()
        if when is not None:
            sleep_s = min(max(_SLEEP_S_MIN, when - self._clock.wall()), _SLEEP_S_MAX)
            self._timer = self._call_at(self._clock.monotonic() + sleep_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._host.state != "ready":
            return
        when, now = self._keeper.next_deadline(), self._clock.wall()
        if when is not None and now >= when:
            for action in self._keeper.on_timer(now=now):
                kept = isinstance(action, Keep)
                _LOG.info(
                    "model %s: %s: %s", action.model, "kept" if kept else "let go", action.reason
                )
                self._host.explicit.pin(action.model, kept)
                if kept:
                    self._host.explicit.wish(action.model)
        self._set_timer()
