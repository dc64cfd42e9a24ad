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


def resident_bytes() -> int:
    """Of the same processes, at hardly any cost: pages that others have as well count in full."""
    return sum(rss_bytes(pid) for pid in tree_pids(os.getpid()))


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

    def released() -> None:
        for name, runtime in runtimes.items():
            with apart("target-models", name):
                release = getattr(runtime, "release_memory", None)
                if release is not None:
                    release()
        _trim()

    await asyncio.to_thread(released)


class Height:
    """The most that is resident inside of its block. What processes share is not told apart: that
    takes 10 ms of a core per GB, which a load then lacks."""

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
        return max(0, self._bytes_max - await asyncio.to_thread(resident_bytes))

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_LOADING_S)
            self._bytes_max = max(self._bytes_max, await asyncio.to_thread(resident_bytes))


def settle() -> None:
    """What a process has before its first model stays: to look through it each time that a model
    goes takes 40 ms, in which nobody is answered."""
    gc.collect()
    gc.freeze()


async def give_back() -> None:
    """What a model has left behind returns to the operating system.

    A host freezes no model for the collector (as an instance with one model does): what is frozen
    would never be found again once its model is gone.
    """
    gc.collect()
    await asyncio.to_thread(_trim)


def _trim() -> None:
    with contextlib.suppress(OSError, AttributeError):  # a libc without it keeps what it keeps
        ctypes.CDLL(None).malloc_trim(0)
