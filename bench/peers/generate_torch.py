"""transformers' `generate`: `python generate_torch.py SOURCE DTYPE`; as `generate_genai.py`.

All prompts have one length, so that a batch needs no padding: its best case.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import transformers

transformers.logging.set_verbosity_error()


class Bare:
    def __init__(self, folder: str, dtype: str) -> None:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), local_files_only=True
        ).eval()

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        started = time.perf_counter()
        given = torch.tensor(prompts)
        with torch.inference_mode():
            made = self._model.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=tokens,
                min_new_tokens=tokens, do_sample=False, num_beams=1, pad_token_id=1,
            )  # fmt: skip
        taken = time.perf_counter() - started
        return {"s": taken, "ids": made[:, given.shape[1] :].tolist()}


def main() -> None:
    bare = Bare(sys.argv[1], sys.argv[2])
    print("ready transformers", transformers.__version__, "torch", torch.__version__, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(bare.run(asked["prompts"], asked["tokens"])), flush=True)


if __name__ == "__main__":
    main()
