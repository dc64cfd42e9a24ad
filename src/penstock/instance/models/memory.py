"""Memory of a host of target models: measured, for the budget that its models share, and what a
model is expected to take beside others, corrected by earlier loads."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.core.machine.room import MEASURED
from penstock.core.models.memory_need import KinMemory, MemoryObserved, beside_others
from penstock.core.residency import Footprint
from penstock.fleet.machine import resident_bytes
from penstock.instance.loading.load import Prepared
from penstock.instance.memory import facts as records
from penstock.instance.memory.facts import facts_of
from penstock.metrics.item_failures import apart
from penstock.runtimes import registry
from penstock.runtimes.record import Interface
from penstock.runtimes.workers.memory import give_back_freed, tree_pids

#: Time between measurements during a load; a shorter peak may be missed.
_LOOK_LOADING_S = 0.1


def proportional_bytes(pid: int) -> int:
    """Resident memory with each page divided by the number of its users, file pages included: the
    sum over processes is their total. Where the kernel does not report it, all resident memory."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return next(
            int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return resident_bytes(pid)


def footprint() -> Footprint:
    """Memory of this process and all below it, measured by the operating system. File pages that
    they have mapped count, once: a compiled model that is evicted from the page cache is slow."""
    return Footprint(host_bytes=sum(proportional_bytes(pid) for pid in tree_pids(os.getpid())))


class Meter:
    """Measures the host's memory. A full measurement divides pages by the number of their users,
    which takes 10 ms of a core per GB: callers do not wait for that. Between full measurements,
    changes are followed by resident memory, which costs almost nothing."""

    def __init__(self) -> None:
        #: The last full measurement, and the resident memory at that time: process -> bytes.
        self._last: tuple[Footprint, dict[int, int]] = Footprint(), {}

    async def measured(self) -> Footprint:
        """Makes a full measurement."""
        return await asyncio.to_thread(self._measured)

    async def rested(self, runtimes: Mapping[str, Any]) -> Footprint:
        """Measures after these runtimes (by name) have given back what runs and loads left."""

        def work() -> Footprint:
            _rest(runtimes)
            return self._followed()

        return await asyncio.to_thread(work)

    async def given_back(self) -> Footprint:
        """Measures after memory that a model left was returned to the operating system.

        A host freezes no model for the garbage collector (an instance with one model does): frozen
        objects would never be freed once their model is gone.
        """
        gc.collect()
        return await asyncio.to_thread(self._given_back)

    def _given_back(self) -> Footprint:
        give_back_freed()
        return self._followed()

    def _measured(self) -> Footprint:
        whole = footprint()
        self._last = whole, _resident()
        return whole

    def _followed(self) -> Footprint:
        """The last full measurement with later changes; a new one, where processes came or went
        since."""
        whole, before = self._last
        now = _resident()
        if now.keys() != before.keys():
            return self._measured()
        growth_bytes = sum(now.values()) - sum(before.values())
        return Footprint(host_bytes=max(0, whole.host_bytes + growth_bytes))


def _resident() -> dict[int, int]:
    """Shared pages count in full."""
    return {pid: resident_bytes(pid) for pid in tree_pids(os.getpid())}


def footprints(pids: Mapping[str, Collection[int]]) -> dict[str, Footprint]:
    """Name -> memory of its own processes, with all below them."""
    return {
        name: Footprint(
            host_bytes=sum(proportional_bytes(each) for pid in own for each in tree_pids(pid))
        )
        for name, own in pids.items()
    }


async def rest(runtimes: Mapping[str, Any]) -> None:
    """Returns memory that runs have left in idle models (by name) to the operating system."""
    await asyncio.to_thread(_rest, runtimes)


def _rest(runtimes: Mapping[str, Any]) -> None:
    for name, runtime in runtimes.items():
        with apart("target-models", name):
            release = getattr(runtime, "release_memory", None)
            if release is not None:
                release()
    give_back_freed()


