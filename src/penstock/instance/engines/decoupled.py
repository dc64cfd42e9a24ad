"""Requests to a decoupled model: each has any number of responses, at any time.

A batch only begins answers: its lane is free once the model's `execute` returns, while its code
goes on to send responses from other threads. Each response leaves at once as a CHUNK, in the order
in which the model sent it, and the one that is marked as final ends the answer.

A response that comes while the connection is full makes the model's next one wait. If that takes
too long, the answer ends with an error: a reader that has stopped must not keep the model's code.
So does a client that reads slowly, for as long as its gateway says; the gateway ends the request of
one that has stopped.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.core.blame.poison_requests import reason_of_death
from penstock.errors import ModelError, PenstockError
from penstock.instance import replies
from penstock.instance.codecs import oip_grpc
from penstock.instance.codecs.base import CodecModel, Decoded
from penstock.instance.codecs.generate import EVENTS_META, GENERATE, GENERATE_STREAM
from penstock.instance.codecs.select import operation_of
from penstock.instance.engines.batches import Batches, BatchRun
from penstock.instance.engines.reshape import Reshapes
from penstock.instance.engines.tensor import PackedTensorEngine, trace_context
from penstock.instance.request import Item, Request
from penstock.runtimes.base import Payload, PayloadReply, Returned
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.runtimes.python.batches import CANCELLED, HELD, SLOTS_MAX
from penstock.runtimes.python.triton_wire import Response, pack_metadata, unpack_answer
from penstock.runtimes.triton_errors import UNSUPPORTED
from penstock.wire import frames

_STREAM_INFER: Final = "stream_infer"
#: The operation of a call by another model, which has no door.
_CALL: Final = ""
#: How long a response may wait for its reader. Half a minute is below the time limits of clients.
HELD_S_MAX: Final = 30.0


class OpenAnswer:
    """A request whose responses may come."""

    __slots__ = (
        "body", "count", "key", "lane", "meta", "paced", "request", "run", "slot", "timer",
    )  # fmt: skip

    def __init__(self, key: int, request: Request, lane: int, slot: int) -> None:
        self.key = key
        self.request = request
        self.lane = lane
        self.slot = slot  #: where the worker finds its marks; 0: it has none
        self.run: BatchRun | None = None  #: the run that began it, once that has ended
        self.count = 0  #: responses so far
        self.body = self.meta = b""  #: of the one response, where the answer is one
        self.timer: asyncio.TimerHandle | None = None  #: set while the connection is full
        self.paced = False  #: its client reads slowly


class DecoupledEngine(PackedTensorEngine):
    """Begins answers. `opened` holds them by key, and `of_request` by request, until they end."""

    def __init__(self, runtime: Any, model: CodecModel, reshapes: Reshapes | None = None) -> None:
        super().__init__(runtime, model, reshapes)
        self.opened: dict[int, OpenAnswer] = {}
        self.of_request: dict[Request, OpenAnswer] = {}
        self._keys = itertools.count(1)
        #: Free slots by lane. What was freed last is taken last: code may still look at its marks.
        self._slots = {lane: _all_slots() for lane in range(runtime.lanes)}

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        asked = frames.decode_request_meta(meta)
        if operation_of(asked) not in (_STREAM_INFER, GENERATE, GENERATE_STREAM):
            raise one_answer_asked(self.model.name)
        return super().decode(meta, body)

    def _payload(self, lane: int, place: int, item: Item) -> Payload:
        request: Any = item
        free = self._slots[lane]
        slot = free.popleft() if free else 0
        self._runtime.mark(lane, slot, CANCELLED if request.answered else 0)
        answer = OpenAnswer(next(self._keys), request, lane, slot)
        self.opened[answer.key] = self.of_request[request] = answer
        self._runtime.opened(lane, request)
        meta = pack_metadata(
            request.metadata or InferMetadata(), trace_context(request.meta),
            key=answer.key, slot=slot,
        )  # fmt: skip
        return Payload(meta, self._packed(item), asked=request)

    def _result(self, reply: PayloadReply | Returned, item: Item) -> Any:
        """An answer that has begun is no result: its responses come by themselves."""
        if isinstance(reply, Returned):
            return reply
        return reply.error if reply.error is not None else {}

    def item_unwanted(self, request: Request) -> None:
        self.closed(request, marks=CANCELLED)

    def closed(self, request: Request, *, marks: int = 0) -> None:
        """Its responses have ended, or nobody wants more of them."""
        answer = self.of_request.pop(request, None)
        if answer is None:
            return
        del self.opened[answer.key]
        self._runtime.opened(answer.lane, request, over=True)
        if answer.timer is not None:
            answer.timer.cancel()
        self._runtime.mark(answer.lane, answer.slot, marks)
        if answer.slot:
            self._slots[answer.lane].append(answer.slot)

    def hold(self, answer: OpenAnswer) -> None:
        """Lets the model's next response wait, or go."""
        held = answer.paced or answer.timer is not None
        self._runtime.mark(answer.lane, answer.slot, HELD if held else 0)

    def lane_gone(self, lane: int) -> list[OpenAnswer]:
        """The answers that its process will not end."""
        return [each for each in self.opened.values() if each.lane == lane]


