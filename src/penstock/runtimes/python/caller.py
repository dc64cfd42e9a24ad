"""The worker's end of nested calls to other models, and their messages.

Any thread of the model's code may make a call. The worker's socket then has messages for several
readers: batches for the main thread, and answers for waiting threads. One thread reads them all. A
worker whose model can't call others has no such thread.

    CALL     u32 length, JSON {"i": number, "d": what to do, "m": model, "v": version, "o": outputs,
             "t": timeout in us, "r": request id, "s": correlation id, "f": flags, "p": parameters},
             a pack of tensors (`tensor_bytes`); worker to instance
    CALLED   u32 length, JSON {"i": number, "p": parameters, "l": last} and a pack of tensors, or
             {"i", "e": message, "c": code} without one, which is the last; instance to worker

What a CALL may ask: `infer` (one answer), `stream` (each response, until the last one); `taken` (a
response of that stream was read) and `cancel` of it; `ready`, `load`, `unload` of a model, answered
without tensors. A worker may have many running calls; they are answered in any order.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from penstock.runtimes.infer_metadata import InferMetadata, parameters_of
from penstock.runtimes.python.triton_wire import plain_parameters
from penstock.runtimes.tensor_bytes import pack, unpack
from penstock.runtimes.workers.wire import PAYLOAD_BYTES_MAX, message

CALL: Final = 12
CALLED: Final = 13

_LENGTH: Final = struct.Struct("<I")


INFER: Final = "infer"
STREAM: Final = "stream"
TAKEN: Final = "taken"
CANCEL: Final = "cancel"
READY: Final = "ready"
LOAD: Final = "load"
UNLOAD: Final = "unload"


class WorkerCall(NamedTuple):
    number: int
    do: str  #: one of the above
    model: str
    version: int  #: -1: the one that is served
    metadata: InferMetadata  #: its outputs are the wanted ones; (): all
    tensors: dict[str, np.ndarray]

    @property
    def timeout_s(self) -> float | None:
        timeout_us = self.metadata.timeout_us
        return timeout_us / 1e6 if timeout_us > 0 else None


class Called(NamedTuple):
    number: int
    tensors: dict[str, np.ndarray]
    error: str | None  #: the error's message; then there are no tensors
    code: int  #: the code of `pb_utils.TritonError`
    parameters: Mapping[str, Any] = {}  #: of the response
    last: bool = True  #: no more responses follow


def pack_call(
    number: int,
    model: str,
    version: int,
    metadata: InferMetadata,
    tensors: Mapping[str, np.ndarray],
    do: str = INFER,
) -> bytes:
    """A CALL message. Raises ValueError for tensors that the protocol lacks, or too large ones."""
    head = {
        "i": number, "d": do, "m": model, "v": version, "o": metadata.outputs,
        "t": metadata.timeout_us, "r": metadata.request_id, "s": metadata.correlation_id,
        "f": metadata.flags, "p": dict(metadata.parameters),
    }  # fmt: skip
    return _message(CALL, head, pack(tensors))


def unpack_call(payload: bytes) -> WorkerCall:
    """Reads a CALL. The worker's process also runs the model's code: raises an Exception for
    invalid bytes."""
    head, rest = _split(payload)
    correlation_id = head["s"]
    metadata = InferMetadata(
        request_id=str(head["r"]),
        correlation_id=correlation_id if isinstance(correlation_id, str) else int(correlation_id),
        flags=int(head["f"]),
        timeout_us=int(head["t"]),
        parameters=plain_parameters(head["p"]),
        outputs=tuple(str(name) for name in head["o"]),
    )
    return WorkerCall(
        number=int(head["i"]),
        do=str(head["d"]),
        model=str(head["m"]),
        version=int(head["v"]),
        metadata=metadata,
        tensors=unpack(rest),
    )


def pack_called(number: int, tensors: Mapping[str, np.ndarray], *, last: bool = True) -> bytes:
    """A CALLED message with an answer. Raises ValueError for one that is too large."""
    head = {"i": number, "p": dict(parameters_of(tensors)), "l": last}
    return _message(CALLED, head, pack(tensors))


def pack_refused(number: int, words: str, code: int) -> bytes:
    """A CALLED message with an error."""
    return _message(CALLED, {"i": number, "e": words, "c": code}, b"")


def unpack_called(payload: bytes) -> Called:
    head, rest = _split(payload)
    if "e" in head:
        return Called(head["i"], {}, head["e"], head["c"])
    return Called(head["i"], unpack(rest), None, 0, head["p"], head["l"])


def _message(kind: int, head: dict[str, Any], body: bytes) -> bytes:
    written = orjson.dumps(head)
    payload = b"".join((_LENGTH.pack(len(written)), written, body))
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"the tensors have {len(payload)} bytes, {PAYLOAD_BYTES_MAX} at most")
    return message(kind, payload)


def _split(payload: bytes) -> tuple[dict[str, Any], bytes]:
    (size,) = _LENGTH.unpack_from(payload)
    head = orjson.loads(payload[4 : 4 + size])
    if not isinstance(head, dict):
        raise ValueError("a call's head is no object")
    return head, payload[4 + size :]


Message = tuple[int, int, bytes]


class ResponseStream:
    """The responses of one call, in their order. `next` waits for one; the instance is told of each
    that was read, so that a model does not run ahead of its reader."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._responses: SimpleQueue[Called] = SimpleQueue()
        self._over = False

    def put(self, called: Called) -> None:
        self._responses.put(called)

    def next(self) -> Called | None:
        """None: there are no more."""
        if self._over:
            return None
        called = self._responses.get()
        self._over = called.last
        if not called.last:
            self._tell(TAKEN)
        return called

    def close(self) -> None:
        """Nobody reads the rest."""
        if not self._over:
            self._over = True
            self._tell(CANCEL)


