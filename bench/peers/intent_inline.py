"""One process that does all that the classifier's answer needs, on one thread and for one request
at a time: uvloop, httptools, and Penstock's own codec, tokenizer and compiled model.

What it takes is what a request costs without queues, batches, other processes and threads.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, cast

import httptools
import uvloop

from bench import overhead
from penstock.artifacts.detection import detect
from penstock.instance.codecs import text, text_heads
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.engines.text import TextEngine
from penstock.instance.loading.described import codec_model
from penstock.instance.request import Item
from penstock.runtimes.openvino.runtime import OpenVinoRuntime
from penstock.wire.frames import RequestMeta, encode_request_meta

WARM_RUNS = 300
META = encode_request_meta(RequestMeta())


class AtOnce:
    """In the place of lanes' threads."""

    def submit(self, lane: int, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())


def engine() -> TextEngine:
    found = detect.detect(overhead.ARTIFACT)
    context = overhead.context(found)
    outputs = text_heads.output_specs(text_heads.heads_of(found.description))
    model = codec_model(context, text.input_specs(found.description.task), outputs)
    runtime = OpenVinoRuntime(context)
    threads = cast("LaneThreads", AtOnce())
    made = TextEngine(runtime, found.description, model, found.root, threads)
    for query in overhead.QUERIES * (WARM_RUNS // len(overhead.QUERIES)):
        answer(made, json.dumps({"inputs": query}).encode())
    runtime.wait_compiled()
    return made


def answer(model: TextEngine, body: bytes) -> bytes:
    decoded, data, _ = model.decode(META, body)
    results: list[Any] = []
    model.run(0, [Item(None, data, decoded.rows)], 0, results.extend)
    return bytes(decoded.encode(results[0])[0])


class Classifier(asyncio.Protocol):
    def __init__(self, model: TextEngine) -> None:
        self._model = model

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        answered = answer(self._model, body)
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(answered), answered)
        )


async def serve(port: int) -> None:
    model = engine()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Classifier(model), "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
