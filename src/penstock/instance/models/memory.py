"""Measures the memory of a host of target models, for the budget that its models share."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Collection, Mapping
from typing import Any

from penstock.core.residency import Footprint
from penstock.instance.memory.process_usage import proportional_bytes, rss_bytes, tree_pids
from penstock.metrics.item_failures import apart
from penstock.runtimes.workers.memory import give_back_freed

#: Time between measurements during a load; a shorter peak may be missed.
_LOOK_LOADING_S = 0.1


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
    return {pid: rss_bytes(pid) for pid in tree_pids(os.getpid())}


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
