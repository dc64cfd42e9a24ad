"""The instance's end of a Python model's nested calls to other models of its artifact.

Calls belong to the batch that the lane computes: they share its latest deadline, end with it, and
are cancelled with it. Those of a decoupled model belong to its open answers as well, until the last
of these has ended. If the called model gives a call back, it is repeated (`repeated_call`).
Errors are returned as Triton's, with its codes: they never break the worker.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import numpy as np

from penstock.clock import Clock
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError, plain
from penstock.runtimes.base import (
    Asking,
    CallContext,
    ModelCalls,
    Payload,
    Pending,
    Returned,
    StreamedCall,
)
from penstock.runtimes.infer_metadata import InferAnswer
from penstock.runtimes.python.caller import (
    CANCEL,
    LOAD,
    READY,
    STREAM,
    TAKEN,
    UNLOAD,
    WorkerCall,
    pack_called,
    pack_refused,
    unpack_call,
)
from penstock.runtimes.repeated_call import Answer, RepeatedCall
from penstock.runtimes.triton_errors import BY_CODE, TRITON_ERRORS

#: Responses of one call that the model's code has not read: then the called model waits.
UNREAD_MAX: Final = 16
#: How long a call between batches may take, where its requests have no limit.
OPEN_S_MAX: Final = 3600.0
#: Running calls of one lane; more means that the code has lost track of its own.
CALLS_MAX: Final = 1024

#: The codes of `pb_utils.TritonError`.
INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, CANCELLED = 1, 2, 3, 4, 7


class BackChannel:
    """The back channel of one lane. `name`: the calling model; `write`: sends to its worker, False
    if that is gone."""

    def __init__(
        self,
        models: ModelCalls,
        name: str,
        lane: int,
        write: Callable[[bytes], bool],
        clock: Clock,
    ) -> None:
        self._models = models
        self._name = name
        self._lane = lane
        self._write = write
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[int, _Nested | _Controlled] = {}
        self._batch: list[CallContext] = []
        self._ends_at = 0.0  #: when the batch counts as a hang, monotonic s
        self._running = False
        self._wanted = True
        self._open: dict[CallContext, None] = {}  #: requests whose answers have not ended

    def opened(self, context: CallContext) -> None:
        """The answer to a request of a decoupled model may go on after its batch."""
        self._open[context] = None

    def over(self, context: CallContext) -> None:
        self._open.pop(context, None)
        if not self._running:
            self._cancel_all()

    def begin(self, batch: Sequence[Payload], *, ends_at: float) -> None:
        """The lane has a batch; calls belong to it until `end`."""
        self._batch = [each.asked for each in batch if each.asked is not None]
        self._ends_at = ends_at
        self._running = self._wanted = True

    def end(self) -> None:
        """The batch is over, or its worker gone: its running calls are cancelled."""
        self._batch = []
        self._running = False
        self._cancel_all()

    def _cancel_all(self) -> None:
        if self._open:
            return
        under_way, self._under_way = self._under_way, {}
        for nested in under_way.values():
            nested.cancel()

    def unwanted(self) -> None:
        """All requests of the batch were cancelled: its calls are cancelled, and later ones too."""
        self._wanted = False
        for number in list(self._under_way):
            self._under_way.pop(number).cancel()
            self._refuse(number, _cancelled())

    @property
    def lane(self) -> Hashable:
        """What waits for a call: the lane, or answers that have left it."""
        return self._lane if self._running else f"{self._lane} open"

    def hear(self, payload: bytes, item: int) -> None:
        """Handles a CALL of the worker, which is busy with the batch's `item`; an index beyond the
        batch stands for all items. Raises an Exception for a message that can't be read."""
        call = unpack_call(payload)
        if call.do in (TAKEN, CANCEL):
            nested = self._under_way.get(call.number)
            if isinstance(nested, _Streamed):
                nested.read() if call.do == TAKEN else self._dropped(call.number)
        elif not (self._running or self._open):
            words = "a model can call others while it executes a batch, and not in between"
            self._refuse(call.number, ModelError("no-batch", words))
        elif self._running and not self._wanted:
            self._refuse(call.number, _cancelled())
        elif len(self._under_way) >= CALLS_MAX or call.number in self._under_way:
            words = f"a model may have {CALLS_MAX} calls under way, each with its own number"
            self._refuse(call.number, ModelError("too-many-calls", words))
        elif call.do in (READY, LOAD, UNLOAD):
            self._under_way[call.number] = _Controlled(self, call, self._asked(call, item))
        else:
            kind = _Streamed if call.do == STREAM else _Nested
            nested = self._under_way[call.number] = kind(self, call, self._asked(call, item))
            nested.begin()

    def _dropped(self, number: int) -> None:
        self._under_way.pop(number).cancel()

    def _asked(self, call: WorkerCall, item: int) -> Asking:
        """The context that the call inherits: from its request, or from all requests that it may be
        for."""
        whole = self._batch if self._running else list(self._open)
        batch = whole[item : item + 1] if self._running and item < len(whole) else whole
        ends_at = self._ends_at if self._running else self._clock.monotonic() + OPEN_S_MAX
        ends = (math.inf if each.deadline is None else each.deadline for each in batch)
        deadline = min(max(ends, default=ends_at), ends_at)
        if call.timeout_s is not None:
            deadline = min(deadline, self._clock.monotonic() + call.timeout_s)
        came_through = dict.fromkeys(model for each in batch for model in each.path)
        return Asking(
            deadline=deadline,
            alone=any(each.alone for each in batch),
            path=(*came_through, self._name),
            # The lane's answers leave together, so every request of the batch waits for this call.
            calls=tuple(number for each in whole for number in each.calls),
            # A call for several requests is recorded with the first of them that is traced.
            spans=next((each.spans for each in batch if each.spans is not None), None),
            metadata=call.metadata,
        )

    def _answer(self, number: int, outcome: Answer, *, last: bool = True) -> None:
        nested = self._under_way.get(number)
        if nested is None:
            return
        if isinstance(outcome, PenstockError):
            del self._under_way[number]
            self._refuse(number, outcome)
            return
        try:
            said = pack_called(number, outcome, last=last)
        except ValueError as error:  # too large for one message
            self._dropped(number)
            self._refuse(number, ModelError("answer-too-large", str(error)))
            return
        if last:
            del self._under_way[number]
        self._write(said)

    def _refuse(self, number: int, error: PenstockError) -> None:
        self._write(pack_refused(number, error.message, _code(error)))


