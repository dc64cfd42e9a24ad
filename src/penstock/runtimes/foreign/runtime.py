"""The process runtime: any program that answers GET /ping and POST /invocations.

A PayloadRuntime over one foreign server; a lane is one connection to it. Headers that the container
contract names are passed on, and no others. A program that ends is started again by the rule of
`supervision`; requests it had not answered are given back. Where several were under way, any of
them may have ended it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from penstock.clock import Clock
from penstock.core.retry import blamed
from penstock.errors import ModelError
from penstock.runtimes.base import (
    NOT_BEGUN,
    LaneListener,
    LoadContext,
    Payload,
    PayloadReply,
    Returned,
)
from penstock.runtimes.confinement.walls import around_program, make_scratch, remove_scratch
from penstock.runtimes.foreign.http_connection import HttpAnswer, HttpConnection
from penstock.runtimes.foreign.server import ForeignServer
from penstock.runtimes.workers.environment import run_s_max, worker_environment
from penstock.runtimes.workers.supervised import Supervised
from penstock.wire.frames import RequestMeta, decode_request_meta

_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"


class ProcessRuntime(Supervised[ForeignServer]):
    """Made by `start`. See `base.PayloadRuntime`."""

    def __init__(
        self, context: LoadContext, listener: LaneListener, *, clock: Clock | None = None
    ) -> None:
        self.lanes = max(1, context.description.lanes)
        super().__init__(context, listener, serves=range(self.lanes), clock=clock)
        self.shares_worker = self.lanes > 1
        self._under_way: set[_Batch] = set()
        self._scratch = make_scratch()
        self._environment = worker_environment(context, self._scratch) | {
            "HOME": os.environ.get("HOME", str(self._scratch))  # a program of the operator's
        }
        self._run_s_max = run_s_max(self._environment)
        self._connections: list[HttpConnection | None] = [None] * self.lanes
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, context: LoadContext, listener: LaneListener) -> ProcessRuntime:
        """Raises ModelError if the program does not become healthy."""
        if not context.description.command:
            raise ModelError(
                "no-command",
                "the model names no command to run",
                hint="Give `command` in model.yaml, or map the image to a command.",
            )
        runtime = cls(context, listener)
        await runtime.begin()
        return runtime

    async def spawn(self) -> ForeignServer:
        server = ForeignServer(self._context, self.gone)
        walls = around_program(self._context, self._scratch)
        await server.start(self._environment, walls)
        return server

    def invoke(
        self,
        lane: int,
        batch: Sequence[Payload],
        done: Callable[[list[PayloadReply | Returned]], None],
    ) -> None:
        """The payloads of a batch go out one after the other on the lane's connection."""
        run = _Batch(batch, done)
        self._next(lane, run)

    def _next(self, lane: int, run: _Batch) -> None:
        if len(run.replies) == len(run.batch):
            run.done(list(run.replies))
            return
        connection = self._connections[lane]
        if connection is None or not connection.is_open:
            self._do(self._connect_then(lane, run))
            return
        self._post(lane, connection, run)

    async def _connect_then(self, lane: int, run: _Batch) -> None:
        server = self.process
        try:
            if server is None:
                raise OSError("no server")
            connection = HttpConnection(server.port)
            await connection.open()
        except OSError:
            self._give_back(run, NOT_BEGUN)
            return
        self._connections[lane] = connection
        self._post(lane, connection, run)

    def _give_back(self, run: _Batch, first: Returned) -> None:
        """What was answered stays answered; the rest goes to another copy, had not begun but one.

        `first`: what is said of the request that was under way.
        """
        behind = len(run.batch) - len(run.replies) - 1
        run.done([*run.replies, first, *([NOT_BEGUN] * behind)])

    def _post(self, lane: int, connection: HttpConnection, run: _Batch) -> None:
        payload = run.batch[len(run.replies)]
        meta = decode_request_meta(payload.meta)
        timer = self._loop.call_later(self._run_s_max, self._hang, connection, run)
        for other in self._under_way:
            other.company = True
        run.company = bool(self._under_way)
        self._under_way.add(run)

        def answered(answer: HttpAnswer | None) -> None:
            timer.cancel()
            self._under_way.discard(run)
            if answer is None and not run.hung:
                died = Returned(blamed(int(run.company)))
                self._give_back(run, NOT_BEGUN if self.closed else died)
                return
            run.replies.append(self._reply(answer))
            run.hung = False
            if answer is not None:
                self.served()
            self._next(lane, run)

        connection.send("POST", "/invocations", request_headers(meta), payload.body, answered)

    def _hang(self, connection: HttpConnection, run: _Batch) -> None:
        run.hung = True
        connection.close()
        if self.process is not None:
            self.process.kill()

    def _reply(self, answer: HttpAnswer | None) -> PayloadReply:
        if answer is None:
            return PayloadReply(
                error=ModelError(
                    "model-timeout",
                    f"the model did not answer within {self._run_s_max:g} s; it was ended",
                    hint="Raise SAGEMAKER_MODEL_SERVER_TIMEOUT if the model needs longer.",
                )
            )
        if not 200 <= answer.status < 300:
            words = answer.body[:4096].decode("utf-8", "replace")
            error = ModelError(
                "model-answered-error",
                f"the model answered {answer.status}: {words[:1000]}",
                original_status=answer.status,
                original_message=words,
            )
            return PayloadReply(error=error)
        return PayloadReply(
            answer.body,
            answer.headers.get("content-type", "application/octet-stream"),
            answer.headers.get(_ATTRIBUTES),
        )

    def cancel(self, lane: int) -> None:
        """A program may stop early when its connection ends; nobody sees the batch any more."""
        connection = self._connections[lane]
        if connection is not None:
            connection.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self.closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            if connection is not None:
                connection.close()
        await super().close()
        remove_scratch(self._scratch)


class _Batch:
    """A batch on its way through one connection."""

    __slots__ = ("batch", "company", "done", "hung", "replies")

    def __init__(
        self,
        batch: Sequence[Payload],
        done: Callable[[list[PayloadReply | Returned]], None],
    ) -> None:
        self.batch = batch
        self.done = done
        self.replies: list[PayloadReply | Returned] = []
        self.company = False  #: the program had other requests while it had this one
        self.hung = False


def request_headers(meta: RequestMeta) -> dict[str, str]:
    """The documented headers of the container contract."""
    named = (
        ("content-type", meta.content_type),
        ("accept", meta.accept),
        (_ATTRIBUTES, meta.custom_attributes),
        ("x-amzn-sagemaker-inference-id", meta.inference_id),
        ("x-amzn-sagemaker-target-model", meta.target_model),
        ("x-amzn-sagemaker-session-id", meta.session_id),
    )
    return {name: value for name, value in named if value is not None}
