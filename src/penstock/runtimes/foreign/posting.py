"""Batches of requests to a foreign server: one connection for each lane, one request after another.

Headers that the container contract names are passed on, and no others. When a server ends, its
unanswered requests are given back. Where several were running, any of them may have caused the end,
except where we ended the server because one of them hung.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from penstock.core.blame.poison_requests import reason_of_death
from penstock.errors import ModelError
from penstock.runtimes.base import NOT_BEGUN, Payload, PayloadReply, Returned
from penstock.runtimes.foreign.http import request_at, server_at
from penstock.wire.frames import RequestMeta, decode_request_meta
from penstock.wire.http_client import HttpAnswer, HttpClientConnection, WholeAnswer, connect

ATTRIBUTES: Final = "x-amzn-sagemaker-custom-attributes"
_ATTRIBUTES: Final = ATTRIBUTES.encode()

Done = Callable[[list[PayloadReply | Returned]], None]


class Server(Protocol):
    """The object that keeps the program running."""

    closed: bool  #: ended on purpose: unanswered requests did not cause it

    @property
    def port(self) -> int | None:
        """The port; None while no program is running."""

    def served(self) -> None: ...
    def end_hung(self) -> None:
        """Ends the program, which is then started again."""


class PostsUnderWay:
    """The requests that one program computes, of all senders."""

    def __init__(self) -> None:
        #: A request hung, and the program was ended for it; each program has a new object
        self.hung = False
        self._runs: set[_Batch] = set()

    def begin(self, run: _Batch) -> None:
        for other in self._runs:
            other.company = True
        run.company = bool(self._runs)
        self._runs.add(run)

    def end(self, run: _Batch) -> None:
        self._runs.discard(run)


class Posting:
    """Sends batches. `path` and `headers`: of every request; `under_way`: of the server."""

    def __init__(
        self,
        lanes: int,
        server: Server,
        under_way: PostsUnderWay,
        *,
        run_s_max: float,
        path: str = "/invocations",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._server = server
        self._under_way = under_way
        self._run_s_max = run_s_max
        self._path = path
        self._headers = dict(headers or {})
        self._loop = asyncio.get_running_loop()
        self._connections: list[HttpClientConnection | None] = [None] * lanes
        self._tasks: set[asyncio.Task[None]] = set()

    def invoke(self, lane: int, batch: Sequence[Payload], done: Done) -> None:
        """Sends the payloads of a batch one after the other on the lane's connection."""
        self._next(lane, _Batch(batch, done))

    def again(self, answer: HttpAnswer) -> Coroutine[Any, Any, bool] | None:
        """What to do about an answer that is not about the request itself. If the coroutine returns
        True, the request is sent once more."""
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
        port = self._server.port
        try:
            if port is None:
                raise OSError("no server")
            connection = await connect(server_at(port))
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
        headers = request_headers(decode_request_meta(payload.meta)) | self._headers
        timer = self._loop.call_later(self._run_s_max, self._hang, connection, run)
        self._under_way.begin(run)

        def answered(answer: HttpAnswer | None) -> None:
            timer.cancel()
            self._under_way.end(run)
            if answer is None and not run.hung:
                ours = self._server.closed or self._under_way.hung
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

        request = request_at(connection.spec.port, "POST", self._path, headers, payload.body)
        connection.ask(WholeAnswer(answered), request)

    async def _again_then(
        self,
        lane: int,
        run: _Batch,
        answer: HttpAnswer | None,
        again: Coroutine[Any, Any, bool],
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
        run.hung = self._under_way.hung = True
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
                original_status=answer.status,
                original_message=words,
            )
            return PayloadReply(error=error)
        attributes = answer.headers.get(_ATTRIBUTES)
        return PayloadReply(
            answer.body,
            answer.headers.get(b"content-type", b"application/octet-stream").decode("latin-1"),
            None if attributes is None else attributes.decode("latin-1"),
        )

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

    async def close(self) -> None:
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


def request_headers(meta: RequestMeta) -> dict[str, str]:
    """The headers that the container contract documents."""
    named = (
        ("content-type", meta.content_type),
        ("accept", meta.accept),
        (ATTRIBUTES, meta.custom_attributes),
        ("x-amzn-sagemaker-inference-id", meta.inference_id),
        ("x-amzn-sagemaker-target-model", meta.target_model),
        ("x-amzn-sagemaker-session-id", meta.session_id),
        ("traceparent", meta.traceparent),
        ("tracestate", meta.tracestate),
    )
    return {name: value for name, value in named if value is not None}