class _Nested:
    """One call of the worker, until its deadline, which it always has."""

    __slots__ = ("_call", "_channel", "_late", "_tries")

    def __init__(self, channel: BackChannel, call: WorkerCall, asked: Asking) -> None:
        self._channel = channel
        self._call = call
        self._tries = RepeatedCall(call.model, self._ask, asked, self._answered)
        left_s = max(0.0, asked.deadline - channel._clock.monotonic()) if asked.deadline else 0.0
        self._late = channel._loop.call_later(left_s, self._too_late)

    def begin(self) -> None:
        self._tries.begin()

    def _ask(self, asked: Asking, heard: Callable[[Answer | Returned], None]) -> Pending:
        channel, call = self._channel, self._call
        return channel._models.call(
            call.model, call.tensors, asked, channel.lane, heard,
            version=call.version, outputs=call.metadata.outputs, streamed=self._reader(),
        )  # fmt: skip

    def _reader(self) -> StreamedCall | None:
        return None

    def cancel(self) -> None:
        self._late.cancel()
        self._tries.cancel()

    def _too_late(self) -> None:
        """The called model may go on; the caller gets an error now."""
        self.cancel()
        words = f"the deadline passed before the model {self._call.model!r} answered"
        self._channel._answer(self._call.number, NotNowError("deadline-passed", words))

    def _answered(self, outcome: Answer | Returned) -> None:
        if isinstance(outcome, Returned):
            return  # the whole copy has failed: the batch is given back when its lane is ended
        self._late.cancel()
        self._channel._answer(self._call.number, outcome)


class _Streamed(_Nested):
    """A call whose responses are passed on one by one."""

    __slots__ = ("_go_on", "_unread")

    def __init__(self, channel: BackChannel, call: WorkerCall, asked: Asking) -> None:
        self._unread = 0
        self._go_on: list[Callable[[], None]] = []
        super().__init__(channel, call, asked)

    def _reader(self) -> StreamedCall | None:
        return self

    # Methods of StreamedCall

    @property
    def full(self) -> bool:
        return self._unread >= UNREAD_MAX

    def hear(self, outputs: dict[str, np.ndarray], last: bool) -> None:
        self._unread += 1
        if last:
            self._late.cancel()
        self._channel._answer(self._call.number, outputs, last=last)

    def when_taken(self, go_on: Callable[[], None]) -> None:
        self._go_on.append(go_on)

    def read(self) -> None:
        """The model's code has read one more."""
        self._unread -= 1
        if not self.full:
            waiting, self._go_on = self._go_on, []
            for go_on in waiting:
                go_on()

    def _answered(self, outcome: Answer | Returned) -> None:
        """The last response was passed on; or it has failed."""
        if isinstance(outcome, PenstockError):
            super()._answered(outcome)


class _Controlled:
    """A question whether a model is loaded; or a load or unload that a model asks for."""

    def __init__(self, channel: BackChannel, call: WorkerCall, asked: Asking) -> None:
        self._channel = channel
        self._call = call
        self._asked = asked
        self._task = channel._loop.create_task(self._run())

    def cancel(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        outcome: Answer
        try:
            outcome = InferAnswer({}, {"ready": await self._done()})
        except PenstockError as error:
            outcome = error
        except Exception as error:  # a bug of ours must not keep the model's code waiting
            outcome = ModelError("call-failed", f"{self._call.do} failed: {plain(error)}")
        self._channel._answer(self._call.number, outcome)

    async def _done(self) -> bool:
        models, call, asked = self._channel._models, self._call, self._asked
        said = call.metadata.parameters
        if call.do == READY:
            return await models.is_ready(call.model, str(said.get("version", "")), asked)
        if call.do == LOAD:
            await models.load(call.model, asked)
        else:
            await models.unload(call.model, asked, dependents=bool(said.get("dependents")))
        return call.do == LOAD


def _cancelled() -> PenstockError:
    return ModelError("cancelled", "the request was cancelled", original_status=499)


def _code(error: PenstockError) -> int:
    """Triton's code for an error: the called model's own, or by whose fault it is."""
    if error.code in BY_CODE:
        return TRITON_ERRORS.index(BY_CODE[error.code])
    if error.code == "cancelled":
        return CANCELLED
    if isinstance(error, NotNowError):
        return UNAVAILABLE
    status = error.original_status if isinstance(error, ModelError) else error.status
    if status == 404:
        return NOT_FOUND
    return INVALID_ARG if isinstance(error, CallerError) or status in (400, 413, 415) else INTERNAL
