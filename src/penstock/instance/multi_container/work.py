"""A request's way through the containers of a model.

    Serial   the first container gets the request with the caller's content type; each following one
             gets the answer before it, with the content type of that. The caller's Accept is for
             the last container; the others are asked for their own default
             (SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT of their Environment, where they have one).
    Direct   one container gets the request as it came.

A container's copy has the guarantee of `instance.copy`: it answers each request once. So this does,
too. An error names the container it comes from. Where a container gives a request back, the whole
request goes back: the way begins anew on another copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import orjson

from penstock.clock import Clock
from penstock.core.batching.batcher import RunBatch
from penstock.errors import CallerError, ModelError, PenstockError, from_dict
from penstock.instance.copy import Copy, Work
from penstock.instance.loading.loaded import Loaded
from penstock.instance.request import ReplySink, Request
from penstock.instance.warm_up import elsewhere
from penstock.metrics.counts.container_delta import ContainerDelta
from penstock.wire import frames
from penstock.wire.frames import ReplyMeta, RequestMeta

_DEFAULT_ACCEPT: Final = "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"
#: The front doors whose requests a container's server understands.
_DOORS: Final = ("runtime", "admin")


class Container:
    """One of a model's containers, with a copy that takes its requests."""

    def __init__(
        self,
        hostname: str,
        loaded: Loaded,
        environment: Mapping[str, str],
        *,
        clock: Clock,
        on_state: Callable[[str, PenstockError | None], None],
    ) -> None:
        self.hostname = hostname
        self.loaded = loaded
        self.accept_default = environment.get(_DEFAULT_ACCEPT)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._turning = False
        self._counts = ContainerDelta()
        self.copy: Copy = loaded.copy(
            0, clock=clock, call_at=self._call_at, elsewhere=elsewhere, on_state=on_state
        )

    def ask(self, request: Request, now: float) -> None:
        """Errors come to the request's sink, maybe during this call."""
        self.copy.accept(request, now)
        if not self._turning:
            # Requests that come in one turn of the loop form one batch, if they fit.
            self._turning = True
            self._loop.call_soon(self._turn)

    def counted(self, status: int, latency_s: float) -> None:
        """It answered a request; `status`: as `ContainerDelta.count` has it."""
        self._counts.count(status, latency_s)

    def take_counts(self) -> dict[str, Any] | None:
        """What it did since the last call; None where that is nothing."""
        taken, self._counts = self._counts, ContainerDelta()
        return taken.to_dict() if taken.invocations else None

    def _turn(self) -> None:
        self._turning = False
        self.copy.turn(self._clock.monotonic())

    def _call_at(self, at: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(0.0, at - self._clock.monotonic()), callback)


class ContainersWork(Work):
    #: If one container has no worker, no request can be answered.
    one_worker = True

    def __init__(self, containers: Sequence[Container], *, direct: bool) -> None:
        self._containers = tuple(containers)
        self._by_name = {each.hostname: each for each in containers}
        self._direct = direct
        self._under_way: dict[Request, _Way] = {}

    def run(self, action: RunBatch, items: list[Any]) -> None:
        (request,) = items
        self._copy.batches += 1
        way = self._under_way[request] = _Way(self, self._copy, request, action)
        asyncio.get_running_loop().call_soon(way.begin)

    def steps(self, asked: RequestMeta) -> tuple[Container, ...]:
        """The containers that get the request, in order. Raises CallerError."""
        if asked.door not in _DOORS:
            raise CallerError(
                "door-not-supported",
                f"a model of several containers takes no requests of the protocol {asked.door}",
                hint="Call it with InvokeEndpoint.",
            )
        if not self._direct:
            return self._containers
        names = ", ".join(self._by_name)
        if asked.target_container is None:
            raise CallerError(
                "target-container-required",
                "The endpoint needs a TargetContainerHostname: its model has the Mode Direct.",
                hint=f"Name one of its containers: {names}.",
            )
        found = self._by_name.get(asked.target_container)
        if found is None:
            raise CallerError(
                "target-container-unknown",
                f"The endpoint has no container {asked.target_container}.",
                hint=f"Name one of its containers: {names}.",
            )
        return (found,)

    def over(self, request: Request, lane: int, *, timed: bool) -> None:
        """The request needs its lane no more."""
        if self._under_way.pop(request, None) is not None:
            self._copy.lane_freed(lane, timed=timed)

    def cancelled(self, request: Request) -> None:
        way = self._under_way.get(request)
        if way is not None:
            way.cancel()

    def paced(self, request: Request, *, waits: bool) -> None:
        way = self._under_way.get(request)
        if way is not None:
            way.pace(waits=waits)

    def status(self) -> dict[str, Any]:
        series = [
            {**one, "target_model": each.hostname}
            for each in self._containers
            for one in each.copy.status().get("code_metrics", ())
        ]
        return {"code_metrics": series} if series else {}

    def explain(self) -> dict[str, Any]:
        return {"containers": {each.hostname: each.copy.explain() for each in self._containers}}


