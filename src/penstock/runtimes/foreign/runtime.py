"""The process runtime: any program that answers GET /ping and POST /invocations.

A PayloadRuntime over one foreign server; a lane is one connection to it (`posting`). A program that
ends is started again by the rule of `workers.supervised`.

GET /execution-parameters, which few containers implement, says how they take batch transforms.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import orjson

from penstock.clock import Clock
from penstock.errors import ModelError
from penstock.runtimes.base import LaneListener, LoadContext, Payload, PayloadRuntime
from penstock.runtimes.confinement.walls import around_program, make_scratch, remove_scratch
from penstock.runtimes.foreign.http import ask_once
from penstock.runtimes.foreign.posting import Done, Posting, PostsUnderWay
from penstock.runtimes.foreign.server import ForeignServer
from penstock.runtimes.workers.environment import run_s_max, worker_environment
from penstock.runtimes.workers.supervised import Supervised

_ANSWER_S_MAX: Final = 5.0


async def execution_parameters(port: int) -> dict[str, Any]:
    """`MaxConcurrentTransforms`, `BatchStrategy` and `MaxPayloadInMB`, those that the container
    names; {} if it does not answer or answers no JSON."""
    try:
        answer = await ask_once(port, "GET", "/execution-parameters", timeout_s=_ANSWER_S_MAX)
    except OSError:
        return {}
    if answer is None or answer.status != 200:
        return {}
    try:
        told = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}


async def load(context: LoadContext, listener: LaneListener) -> PayloadRuntime:
    """Loads into the one server of a host of target models, where there is one. Raises
    ModelError."""
    if context.shared_server is not None:
        return await context.shared_server.load(context, listener)
    return await ProcessRuntime.start(context, listener)


class ProcessRuntime(Supervised[ForeignServer]):
    """Made by `start`. See `base.PayloadRuntime`."""

    def __init__(
        self, context: LoadContext, listener: LaneListener, *, clock: Clock | None = None
    ) -> None:
        self.lanes = max(1, context.description.lanes)
        super().__init__(context, listener, serves=range(self.lanes), clock=clock)
        self.shares_worker = self.lanes > 1
        self._scratch = make_scratch()
        self._environment = worker_environment(context, self._scratch) | {
            "HOME": os.environ.get("HOME", str(self._scratch))  # an operator's program
        }
        self._under_way = PostsUnderWay()
        seconds = run_s_max(self._environment)
        self._posting = Posting(self.lanes, self, self._under_way, run_s_max=seconds)

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> ProcessRuntime:
        """Raises ModelError if the program does not become healthy."""
        check_command(context)
        runtime = cls(context, listener)
        await runtime.begin()
        return runtime

    async def spawn(self) -> ForeignServer:
        server = ForeignServer(self._context, self.gone)
        walls = around_program(self._context, self._scratch)
        await server.start(self._environment, walls)
        self._under_way.hung = False
        return server

    @property
    def port(self) -> int | None:
        return self.process.port if self.process is not None else None

    async def execution_parameters(self) -> dict[str, Any] | None:
        """What the container says about batch transforms; None while it is not running."""
        return None if self.port is None else await execution_parameters(self.port)

    def end_hung(self) -> None:
        if self.process is not None:
            self.process.kill()

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        self._posting.invoke(lane, batch, done)

    def cancel(self, lane: int) -> None:
        self._posting.cancel(lane)

    async def close(self) -> None:
        self.closed = True
        await self._posting.close()
        await super().close()
        remove_scratch(self._scratch)


def check_command(context: LoadContext) -> None:
    """Raises ModelError (`no-command`)."""
    if not context.description.command:
        raise ModelError(
            "no-command",
            "the model names no command to run",
            hint="Give `command` in model.yaml, or map the image to a command.",
        )