class Caller:
    """Makes nested calls. `send`: the channel's method, which several threads may call."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._writing = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Called]] = {}
        self._streams: dict[int, ResponseStream] = {}
        self._gone = False

    def send(self, data: bytes) -> None:
        with self._writing:
            self._channel.sendall(data)

    def call(
        self,
        model: str,
        version: int,
        metadata: InferMetadata,
        tensors: Mapping[str, np.ndarray],
    ) -> Future[Called]:
        """Raises ValueError for tensors that can't be sent, OSError if the instance is gone."""
        return self._asked(INFER, model, version, metadata, tensors)

    def ask(self, do: str, model: str, metadata: InferMetadata) -> Called:
        """`do`: ready, load or unload. Waits for the answer."""
        return self._asked(do, model, -1, metadata, {}).result()

    def _asked(
        self,
        do: str,
        model: str,
        version: int,
        metadata: InferMetadata,
        tensors: Mapping[str, np.ndarray],
    ) -> Future[Called]:
        number = next(self._numbers)
        packed = pack_call(number, model, version, metadata, tensors, do)
        future: Future[Called] = Future()
        future.set_running_or_notify_cancel()  # an answer comes even if nobody waits for it
        self._waiting[number] = future
        self._begin(number, packed)
        return future

    def stream(
        self,
        model: str,
        version: int,
        metadata: InferMetadata,
        tensors: Mapping[str, np.ndarray],
    ) -> ResponseStream:
        """As `call`, for a model with any number of responses."""
        number = next(self._numbers)
        packed = pack_call(number, model, version, metadata, tensors, STREAM)

        def tell(do: str) -> None:
            if do == CANCEL:
                self._streams.pop(number, None)
            if not self._gone:
                self.send(pack_call(number, "", -1, InferMetadata(), {}, do))

        stream = self._streams[number] = ResponseStream(tell)
        self._begin(number, packed)
        return stream

    def _begin(self, number: int, packed: bytes) -> None:
        if self._gone:
            self._answer(Called(number, {}, "the instance is gone", 0))
        else:
            self.send(packed)

    def batches(self, messages: Iterator[Message]) -> Iterator[Message]:
        """`messages` without the answers to calls, which go to the threads that wait for them."""
        others: SimpleQueue[Message | None] = SimpleQueue()
        reader = threading.Thread(
            target=self._read, args=(messages, others), name="answers", daemon=True
        )
        reader.start()
        while (message := others.get()) is not None:
            yield message

    def _read(self, messages: Iterator[Message], others: SimpleQueue[Any]) -> None:
        try:
            for kind, count, payload in messages:
                if kind == CALLED:
                    self._answer(unpack_called(payload))
                else:
                    others.put((kind, count, payload))
        finally:
            self._gone = True
            for number in [*self._waiting, *self._streams]:
                self._answer(Called(number, {}, "the instance is gone", 0))
            others.put(None)

    def _answer(self, called: Called) -> None:
        future = self._waiting.pop(called.number, None)
        if future is not None:
            future.set_result(called)
            return
        stream = self._streams.get(called.number)
        if stream is not None:
            if called.last:
                del self._streams[called.number]
            stream.put(called)