class _Way(ReplySink):
    """One request under way: the sink of its request to each container."""

    __slots__ = (
        "_action", "_asked", "_at", "_began", "_container", "_copy", "_head", "_inner", "_loop",
        "_pieces",
        "_request", "_started", "_steps", "_work",
    )  # fmt: skip

    def __init__(
        self, work: ContainersWork, copy: Copy, request: Request, action: RunBatch
    ) -> None:
        self._work = work
        self._copy = copy
        self._request = request
        self._action = action
        self._started = copy.clock.monotonic()
        self._loop = asyncio.get_running_loop()
        self._asked = frames.decode_request_meta(request.meta)
        self._steps: tuple[Container, ...] = ()
        self._at = 0  #: the place of the container that has it
        self._began = self._started  #: when that got it
        self._container: Container | None = None
        self._inner: Request | None = None  #: the request to that
        self._head = b""  #: meta of an answer that comes in pieces, which the next container gets
        self._pieces: list[bytes] = []

    def begin(self) -> None:
        request = self._request
        if request.answered:
            self._work.over(request, self._action.lane, timed=False)
            return
        try:
            self._steps = self._work.steps(self._asked)
        except CallerError as error:
            self._fail(error)
            return
        body, request.body = request.body, b""
        self._ask(self._asked, body)

    def _ask(self, meta: RequestMeta, body: bytes) -> None:
        """Sends the request to the container whose turn it is."""
        request, container = self._request, self._steps[self._at]
        if not self._is_last:
            meta = meta._replace(accept=container.accept_default, parameters=None)
        now = self._copy.clock.monotonic()
        inner = Request(
            self, 0, frames.encode_request_meta(meta), body, now,
            request.deadline, request.priority, request.alone,
        )  # fmt: skip
        self._container, self._inner, self._began = container, inner, now
        container.ask(inner, now)

    @property
    def _is_last(self) -> bool:
        return self._at == len(self._steps) - 1

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        container, inner = self._container, self._inner
        if container is not None and inner is not None:
            container.copy.cancel(inner)
            self._loop.call_soon(self._over)

    def _over(self) -> None:
        self._work.over(self._request, self._action.lane, timed=False)

    def pace(self, *, waits: bool) -> None:
        container, inner = self._container, self._inner
        if container is not None and inner is not None and self._is_last:
            container.copy.pace(inner, waits=waits)

    # Methods of ReplySink

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self._is_last and not self._request.answered and self._request.sink.full

    def when_taken(self, go_on: Callable[[], None]) -> None:
        self._request.sink.when_taken(go_on)

    def forget(self, ident: int) -> None:
        return

    def send(self, frame: bytes) -> None:
        size, kind, flags, meta_bytes, _ = frames.HEAD.unpack_from(frame)
        if kind != frames.CHUNK:
            # Later: it may be an error that the container's copy reports while it takes the request
            self._loop.call_soon(self._ended, frame)
            return
        at = frames.HEAD.size
        if self._is_last:
            request = self._request
            if not request.answered:
                request.alone = False  # it did not kill the process
                head = frames.HEAD.pack(size, kind, flags, meta_bytes, request.ident)
                request.sink.send(head + frame[at:])
            return
        if meta_bytes:
            self._head = frame[at : at + meta_bytes]
        self._pieces.append(frame[at + meta_bytes :])

    def _ended(self, frame: bytes) -> None:
        request = self._request
        if request.answered:
            self._over()
            return
        (read,) = frames.FrameDecoder(frames.FROM_INSTANCE).feed(frame)
        if read.kind == frames.RETURNED:
            self._over()
            self._copy.give_back(request, read.payload.decode())
            return
        reply = frames.decode_reply(read.payload, read.meta_bytes)
        error = from_dict(orjson.loads(reply.body)) if read.kind == frames.ERROR else None
        latency_s = self._copy.clock.monotonic() - self._began
        cast(Container, self._container).counted(_status_of(reply, error), latency_s)
        if error is not None:
            self._fail(self._named(error))
        elif self._is_last:
            self._answer(read.kind, reply)
        else:
            self._pass_on(reply)

    def _pass_on(self, reply: frames.Reply) -> None:
        """The answer becomes the next container's request."""
        body, head = reply.body, reply.meta
        if self._pieces:
            body, head = b"".join((*self._pieces, body)), self._head
            self._head, self._pieces = b"", []
        self._at += 1
        try:
            self._ask(_next(self._asked, frames.decode_reply_meta(head)), body)
        except frames.FrameError as error:
            self._at -= 1
            self._fail(self._named(ModelError("head-too-large", error.message)))

    def _answer(self, kind: int, reply: frames.Reply) -> None:
        request, action = self._request, self._action
        queue_us, run_us = self._times()
        self._copy.requests += 1
        self._copy.run_us += run_us
        self._work.over(request, action.lane, timed=True)
        frame = frames.encode_reply(
            request.ident,
            kind=kind,
            status=reply.status,
            batch_rows=1,
            lane=action.lane,
            reason=frames.BATCH_REASON_CODES.get(action.reason, 0),
            queue_us=queue_us,
            run_us=run_us,
            lane_us=run_us,
            meta=reply.meta,
            body=reply.body,
        )
        self._copy.answer(request, frame)

    def _fail(self, error: PenstockError) -> None:
        queue_us, run_us = self._times()
        self._work.over(self._request, self._action.lane, timed=False)
        self._copy.fail(self._request, error, queue_us=queue_us, run_us=run_us)

    def _times(self) -> tuple[int, int]:
        now = self._copy.clock.monotonic()
        queue_us = int((self._started - self._request.received) * 1e6)
        return queue_us, int((now - self._started) * 1e6)

    def _named(self, error: PenstockError) -> PenstockError:
        """The error with the container that it comes from. What a container refuses of another's
        answer is no caller's mistake."""
        hostname = cast(Container, self._container).hostname
        if isinstance(error, CallerError) and self._at:
            error = ModelError(
                error.code, error.message, hint=error.hint, original_status=error.status
            )
        if isinstance(error, ModelError):
            error.container = hostname
        error.message = f"container {hostname}: {error.message}"
        return error


def _status_of(reply: frames.Reply, error: PenstockError | None) -> int:
    """What the container answered, as its own server would have said it."""
    if error is None:
        return reply.status
    return error.original_status if isinstance(error, ModelError) else error.status


def _next(asked: RequestMeta, answered: ReplyMeta) -> RequestMeta:
    return asked._replace(
        content_type=answered.content_type, json_header_bytes=answered.json_header_bytes
    )
