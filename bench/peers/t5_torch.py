"""PyTorch's `generate`: one JSON line asked, one answered (see bench/t5.py).

`python t5_torch.py SOURCE float32|bfloat16`
"""

from __future__ import annotations

import json
import sys
import time

import torch
import transformers


def main(folder: str, dtype: str) -> None:
    torch.set_num_threads(len(__import__("os").sched_getaffinity(0)))
    model = transformers.T5ForConditionalGeneration.from_pretrained(
        folder, dtype=getattr(torch, dtype)
    ).eval()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        ids = torch.tensor(asked["sources"])
        mask = torch.ones_like(ids)
        count = asked["tokens"]
        times = []
        with torch.inference_mode():
            for _ in range(asked["repeats"]):
                started = time.perf_counter()
                answer = model.generate(
                    ids,
                    attention_mask=mask,
                    do_sample=False,
                    num_beams=1,
                    min_new_tokens=count,
                    max_new_tokens=count,
                )
                times.append(time.perf_counter() - started)
        print(json.dumps({"s": times, "tokens": answer[:, 1:].tolist()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
