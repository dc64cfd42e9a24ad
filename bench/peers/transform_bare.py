"""The limit: the compiled model alone, over rows that are tokenized, sorted and padded beforehand.

`python transform_bare.py ARTIFACT`; asked with `streams`, `threads` (of each stream), `rows` of a
batch, and `models`: 1 compiled for all streams, or one for each, which then runs on its caller's
thread. See transform_loop.py.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from tokenizers import Tokenizer
from transform_loop import SHOWN, pairs_of, serve

PRECISION = "f32"  #: as the artifact's description says: what is not INT8
NAMES = ("input_ids", "attention_mask", "token_type_ids")


class Bare:
    def __init__(self, artifact: Path) -> None:
        self.core = openvino.Core()
        self.model = self.core.read_model(artifact / "model.xml")
        self.tokenizer = Tokenizer.from_file(str(artifact / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.compiled: dict[tuple[int, int, int], Any] = {}
        self.tokenized: dict[tuple[str, int, int], list[Any]] = {}

    def run(self, asked: dict[str, Any]) -> dict[str, Any]:
        streams, threads = asked["streams"], asked["threads"]
        batches = self.batches((asked["file"], asked["skip"], asked["count"]), asked["rows"])
        each = streams // asked["models"]
        requests = [self.request(each, threads, number // each) for number in range(streams)]
        answers: dict[int, list[list[float]]] = {}

        def lane(number: int) -> None:
            for rows, inputs in batches[number::streams]:
                outputs = requests[number].infer(inputs, share_inputs=True, share_outputs=True)
                for at, row in enumerate(rows):
                    if row < SHOWN:
                        answers[row] = [array[at].tolist() for array in outputs.values()]

        shapes = {inputs["input_ids"].shape: inputs for _, inputs in batches}
        for request in requests:  # kernels are made at the first run of a shape
            for inputs in shapes.values():
                request.infer(inputs, share_inputs=True, share_outputs=True)
        begun = time.perf_counter()
        with ThreadPoolExecutor(streams) as lanes:
            list(lanes.map(lane, range(streams)))
        seconds = time.perf_counter() - begun
        return {"s": seconds, "answers": [answers[row] for row in sorted(answers)]}

    def request(self, streams: int, threads: int, number: int) -> Any:
        compiled = self.compiled.get((streams, threads, number))
        if compiled is None:
            compiled = self.compiled[streams, threads, number] = self.core.compile_model(
                self.model,
                "CPU",
                {
                    "NUM_STREAMS": streams,
                    "INFERENCE_NUM_THREADS": streams * threads,
                    "INFERENCE_PRECISION_HINT": PRECISION,
                    "ENABLE_CPU_PINNING": False,
                },
            )
        return compiled.create_infer_request()

    def batches(
        self, of: tuple[str, int, int], rows: int
    ) -> list[tuple[list[int], dict[str, np.ndarray]]]:
        encodings = self.tokenized.get(of)
        if encodings is None:
            self.tokenized.clear()
            encodings = self.tokenized[of] = self.tokenizer.encode_batch(pairs_of(*of))
        order = sorted(range(len(encodings)), key=lambda at: len(encodings[at].ids), reverse=True)
        found = []
        for at in range(0, len(order), rows):
            batch = order[at : at + rows]
            width = len(encodings[batch[0]].ids)
            arrays = {name: np.zeros((len(batch), width), dtype=np.int64) for name in NAMES}
            for place, row in enumerate(batch):
                one = encodings[row]
                values = (one.ids, one.attention_mask, one.type_ids)
                for name, numbers in zip(NAMES, values, strict=True):
                    arrays[name][place, : len(numbers)] = numbers
            found.append((batch, arrays))
        return found


if __name__ == "__main__":
    serve(Bare(Path(sys.argv[1])).run)