class DecoupledBatches(Batches):
    """The `Work` of a decoupled model."""

    def __init__(self, engine: DecoupledEngine, runtime: Any) -> None:
        super().__init__(engine)
        self._answers = engine
        runtime.listen(self._on_response, self._on_gone)

    def queue(self, request: Request, outcome: tuple[Any, Any, int], now: float) -> None:
        rows, rows_max = outcome[0].rows, self._copy.spec.rows_max
        if rows > rows_max:
            words = f"the request has {rows} rows, a decoupled model takes {rows_max} at most"
            self._copy.fail(request, ModelError("too-many-rows", words, original_status=400))
            return
        super().queue(request, outcome, now)

    # What becomes of a batch

    def _answer(self, request: Request, outputs: Any, run: BatchRun, run_us: int) -> None:
        answer = self._answers.of_request.get(request)
        if answer is not None:
            answer.run = run

    def _given_back(self, request: Request, reason: str) -> None:
        answer = self._answers.of_request.get(request)
        streamed = answer is not None and answer.count > 0
        self._answers.closed(request)
        if streamed:
            self._copy.fail(request, _broken())
        else:
            self._copy.give_back(request, reason)

    def _fail(self, request: Request, error: PenstockError, run: BatchRun, run_us: int) -> None:
        self._answers.closed(request)
        super()._fail(request, error, run, run_us)

    # Responses

    def _on_response(self, response: Response) -> None:
        answer = self._answers.opened.get(response.key)
        if answer is None:
            return  # cancelled meanwhile
        request = answer.request
        if request.answered:  # cancelled before it began
            self._answers.closed(request, marks=CANCELLED)
            return
        if response.error is not None:
            self._ended_by(answer, response.error)
            return
        try:
            if response.body is not None:
                outputs = self._answers.reshaped(unpack_answer(response.body))
                self._write(answer, outputs, final=response.final)
        except Exception as error:  # a codec's ModelError, or bytes that are no answer
            self._ended_by(answer, replies.as_error(error, "writing the response"))
            return
        if response.final:
            self._end(answer)
        elif request.sink.full:
            self._hold(answer)

    def _write(self, answer: OpenAnswer, outputs: Any, *, final: bool) -> None:
        request = answer.request
        assert request.decoded is not None
        body, meta = request.decoded.encode(outputs)
        answer.count += 1
        asked = frames.decode_request_meta(request.meta)
        operation = operation_of(asked)
        if operation == GENERATE:
            answer.body, answer.meta = body, meta
            return
        if operation in (_STREAM_INFER, _CALL) and final:
            body += oip_grpc.FINAL_MARK
        if answer.count == 1:
            frame = frames.encode(
                frames.CHUNK, request.ident, meta + body, flags=frames.FIRST, meta_bytes=len(meta)
            )
        else:
            frame = frames.encode(frames.CHUNK, request.ident, body)
        request.sink.send(frame)

    def _end(self, answer: OpenAnswer) -> None:
        request = answer.request
        self._answers.closed(request)
        single = operation_of(frames.decode_request_meta(request.meta)) == GENERATE
        if single and answer.count != 1:
            words = (
                f"generate expects one response, and the model sent {answer.count}: ask "
                "generate_stream"
            )
            self._copy.fail(request, ModelError("wrong-answer-count", words))
            return
        if not answer.count:  # the head of an answer without content
            answer.meta = EVENTS_META
        self._copy.requests += 1
        run = answer.run
        self._copy.answer(
            request,
            frames.encode_reply(
                request.ident,
                kind=frames.REPLY if single else frames.END,
                batch_rows=run.action.rows if run is not None else request.rows,
                lane=answer.lane,
                meta=answer.meta,
                body=answer.body,
            ),
        )

    def _ended_by(self, answer: OpenAnswer, error: PenstockError) -> None:
        self._answers.closed(answer.request, marks=CANCELLED)
        self._copy.fail(answer.request, error)

    # Readers that are slow

    def paced(self, request: Request, *, waits: bool) -> None:
        answer = self._answers.of_request.get(request)
        if answer is not None:
            answer.paced = waits
            self._answers.hold(answer)

    def _hold(self, answer: OpenAnswer) -> None:
        if answer.timer is not None:
            return
        loop = asyncio.get_running_loop()
        answer.timer = loop.call_later(HELD_S_MAX, self._ended_by, answer, _unread())
        self._answers.hold(answer)
        answer.request.sink.when_taken(self._going_on(answer))

    def _going_on(self, answer: OpenAnswer) -> Callable[[], None]:
        def go_on() -> None:
            timer, answer.timer = answer.timer, None
            if timer is not None and answer.key in self._answers.opened:
                timer.cancel()
                self._answers.hold(answer)

        return go_on

    # The end of processes

    def _on_gone(self, lane: int) -> None:
        left = self._answers.lane_gone(lane)
        for answer in left:
            request = answer.request
            reason = reason_of_death(len(left) - 1, alone=request.alone)
            self._given_back(request, reason)

    def close(self) -> None:
        for answer in list(self._answers.opened.values()):
            self._given_back(answer.request, "draining")


def _all_slots() -> deque[int]:
    return deque(range(1, SLOTS_MAX + 1))


def one_answer_asked(name: str) -> ModelError:
    return ModelError(
        UNSUPPORTED.code,
        f"the model {name!r} is decoupled: it has any number of responses, and one was asked for",
        hint="Ask ModelStreamInfer over gRPC, or generate_stream over HTTP; a model calls it with "
        "exec(decoupled=True).",
        original_status=UNSUPPORTED.status,
    )


def _broken() -> ModelError:
    return ModelError(
        "stream-broken",
        "the model's process ended in the middle of the answer",
        hint="Send the request again; the process starts anew by itself.",
    )


def _unread() -> ModelError:
    return ModelError(
        "stream-unread", f"the responses were not read for {HELD_S_MAX:g} s", original_status=408
    )
