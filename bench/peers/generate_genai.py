"""The bare engine: OpenVINO GenAI's continuous batching by itself, token ids in and out.

`python generate_genai.py ARTIFACT SEQUENCES_MAX CACHE_GIB THREADS`; one line of JSON in, one out:
{"prompts": [[ids], ...], "tokens": n} -> {"s": seconds, "ids": [[ids], ...], "step_s": [...]}.
The settings are those that the served endpoint has; there is no text, no server and no client.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import tokenizers
from openvino_genai import py_openvino_genai as genai

from penstock.artifacts.description import model_yaml
from penstock.runtimes.openvino.runtime import ROUNDED_GROUP, arithmetic
from penstock.runtimes.openvino_genai.structured import genai_tokenizer, token_bytes


class Bare:
    def __init__(self, folder: Path, sequences_max: int, cache_gib: int, threads: int) -> None:
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = json.loads((folder / "config.json").read_text())
        precision = model_yaml.load(folder).precision
        words = token_bytes(tokenizer, config["vocab_size"])
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = cache_gib
        scheduler.max_num_seqs = sequences_max
        scheduler.max_num_batched_tokens = 2048
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        self._pipeline = genai.ContinuousBatchingPipeline(
            str(folder), genai_tokenizer(genai, words, 1), scheduler, "CPU",
            PERFORMANCE_HINT="LATENCY", ENABLE_CPU_PINNING=False, INFERENCE_NUM_THREADS=threads,
            **arithmetic(precision, rounded_group=ROUNDED_GROUP),
        )  # fmt: skip
        self._number = 0

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        config = genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        started = time.perf_counter()
        handles = []
        for prompt in prompts:
            self._number += 1
            tensor = ov.Tensor(np.array([prompt], dtype=np.int64))
            handles.append(self._pipeline.add_request(self._number, tensor, config))
        ids: list[list[int]] = [[] for _ in prompts]
        step_s = []
        while self._pipeline.has_non_finished_requests():
            began = time.perf_counter()
            self._pipeline.step()
            for at, handle in enumerate(handles):
                while handle.can_read():
                    for part in handle.read().values():
                        ids[at] += part.generated_ids
            step_s.append(time.perf_counter() - began)
        return {"s": time.perf_counter() - started, "ids": ids, "step_s": step_s}


def main() -> None:
    bare = Bare(Path(sys.argv[1]), *(int(each) for each in sys.argv[2:5]))
    print("ready openvino-genai", version("openvino-genai"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(bare.run(asked["prompts"], asked["tokens"])), flush=True)


if __name__ == "__main__":
    main()
