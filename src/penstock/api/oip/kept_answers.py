"""Answers that are asked for again and again, made once for all who ask at the same time.

Each is kept for a moment: what strangers ask often must not be asked of hosts and buckets as often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from penstock.clock import Clock

Answer = TypeVar("Answer")


class KeptAnswers(Generic[Answer]):
    """At most `count_max`, each for `seconds`; the oldest go first. Errors are not kept."""

    def __init__(self, clock: Clock, *, seconds: float, count_max: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._count_max = count_max
        self._held: dict[Any, tuple[float, asyncio.Task[Answer]]] = {}  #: key -> (asked at, answer)

    async def get(self, key: Any, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Raises what `make` raises."""
        now = self._clock.monotonic()
        asked_at, task = self._held.get(key, (0.0, None))
        fresh = task is not None and (
            not task.done()
            or (now < asked_at + self._seconds and not task.cancelled() and not task.exception())
        )
        if task is None or not fresh:
            self._held.pop(key, None)
            if len(self._held) >= self._count_max:
                del self._held[next(iter(self._held))]
            task = asyncio.get_running_loop().create_task(make())
            self._held[key] = now, task
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(task)

    def forget(self, key: Any) -> None:
        """What is kept is not true any more."""
        self._held.pop(key, None)
