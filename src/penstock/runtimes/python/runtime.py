"""The python runtime: the model's own code in worker processes, one per lane.

A PayloadRuntime. Workers that die are started again by the rule of `supervision`; the instance
hears of it through `listener` and keeps requests away from a lane without a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.cleanup import shielded
from penstock.clock import Clock
from penstock.runtimes.base import LaneListener, LoadContext, Payload
from penstock.runtimes.confinement.walls import around_code, make_scratch, remove_scratch
from penstock.runtimes.python.lane import Done, Lane
from penstock.runtimes.workers.environment import worker_environment


class PythonRuntime:
    """Made by `start`. See `base.PayloadRuntime` for `invoke`, `cancel` and `close`."""

    def __init__(
        self, context: LoadContext, listener: LaneListener, *, clock: Clock | None = None
    ) -> None:
        self.lanes = max(1, context.description.lanes)
        self.description = context.description
        self._scratch = make_scratch()
        init = init_message(context)
        environment = worker_environment(context, self._scratch)
        walls = around_code(context, self._scratch)
        self._lanes = [
            Lane(number, context, listener, init, environment, walls, clock)
            for number in range(self.lanes)
        ]

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> PythonRuntime:
        """Starts all workers. Raises ModelError if one cannot load the model."""
        runtime = cls(context, listener)
        try:
            for lane in runtime._lanes:
                await lane.begin()
        except BaseException:
            await shielded(runtime.close())
            raise
        return runtime

    @property
    def pids(self) -> list[int]:
        return [pid for lane in self._lanes for pid in lane.pids]

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        self._lanes[lane].invoke(batch, done)

    def cancel(self, lane: int) -> None:
        """A Python function cannot be stopped without losing the model: it finishes. What it calls
        ends."""
        self._lanes[lane].unwanted()

    async def close(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self._lanes))
        remove_scratch(self._scratch)

    def kill(self) -> None:
        """At once, without waiting: the instance itself is ending."""
        for lane in self._lanes:
            lane.kill()


def init_message(context: LoadContext) -> dict[str, Any]:
    """What the worker needs to know of the model."""
    description = context.description
    requirements = Path(description.file).parent / "requirements.txt"
    has_requirements = (context.model_dir / requirements).is_file()
    return {
        "model_dir": str(context.model_dir),
        "file": description.file,
        "name": description.name or context.endpoint_name,
        "version": description.version,
        "triton_python": description.triton_python,
        "calls": list(context.models.names) if context.models is not None else [],
        "rows_max": description.batching.rows_max,
        "inputs": [[each.name, each.dtype, list(each.shape)] for each in description.inputs],
        "outputs": [[each.name, each.dtype, list(each.shape)] for each in description.outputs],
        "parameters": dict(description.parameters),
        "requirements": str(requirements) if has_requirements else "",
    }
