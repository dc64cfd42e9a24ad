"""Open-loop HTTP load: requests leave at Poisson times, whether or not earlier ones were answered.

Latency counts from the moment a request was due, so a server that stalls is charged for the wait
(Tene's "coordinated omission"), and so is a load generator that is late. Only status lines are
read; the answers are checked once, before a run.

`body_of` makes a request of a given length from the model's description.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.runtimes.tokenizer_file import open_tokenizer_file
from penstock.tune.measure import inputs_of
from penstock.wire.http_client import (
    Headers,
    HttpClientConnection,
    HttpClientSpec,
    connect,
    request_of,
)

_CONNECTIONS = 64
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of one run."""

    sent: int
    answered: int  #: number of 2xx answers
    seconds: float
    latencies_s: tuple[float, ...]  #: latencies of the 2xx answers, ascending


class _LoadLane:
    """One kept-alive connection with one request on its way at a time; reads its answers."""

    def __init__(self, load: _OfferedLoad, connection: HttpClientConnection) -> None:
        self._load = load
        self._due = 0.0
        self._status = 0
        self.connection = connection

    def send(self, request: bytes, due: float) -> None:
        self._due = due
        self.connection.ask(self, request)

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        pass

    def on_end(self) -> None:
        self._load.over(self, self._due, answered=self._status < 300)

    def on_lost(self, reason: str, detail: str) -> None:
        self._load.outstanding -= 1


class _OfferedLoad:
    def __init__(self, request: bytes) -> None:
        self._request = request
        self.idle: list[_LoadLane] = []
        self._waiting: deque[float] = deque()
        self.latencies_s: list[float] = []
        self.outstanding = 0

    def send(self, due: float) -> None:
        self.outstanding += 1
        while self.idle:
            lane = self.idle.pop()
            if not lane.connection.ended:
                lane.send(self._request, due)
                return
        self._waiting.append(due)

    def over(self, lane: _LoadLane, due: float, *, answered: bool) -> None:
        self.outstanding -= 1
        if answered:
            self.latencies_s.append(time.perf_counter() - due)
        if self._waiting:
            lane.send(self._request, self._waiting.popleft())
        else:
            self.idle.append(lane)


async def open_loop(
    host: str, port: int, path: str, body: bytes, *, rate_rps: float, seconds: float, seed: int
) -> Figures:
    """Posts the JSON `body` at `rate_rps` for `seconds`. Raises OSError if no server listens."""
    rng = random.Random(seed)
    headers = {"host": f"{host}:{port}", "content-type": "application/json"}
    load = _OfferedLoad(request_of("POST", path, headers, body))
    spec = HttpClientSpec(host=host, port=port)
    lanes = [_LoadLane(load, await connect(spec)) for _ in range(_CONNECTIONS)]
    load.idle = list(lanes)
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
    for lane in lanes:
        lane.connection.drop()
    return Figures(sent, len(latencies_s), seconds, latencies_s)


_WORD = "a "


def body_of(
    model_dir: Path, description: ModelDescription, inputs: tuple[TensorSpec, ...], tokens: int
) -> bytes:
    """JSON for one row: a text of about `tokens` tokens, or tensors with free dimensions of
    `tokens`."""
    if description.tokenizer is not None:
        text = _text(model_dir, description.tokenizer.file, tokens)
        paired = description.task == "pair-classification"
        value: Any = {"text": text[: len(text) // 2], "text_pair": text} if paired else text
        return orjson.dumps({"inputs": value})
    tensors = inputs_of(inputs, 1, tokens)
    rows = {name: array.tolist() for name, array in tensors.items()}
    return orjson.dumps({"inputs": rows if len(rows) > 1 else next(iter(rows.values()))})


def _text(model_dir: Path, tokenizer_file: str, tokens: int) -> str:
    """As many words as the tokenizer turns into `tokens` tokens, at most one word per token."""
    tokenizer = open_tokenizer_file(model_dir, tokenizer_file)
    words = 1
    while words < tokens and len(tokenizer.encode(_WORD * (words + 1)).ids) <= tokens:
        words += 1
    return (_WORD * words).strip()
