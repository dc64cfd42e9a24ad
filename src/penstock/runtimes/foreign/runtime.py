"""The process runtime: any program that answers GET /ping and POST /invocations.

A PayloadRuntime over one foreign server; a lane is one connection to it (`posting`).

GET /execution-parameters, which few containers implement, says how they take batch transforms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from penstock.runtimes.base import LaneListener, LoadContext, Payload, PayloadRuntime
from penstock.runtimes.foreign.posting import Done, ForeignProgram, Posting
from penstock.runtimes.foreign.server import ask_once
from penstock.runtimes.workers.environment import run_s_max

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
    return await ProcessRuntime(context, listener).begin()


class ProcessRuntime(ForeignProgram):
    """Use after `begin`. See `base.PayloadRuntime`."""

    def __init__(self, context: LoadContext, listener: LaneListener) -> None:
        self.lanes = max(1, context.description.lanes)
        super().__init__(context, listener, serves=range(self.lanes))
        self.shares_worker = self.lanes > 1
        self._posting = Posting(self.lanes, self, run_s_max=run_s_max(self._environment))

    async def execution_parameters(self) -> dict[str, Any] | None:
        """What the container says about batch transforms; None while it is not running."""
        return None if self.port is None else await execution_parameters(self.port)

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        self._posting.invoke(lane, batch, done)

    def cancel(self, lane: int) -> None:
        self._posting.cancel(lane)

    async def close(self) -> None:
        self.closed = True
        await self._posting.end_posts()
        await super().close()
