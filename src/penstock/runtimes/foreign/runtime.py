"""The process runtime: any program that answers GET /ping and POST /invocations.

The program is kept running: one that ends is started again by the rule of `workers.supervised`.
`ProcessRuntime` is a PayloadRuntime over one of them; a lane is one connection to it, with one
request after another.

Headers that the container contract names are passed on, and no others. When a server ends, its
unanswered requests are given back. Where several were running, any of them may have caused the end,
except where we ended the server because one of them hung.

GET /execution-parameters, which few containers implement, says how they take batch transforms.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import orjson

from penstock.clock import Clock
from penstock.core.blame.poison_requests import reason_of_death
from penstock.errors import ModelError
from penstock.runtimes import registry
from penstock.runtimes.base import (
    NOT_BEGUN,
    LaneListener,
    LoadContext,
    Payload,
    PayloadReply,
    PayloadRuntime,
    Returned,
)
from penstock.runtimes.confinement.walls import (
    around_program,
    make_scratch,
    remove_scratch,
    with_container_paths,
)
from penstock.runtimes.foreign.server import ForeignServer, ask_once, request_at
from penstock.runtimes.foreign.streamed import StreamedAnswer, content_of
from penstock.runtimes.record import imported
from penstock.runtimes.workers.process import run_s_max, worker_environment
from penstock.runtimes.workers.supervised import Supervised
from penstock.wire.frames import decode_request_meta
from penstock.wire.http_client import (
    HttpAnswer,
    HttpClientConnection,
    HttpClientSpec,
    WholeAnswer,
    connect,
)

INVOCATIONS: Final = "/invocations"  #: where requests are sent, unless the model says otherwise
_PARAMETERS_S_MAX: Final = 5.0

Done = Callable[[list[PayloadReply | Returned]], None]


class ForeignProgram(Supervised[ForeignServer]):
    """A server that is kept running, and the requests that it computes, of all senders."""

    def __init__(
        self,
        context: LoadContext,
        listener: LaneListener,
        *,
        serves: Sequence[int] = (0,),
        clock: Clock | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(context, listener, serves=serves, clock=clock)
        self.hung = False  #: a request hung, and the program was ended for it
        self._runs: set[_Batch] = set()
        self._scratch = make_scratch()
        self._environment = worker_environment(context, self._scratch) | {
            "HOME": os.environ.get("HOME", str(self._scratch)),  # an operator's program
            **(variables or {}),
        }

    async def spawn(self) -> ForeignServer:
        record = registry.record(self._context.description.runtime)
        server: ForeignServer = imported(record.server)(self._context, self.gone)
        walls = around_program(self._context, self._scratch)
        if walls is not None:
            walls = with_container_paths(walls, self._context)
        await server.start(self._environment, walls)
        self.hung = False
        return server

    @property
    def pids(self) -> list[int]:
        return self.process.pids if self.process is not None else []

    @property
    def at(self) -> HttpClientSpec | None:
        """How one connects to it; None while no program is running."""
        return self.process.at if self.process is not None else None

    def end_hung(self) -> None:
        """Ends the program, which is then started again."""
        if self.process is not None:
            self.process.kill()

    def begin_run(self, run: _Batch) -> None:
        for other in self._runs:
            other.company = True
        run.company = bool(self._runs)
        self._runs.add(run)

    def end_run(self, run: _Batch) -> None:
        self._runs.discard(run)

    async def close(self) -> None:
        await super().close()
        remove_scratch(self._scratch)


class Posting:
    """Sends batches. `path` and `headers`: of every request."""

    streams = True  #: answers may go to `Payload.stream`

    def __init__(
        self,
        lanes: int,
        server: ForeignProgram,
        *,
        run_s_max: float,
        path: str = INVOCATIONS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._server = server
        self._run_s_max = run_s_max
        self._path = path
        self._headers = dict(headers or {})
        self._loop = asyncio.get_running_loop()
        self._connections: list[HttpClientConnection | None] = [None] * lanes
        self._tasks: set[asyncio.Task[None]] = set()

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        """Sends the payloads of a batch one after the other on the lane's connection."""
        self._next(lane, _Batch(batch, done))

    def again(self, answer: HttpAnswer) -> Awaitable[bool] | None:
        """What to do about an answer that is not about the request itself. If it comes to True, the
        request is sent once more."""
        return None

    def _next(self, lane: int, run: _Batch) -> None:
        if len(run.replies) == len(run.batch):
            run.done(list(run.replies))
            return
        connection = self._connections[lane]
        if connection is None or connection.ended:
            self._do(self._connect_then(lane, run))
            return
        self._post(lane, connection, run)

    async def _connect_then(self, lane: int, run: _Batch) -> None:
        at = self._server.at
        try:
            if at is None:
                raise OSError("no server")
            connection = await connect(at)
        except OSError:
            self._give_back(run, NOT_BEGUN)
            return
        self._connections[lane] = connection
        self._post(lane, connection, run)

    def _give_back(self, run: _Batch, first: Returned) -> None:
        """Keeps the answers that came and gives back all others, as not begun except the first of
        them.

        `first`: the result for the request that was running.
        """
        behind = len(run.batch) - len(run.replies) - 1
        run.done([*run.replies, first, *([NOT_BEGUN] * behind)])

    def _post(self, lane: int, connection: HttpClientConnection, run: _Batch) -> None:
        payload = run.batch[len(run.replies)]
        headers = decode_request_meta(payload.meta).headers() | self._headers
        timer = self._loop.call_later(self._run_s_max, self._hang, connection, run)
        self._server.begin_run(run)

        def answered(answer: HttpAnswer | None) -> None:
            timer.cancel()
            self._server.end_run(run)
            if isinstance(reader, StreamedAnswer) and reader.sent:
                self._streamed(lane, run, whole=answer is not None)
                return
            if answer is None and not run.hung:
                ours = self._server.closed or self._server.hung
                self._give_back(
                    run, NOT_BEGUN if ours else Returned(reason_of_death(int(run.company)))
                )
                return
            again = None if answer is None or run.tried_again else self.again(answer)
            if again is not None:
                run.tried_again = True
                self._do(self._again_then(lane, run, answer, again))
            else:
                self._answered(lane, run, answer)

        request = request_at(connection.spec, "POST", self._path, headers, payload.body)
        reader = (
            WholeAnswer(answered)
            if payload.stream is None
            else StreamedAnswer(answered, payload.stream, connection, timer.cancel)
        )
        connection.ask(reader, request)

    def _streamed(self, lane: int, run: _Batch, *, whole: bool) -> None:
        """Ends a streamed answer: it is too late for another copy to give it."""
        broken = ModelError(
            "stream-broken",
            "the model's server ended in the middle of the answer",
            hint="Send the request again; the server starts anew by itself.",
        )
        run.replies.append(PayloadReply(streamed=True, error=None if whole else broken))
        run.tried_again = False
        if whole:
            self._server.served()
        self._next(lane, run)

    async def _again_then(
        self,
        lane: int,
        run: _Batch,
        answer: HttpAnswer | None,
        again: Awaitable[bool],
    ) -> None:
        if await again:
            self._next(lane, run)
        else:
            self._answered(lane, run, answer)

    def _answered(self, lane: int, run: _Batch, answer: HttpAnswer | None) -> None:
        run.replies.append(self.reply(answer))
        run.hung = run.tried_again = False
        if answer is not None:
            self._server.served()
        self._next(lane, run)

    def _hang(self, connection: HttpClientConnection, run: _Batch) -> None:
        run.hung = self._server.hung = True  # before the connection ends
        connection.abort()
        self._server.end_hung()

    def reply(self, answer: HttpAnswer | None) -> PayloadReply:
        """The reply for an answer; None: the request hung."""
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
                hint=f"Requests go to {self._path}; name another path with predict: in model.yaml."
                if answer.status in (404, 405)
                else "",
                original_status=answer.status,
                original_message=words,
            )
            return PayloadReply(error=error)
        return PayloadReply(answer.body, *content_of(answer))

    def cancel(self, lane: int) -> None:
        """Closes the lane's connection: a program may then stop early. The batch gets no
        answers."""
        connection = self._connections[lane]
        if connection is not None:
            connection.abort()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end_posts(self) -> None:
        """Ends its connections; the program goes on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            if connection is not None:
                connection.abort()


class _Batch:
    """A batch on one connection."""

    __slots__ = ("batch", "company", "done", "hung", "replies", "tried_again")

    def __init__(self, batch: Sequence[Payload], done: Done) -> None:
        self.batch = batch
        self.done = done
        self.replies: list[PayloadReply | Returned] = []
        self.company = False  #: the program had other requests at the same time
        self.hung = False
        self.tried_again = False


async def execution_parameters(at: HttpClientSpec) -> dict[str, Any]:
    """`MaxConcurrentTransforms`, `BatchStrategy` and `MaxPayloadInMB`, those that the container
    names; {} if it does not answer or answers no JSON."""
    try:
        answer = await ask_once(at, "GET", "/execution-parameters", timeout_s=_PARAMETERS_S_MAX)
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
        self.streams = Posting.streams
        super().__init__(context, listener, serves=range(self.lanes))
        self.shares_worker = self.lanes > 1
        self._posting = Posting(
            self.lanes,
            self,
            run_s_max=run_s_max(self._environment),
            path=context.description.predict or INVOCATIONS,
        )

    async def execution_parameters(self) -> dict[str, Any] | None:
        """What the container says about batch transforms; None while it is not running."""
        return None if self.at is None else await execution_parameters(self.at)

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        self._posting.invoke(lane, batch, done)

    def cancel(self, lane: int) -> None:
        self._posting.cancel(lane)

    async def close(self) -> None:
        self.closed = True
        await self._posting.end_posts()
        await super().close()
