"""What a host of target models takes, for the budget that its models share."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
from collections.abc import Collection, Mapping
from typing import Any

from penstock.core.residency import Footprint
from penstock.instance.memory.process_usage import proportional_bytes, rss_bytes, tree_pids
from penstock.metrics.item_failures import apart

#: While a model is loaded: a height of it may last no longer.
_LOOK_LOADING_S = 0.1


def footprint() -> Footprint:
    """Of this process and all below it, as the operating system measures. Pages of files that they
    have mapped count, once: a compiled model that is evicted from the page cache is slow."""
    return Footprint(host_bytes=sum(proportional_bytes(pid) for pid in tree_pids(os.getpid())))


class Meter:
    """What the host takes. To divide pages by those who share them costs 10 ms of a core per GB: so
    callers do not wait for that. From one whole look to the next what came and went is followed by
    what is resident, which costs hardly anything."""

    def __init__(self) -> None:
        #: by the last whole look, and what was resident then: process -> bytes
        self._last: tuple[Footprint, dict[int, int]] = Footprint(), {}

    async def measured(self) -> Footprint:
        """By a whole look."""
        return await asyncio.to_thread(self._measured)

    async def rested(self, runtimes: Mapping[str, Any]) -> Footprint:
        """Once these, by name, gave back what runs and loads have left."""

        def work() -> Footprint:
            _rest(runtimes)
            return self._followed()

        return await asyncio.to_thread(work)

    async def given_back(self) -> Footprint:
        """Once what a model has left behind returned to the operating system.

        A host freezes no model for the collector (as an instance with one model does): what is
        frozen would never be found again once its model is gone.
        """
        gc.collect()
        return await asyncio.to_thread(self._given_back)

    def _given_back(self) -> Footprint:
        _trim()
        return self._followed()

    def _measured(self) -> Footprint:
        whole = footprint()
        self._last = whole, _resident()
        return whole

    def _followed(self) -> Footprint:
        """From the last whole look on; by another one, where processes came or went since."""
        whole, before = self._last
        now = _resident()
        if now.keys() != before.keys():
            return self._measured()
        growth_bytes = sum(now.values()) - sum(before.values())
        return Footprint(host_bytes=max(0, whole.host_bytes + growth_bytes))


def _resident() -> dict[int, int]:
    """Pages that others have as well count in full."""
    return {pid: rss_bytes(pid) for pid in tree_pids(os.getpid())}


def footprints(pids: Mapping[str, Collection[int]]) -> dict[str, Footprint]:
    """By name, of processes that are somebody's own, with all below them."""
    return {
        name: Footprint(
            host_bytes=sum(proportional_bytes(each) for pid in own for each in tree_pids(pid))
        )
        for name, own in pids.items()
    }


async def rest(runtimes: Mapping[str, Any]) -> None:
    """What runs have left behind in idle models, by name, returns to the operating system."""
    await asyncio.to_thread(_rest, runtimes)


def _rest(runtimes: Mapping[str, Any]) -> None:
    for name, runtime in runtimes.items():
        with apart("target-models", name):
            release = getattr(runtime, "release_memory", None)
            if release is not None:
                release()
    _trim()


class Height:
    """The most that is resident inside of its block. What processes share is not told apart."""

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
        """What is resident no more."""
        return max(0, self._bytes_max - await _resident_bytes())

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_LOADING_S)
            self._bytes_max = max(self._bytes_max, await _resident_bytes())


async def _resident_bytes() -> int:
    return sum((await asyncio.to_thread(_resident)).values())


def settle() -> None:
    """What a process has before its first model stays: to look through it each time that a model
    goes takes 40 ms, in which nobody is answered."""
    gc.collect()
    gc.freeze()


def _trim() -> None:
    with contextlib.suppress(OSError, AttributeError):  # a libc without it keeps what it keeps
        ctypes.CDLL(None).malloc_trim(0)
