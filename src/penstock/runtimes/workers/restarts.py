"""A worker that died is started again, by the rule of `supervision`, until it is up or given up.

Serves every runtime with processes of its own. Knows neither what is started nor who waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.runtimes.workers.supervision import RestartPolicy


class Restarts:
    """Of one worker. `start` starts it and says so where it is up; it raises PenstockError.

    `failed` hears the last error where the worker is given up.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[None]],
        failed: Callable[[PenstockError], None],
        *,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        self._start = start
        self._failed = failed
        self._clock = clock
        self._log = log
        self._policy = RestartPolicy()
        self._tasks: set[asyncio.Task[None]] = set()

    def served(self) -> None:
        """It answered: deaths before no longer count."""
        self._policy.served()

    def died(self, error: PenstockError) -> None:
        """Plans the next start, or gives up."""
        wait_s = self._policy.died(now=self._clock.monotonic())
        if wait_s is None:
            self._failed(error)
            return
        task = asyncio.get_running_loop().create_task(self._again(wait_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _again(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        try:
            await self._start()
        except PenstockError as error:
            self._log(f"not started again: {error.message}")
            self.died(error)

    async def close(self) -> None:
        """What was planned or under way is broken off."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
