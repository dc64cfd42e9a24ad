"""One client process of bench/grpc.py: `grpc_caller.py CLIENT TARGET CASE AT_ONCE SECONDS START`.

CLIENT is `tritonclient`, or `grpcio`: the stub that is within it, with a message that is made
beforehand. Both are unmodified, on asyncio. CASE is `small`, `large` or `stream`. From START (s of
`time.time`) on it keeps AT_ONCE calls under way, or as many messages of one stream. It prints its
latencies in us, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import InferInput, service_pb2, service_pb2_grpc
from tritonclient.grpc.aio import InferenceServerClient

MODEL = "tensors"
FLOATS = {"small": 16, "large": 1 << 18, "stream": 16}
UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Latencies:
    """What was answered between START and the end, in us."""

    def __init__(self, start: float, seconds: float) -> None:
        self._start = start
        self._end = start + seconds
        self.found: list[int] = []
        self.wrong = 0

    def add(self, began: float, *, right: bool) -> None:
        now = time.time()
        if self._start <= now < self._end:
            self.found.append(round((now - began) * 1e6))
        self.wrong += not right

    def over(self) -> bool:
        return time.time() >= self._end


async def calls(ask: Callable[[], Awaitable[bool]], at_once: int, latencies: Latencies) -> None:
    async def go_on() -> None:
        while not latencies.over():
            began = time.time()
            latencies.add(began, right=await ask())

    await asyncio.gather(*(go_on() for _ in range(at_once)))


async def messages(
    answers: Callable[[AsyncIterator[Any]], AsyncIterator[bool]],
    request: Callable[[], Any],
    at_once: int,
    latencies: Latencies,
) -> None:
    """`answers` takes the requests of a stream, and says of each answer whether it is right."""
    sent: deque[float] = deque()
    room = asyncio.Semaphore(at_once)

    async def requests() -> AsyncIterator[Any]:
        while True:
            await room.acquire()
            if latencies.over():
                return
            sent.append(time.time())
            yield request()

    async for right in answers(requests()):
        latencies.add(sent.popleft(), right=right)
        room.release()


async def by_grpcio(target: str, case: str, row: Any, at_once: int, latencies: Latencies) -> None:
    request = service_pb2.ModelInferRequest(model_name=MODEL)
    request.inputs.add(name="x", datatype="FP32", shape=row.shape)
    data = row.tobytes()
    request.raw_input_contents.append(data)
    async with grpc.aio.insecure_channel(target, options=UNBOUNDED) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def ask() -> bool:
            answer = await stub.ModelInfer(request)
            return bool(answer.raw_output_contents[0] == data)

        async def answers(requests: AsyncIterator[Any]) -> AsyncIterator[bool]:
            async for answer in stub.ModelStreamInfer(requests):
                found = answer.infer_response.raw_output_contents
                yield not answer.error_message and found[0] == data

        if case == "stream":
            await messages(answers, lambda: request, at_once, latencies)
        else:
            await calls(ask, at_once, latencies)


async def by_tritonclient(
    target: str, case: str, row: Any, at_once: int, latencies: Latencies
) -> None:
    def tensor() -> Any:
        made = InferInput("x", list(row.shape), "FP32")
        made.set_data_from_numpy(row)
        return made

    async with InferenceServerClient(target) as client:

        async def ask() -> bool:
            answer = await client.infer(MODEL, [tensor()])
            return bool(np.array_equal(answer.as_numpy("y"), row))

        async def answers(requests: AsyncIterator[Any]) -> AsyncIterator[bool]:
            async for answer, error in client.stream_infer(requests):
                yield error is None and bool(np.array_equal(answer.as_numpy("y"), row))

        if case == "stream":
            await messages(
                answers, lambda: {"model_name": MODEL, "inputs": [tensor()]}, at_once, latencies
            )
        else:
            await calls(ask, at_once, latencies)


CLIENTS = {"grpcio": by_grpcio, "tritonclient": by_tritonclient}

if __name__ == "__main__":
    client_name, address, asked, share, length_s, begin = sys.argv[1:]
    seen = Latencies(float(begin), float(length_s))
    floats = np.arange(FLOATS[asked], dtype=np.float32).reshape(1, -1)
    asyncio.run(CLIENTS[client_name](address, asked, floats, int(share), seen))
    print(json.dumps({"us": seen.found, "wrong": seen.wrong}))
