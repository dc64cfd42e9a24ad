"""One process that does all that the classifier's answer needs, on one thread and for one request
at a time: the bare loop with Penstock's own codec, tokenizer and compiled model.

What it takes is what a request costs without queues, batches, other processes and threads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvloop
from bench.peers.bare_loop import Echo, serve

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

    takes_native = False


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


class Classifier(Echo):
    def __init__(self, model: TextEngine) -> None:
        self._model = model

    def answer(self, body: bytes) -> bytes:
        return answer(self._model, body)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), partial(Classifier, engine())))
