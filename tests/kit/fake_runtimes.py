"""Runtimes without a model: the map of `model_files.affine`, an echo, an engine that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.kit.model_files import weights

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.runtimes.base import Payload, PayloadReply, Returned, Tensors
from penstock.runtimes.generation.base import EngineStatistics, Sampling
from penstock.wire.frames import decode_request_meta


class FakeTensorRuntime:
    """`x` FP32 [n, 4] -> `y` FP32 [n, 3]. Rows that start with -1 make the whole run fail."""

    def __init__(self, lanes: int = 1) -> None:
        self.inputs = (TensorSpec(name="x", dtype="FP32", shape=(-1, 4)),)
        self.outputs = (TensorSpec(name="y", dtype="FP32", shape=(-1, 3)),)
        self.lanes = lanes
        self.runs: list[int] = []  #: rows of each run
        self.closed = False

    def run(self, lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        x = inputs["x"]
        self.runs.append(len(x))
        if (x[:, 0] == -1).any():
            raise ModelError("model-failed", "a row starts with -1")
        return {"y": x @ weights()}

    def close(self) -> None:
        self.closed = True


class FakePayloadRuntime:
    """Echoes bodies on the next turn of the loop; `b"fail"` is the model's error.

    With `hold` set, batches wait in `held` until the test answers them.
    """

    def __init__(self, lanes: int = 1, *, hold: bool = False) -> None:
        self.lanes = lanes
        self.hold = hold
        self.shares_worker = False
        self.pids: list[int] = []
        self.held: list[
            tuple[int, list[Payload], Callable[[list[PayloadReply | Returned] | None], None]]
        ] = []

    def invoke(
        self,
        lane: int,
        batch: Sequence[Payload],
        done: Callable[[list[PayloadReply | Returned] | None], None],
    ) -> None:
        if self.hold:
            self.held.append((lane, list(batch), done))
        else:
            asyncio.get_running_loop().call_soon(done, self.answers(batch))

    @staticmethod
    def answers(batch: Sequence[Payload]) -> list[PayloadReply | Returned]:
        replies: list[PayloadReply | Returned] = []
        for item in batch:
            if item.body == b"fail":
                replies.append(PayloadReply(error=ModelError("model-code-failed", "told to")))
            else:
                kind = decode_request_meta(item.meta).content_type or "application/json"
                replies.append(PayloadReply(item.body, kind))
        return replies

    def cancel(self, lane: int) -> None:
        """Nothing to stop."""

    def kill(self) -> None:
        """No process."""

    async def close(self) -> None:
        self.hold = False


class FakeEngineRuntime:
    """A generating engine whose words are the test's: `say` tells events, as a process would."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {"engine": "fake"}
        self.statistics = EngineStatistics(0, 0, 0.0, 0)
        self.prompts: dict[int, Any] = {}  #: by id, until it is cancelled
        self.answered = 0

    def attach(
        self, on_events: Callable[[list[dict[str, Any]]], None], on_lost: Callable[[set[int]], None]
    ) -> None:
        self.say, self.lose = on_events, on_lost

    def add(self, ident: int, prompt: Any, sampling: Sampling, adapter: str = "") -> None:
        self.prompts[ident] = prompt

    def cancel(self, idents: list[int]) -> None:
        for ident in idents:
            del self.prompts[ident]

    def served(self) -> None:
        self.answered += 1
