"""Our decode loop: one JSON line asked, one answered (see bench/t5.py).

`python t5_ours.py ARTIFACT`
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from penstock.artifacts.description import model_yaml
from penstock.clock import SystemClock
from penstock.runtimes.base import LoadContext
from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest


def main(folder: Path) -> None:
    description = model_yaml.load(folder)
    generation = description.generation
    assert generation is not None
    context = LoadContext(
        model_dir=folder, description=description, endpoint_name="bench", variant_name="all",
        cores=float(len(os.sched_getaffinity(0))), memory_bytes_max=0,
    )  # fmt: skip
    loop = DecodeLoop(
        Seq2SeqModel(context),
        SystemClock(),
        start_id=generation.decoder_start_id,
        eos_ids=generation.eos_ids,
    )
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        count = asked["tokens"]
        request = GenerationRequest(min_new_tokens=count, max_new_tokens=count)
        times, answers = [], {}
        for _ in range(asked["repeats"]):
            started = time.perf_counter()
            for at, source in enumerate(asked["sources"]):
                loop.add(DecodingJob(source, request, partial(answers.__setitem__, at)))
            while loop.busy:
                loop.turn()
            times.append(time.perf_counter() - started)
        tokens = [answers[at] for at in range(len(asked["sources"]))]
        print(json.dumps({"s": times, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
