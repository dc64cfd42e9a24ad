"""vLLM on CPUs by itself: `python generate_vllm.py SOURCE SEQUENCES_MAX`; as `generate_genai.py`.

BF16 weights (vLLM makes no INT8 of them on a CPU), its own compilation of the graph where there is
a C++ compiler, prefix cache and chunked prefill as by default, no text.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

# vLLM prints to stdout; ours is for answers only.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import vllm  # noqa: E402


class Bare:
    def __init__(self, folder: str, sequences_max: int) -> None:
        self._llm = vllm.LLM(
            model=folder, dtype="bfloat16", max_num_seqs=sequences_max, max_model_len=2048,
            skip_tokenizer_init=True,
        )  # fmt: skip

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        sampling = vllm.SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False
        )
        started = time.perf_counter()
        made = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False
        )
        taken = time.perf_counter() - started
        return {"s": taken, "ids": [list(each.outputs[0].token_ids) for each in made]}


def main() -> None:
    bare = Bare(sys.argv[1], int(sys.argv[2]))
    print("ready vllm", vllm.__version__, file=ANSWERS, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(bare.run(asked["prompts"], asked["tokens"])), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main()
