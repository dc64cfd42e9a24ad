"""CTranslate2: one JSON line asked, one answered (see bench/t5.py).

`python t5_ct2.py SOURCE CONVERTED float32|bfloat16|int8`; converts on first use.
"""

from __future__ import annotations

import json
import os
import sys
import time

import ctranslate2
from ctranslate2.converters import TransformersConverter


def main(source: str, converted: str, kind: str) -> None:
    if not os.path.exists(converted):
        TransformersConverter(source).convert(converted)
    cores = len(os.sched_getaffinity(0))
    translator = ctranslate2.Translator(
        converted, compute_type=kind, inter_threads=1, intra_threads=cores
    )
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        sources = [[f"w{token}" for token in row] for row in asked["sources"]]
        count = asked["tokens"]
        times = []
        for _ in range(asked["repeats"]):
            started = time.perf_counter()
            answers = translator.translate_batch(
                sources, beam_size=1, min_decoding_length=count, max_decoding_length=count
            )
            times.append(time.perf_counter() - started)
        tokens = [[int(word.strip("<>w/pads") or 0) for word in each.hypotheses[0]]
                  for each in answers]  # fmt: skip
        print(json.dumps({"s": times, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
