"""Waiting for what is to come true: by looking again and again, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], what: str = "it", seconds: float = 30.0) -> Any:
    """Polls until `condition` gives something true, and returns that; fails with `what`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come to pass within {seconds} s")


async def until(
    condition: Callable[[], Any],
    what: str | Callable[[], object] = "it",
    seconds: float = 30.0,
) -> Any:
    """As `wait_until`, on a loop. `condition` may be a coroutine function; `what` may be a function
    that says how things are when time is up."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() >= deadline:
            story = what if isinstance(what, str) else what()
            raise AssertionError(f"{story} did not come to pass within {seconds} s")
        await asyncio.sleep(0.005)
