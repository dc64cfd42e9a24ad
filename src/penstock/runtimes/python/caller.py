"""The worker's end of calls to other models: any thread of the model's code may make one.

While a model calls others, its worker's socket has two readers' worth of messages: batches for the
main thread, and answers for whoever waits. One thread reads them all. A worker whose model can't
call anybody has no such thread.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import numpy as np

from penstock.runtimes.python.calls import CALLED, Called, pack_call, unpack_called

Message = tuple[int, int, bytes]


class Caller:
    """`send` is the channel's, for whoever writes to it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._writing = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Called]] = {}
        self._gone = False

    def send(self, data: bytes) -> None:
        with self._writing:
            self._channel.sendall(data)

    def call(
        self,
        model: str,
        version: int,
        outputs: Sequence[str],
        timeout_us: int,
        tensors: Mapping[str, np.ndarray],
    ) -> Future[Called]:
        """Raises ValueError for tensors that can't be sent, OSError if the instance is gone."""
        number = next(self._numbers)
        packed = pack_call(number, model, version, outputs, timeout_us, tensors)
        future: Future[Called] = Future()
        future.set_running_or_notify_cancel()  # an answer comes, wanted or not
        self._waiting[number] = future
        if self._gone:
            self._answer(Called(number, {}, "the instance is gone", 0))
        else:
            self.send(packed)
        return future

    def batches(self, messages: Iterator[Message]) -> Iterator[Message]:
        """`messages` without the answers to calls, which go to those who wait for them."""
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
            for number in list(self._waiting):
                self._answer(Called(number, {}, "the instance is gone", 0))
            others.put(None)

    def _answer(self, called: Called) -> None:
        future = self._waiting.pop(called.number, None)
        if future is not None:
            future.set_result(called)