class Height:
    """The peak of resident memory inside of its block. Shared pages are not told apart."""

    def __init__(self) -> None:
        self._bytes_max = 0
        self._looks: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Height:
        self._looks = asyncio.create_task(self._look_on())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._looks is not None:
            self._looks.cancel()

    async def given_back_bytes(self) -> int:
        """The resident memory that was given back."""
        return max(0, self._bytes_max - await _resident_bytes())

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_LOADING_S)
            self._bytes_max = max(self._bytes_max, await _resident_bytes())


async def _resident_bytes() -> int:
    return sum((await asyncio.to_thread(_resident)).values())


def settle() -> None:
    """Freezes the process's objects from before its first model: collecting them each time that a
    model goes takes 40 ms, in which no request is answered."""
    gc.collect()
    gc.freeze()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The memory that a model will take."""

    need: Footprint  #: at its peak, while it loads
    kept: Footprint  #: after the load
    measured: bool  #: True: measured before, on this machine
    sized: bool  #: True: this host has loaded it, or others of its kind and size


class Needs:
    """Estimates by a model's own record; else by the rule, corrected by models of its kind. Every
    method blocks on the disk and is called on threads, several at once."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._kin = KinMemory()
        self._kin_is_free = threading.Lock()  #: guards data that several threads read and change
        self._runtimes: set[str] = set()  #: runtimes whose libraries this process has loaded

    def of(self, model: Prepared) -> Expected:
        kind = model.context.description.runtime
        first = kind not in self._runtimes
        facts = facts_of(model.context)
        seen = records.read(self._record(model))
        need = beside_others(facts, seen, first=first)
        if seen is not None and need.basis == MEASURED:
            return Expected(
                need=Footprint(host_bytes=need.memory_bytes),
                kept=Footprint(host_bytes=seen.own_bytes_max),
                measured=True,
                sized=not first,
            )
        estimated_bytes = need.memory_bytes
        with self._kin_is_free:
            corrected_bytes = self._kin.corrected(kind, estimated_bytes)
            kept_bytes = self._kin.kept(kind, estimated_bytes) if _by_files(kind) else None
        bytes_max = max(corrected_bytes, need.least_bytes)
        return Expected(
            need=Footprint(host_bytes=bytes_max),
            kept=Footprint(host_bytes=bytes_max if kept_bytes is None else kept_bytes),
            measured=False,
            sized=kept_bytes is not None,
        )

    def learn(self, model: Prepared, seen: MemoryObserved) -> Footprint:
        """Records a load that ran alone. Returns the memory that it is charged with.

        The first model of a runtime also loads its libraries, which stay when the model goes. They
        belong to no model, so the rule's size for them is subtracted; and no record of that load is
        kept.
        """
        kind = model.context.description.runtime
        facts = facts_of(model.context)
        first = kind not in self._runtimes
        rule = beside_others(facts, None, first=first)
        with self._kin_is_free:
            self._kin.learn(
                kind,
                estimated_bytes=rule.memory_bytes,
                peak_bytes=seen.load_bytes_max,
                kept_bytes=seen.own_bytes_max,
            )
        self._runtimes.add(kind)
        if first:
            own_bytes = beside_others(facts, None, first=False).memory_bytes
            libraries_bytes = rule.memory_bytes - own_bytes
            own_bytes = max(own_bytes, seen.own_bytes_max - libraries_bytes)
            return Footprint(host_bytes=min(own_bytes, seen.own_bytes_max))
        records.write(self._record(model), seen)
        return Footprint(host_bytes=seen.own_bytes_max)

    def _record(self, model: Prepared) -> Path:
        return records.record_path(
            self._cache_dir, model.digest, model.context, folder="memory-beside"
        )


def _by_files(runtime: str) -> bool:
    """Whether the runtime's models take the memory that their files suggest: then two models with
    files of one size take the same. Code may read anything."""
    return registry.record(runtime).has(Interface.TENSORS)
