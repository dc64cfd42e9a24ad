"""Open-loop HTTP load: requests leave at Poisson times, whether or not earlier ones were answered.

Latency counts from the moment a request was due, so a server that stalls is charged for the wait
(Tene's "coordinated omission"), and so is a load generator that is late. Only status lines are
looked at; answers are checked before a run, once.

A request of a given length for the live verification, made from the model's description.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httptools
import orjson

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.runtimes.tokenizer_file import open_tokenizer_file
from penstock.tune.measure import inputs_of

_CONNECTIONS = 64
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of one run."""

    sent: int
    answered: int  #: with 2xx
    seconds: float
    latencies_s: tuple[float, ...]  #: of answers, ascending


class _Connection(asyncio.Protocol):
    """One kept-alive connection with one request on its way at a time."""

    def __init__(self, load: _OfferedLoad) -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._due = 0.0
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.busy = False
        self._load.over(self, self._due, answered=self._parser.get_status_code() < 300)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._load.lost(self)

    def send(self, request: bytes, due: float) -> None:
        self._due, self.busy = due, True
        if self._transport is not None:
            self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _OfferedLoad:
    def __init__(self, request: bytes) -> None:
        self._request = request
        self.idle: list[_Connection] = []
        self._waiting: deque[float] = deque()
        self.latencies_s: list[float] = []
        self.outstanding = 0

    def send(self, due: float) -> None:
        self.outstanding += 1
        if self.idle:
            self.idle.pop().send(self._request, due)
        else:
            self._waiting.append(due)

    def over(self, connection: _Connection, due: float, *, answered: bool) -> None:
        self.outstanding -= 1
        if answered:
            self.latencies_s.append(time.perf_counter() - due)
        if self._waiting:
            connection.send(self._request, self._waiting.popleft())
        else:
            self.idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        if connection.busy:
            connection.busy = False
            self.outstanding -= 1
        elif connection in self.idle:
            self.idle.remove(connection)


async def open_loop(
    host: str, port: int, path: str, body: bytes, *, rate_rps: float, seconds: float, seed: int
) -> Figures:
    """Posts the JSON `body` at `rate_rps` for `seconds`. Raises OSError if nobody listens."""
    rng = random.Random(seed)
    request = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    load = _OfferedLoad(request)
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(_CONNECTIONS):
        _, connection = await loop.create_connection(lambda: _Connection(load), host, port)
        connections.append(connection)
    load.idle = list(connections)
    sent = 0
    start = time.perf_counter()
    due, end = start + rng.expovariate(rate_rps), start + seconds
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        now = time.perf_counter()
        while due <= now and due < end:
            load.send(due)
            sent += 1
            due += rng.expovariate(rate_rps)
    give_up = time.perf_counter() + _PATIENCE_S
    while load.outstanding and time.perf_counter() < give_up:  # noqa: ASYNC110 - bounded poll
        await asyncio.sleep(0.01)
    latencies_s = tuple(sorted(load.latencies_s))
    for connection in connections:
        connection.close()
    return Figures(sent, len(latencies_s), seconds, latencies_s)


_WORD = "a "


def body_of(
    model_dir: Path, description: ModelDescription, inputs: tuple[TensorSpec, ...], tokens: int
) -> bytes:
    """JSON for one row: a text of about `tokens` tokens, or tensors with free dimensions of it."""
    if description.tokenizer is not None:
        text = _text(model_dir, description.tokenizer.file, tokens)
        paired = description.task == "pair-classification"
        value: Any = {"text": text[: len(text) // 2], "text_pair": text} if paired else text
        return orjson.dumps({"inputs": value})
    tensors = inputs_of(inputs, 1, tokens)
    rows = {name: array.tolist() for name, array in tensors.items()}
    return orjson.dumps({"inputs": rows if len(rows) > 1 else next(iter(rows.values()))})


def _text(model_dir: Path, tokenizer_file: str, tokens: int) -> str:
    """Words until the tokenizer makes `tokens` of them, or one token per word at most."""
    tokenizer = open_tokenizer_file(model_dir, tokenizer_file)
    words = 1
    while words < tokens and len(tokenizer.encode(_WORD * (words + 1)).ids) <= tokens:
        words += 1
    return (_WORD * words).strip()
