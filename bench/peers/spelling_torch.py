"""The spelling corrector as `generate` of transformers, a batch of texts in one call.

Copied as model.py of an artifact of Triton's Python backend, with the weights (made by
`spelling_source.py`) in its folder `source`; its environment says SPELLING_DTYPE, and
SPELLING_THREADS of each lane. Greedy search, as ours; rows are padded to the longest of the batch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer
from transformers import T5ForConditionalGeneration

PAD = 0


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        torch.set_num_threads(int(os.environ["SPELLING_THREADS"]))
        source = Path(args["model_repository"], "source")
        dtype = getattr(torch, os.environ["SPELLING_DTYPE"])
        self._model = T5ForConditionalGeneration.from_pretrained(source, dtype=dtype).eval()
        self._tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))

    def execute(self, requests: list[Any]) -> list[Any]:
        found = [pb_utils.get_input_tensor_by_name(each, "text").as_numpy() for each in requests]
        texts = [str(text, "utf-8") for array in found for text in array.reshape(-1)]
        sources = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        width = max(map(len, sources))
        ids = torch.tensor([each + [PAD] * (width - len(each)) for each in sources])
        mask = torch.tensor([[1] * len(each) + [0] * (width - len(each)) for each in sources])
        with torch.inference_mode():
            made = self._model.generate(
                ids, attention_mask=mask, do_sample=False, num_beams=1, max_new_tokens=48
            )
        given = iter(self._tokenizer.decode_batch(made.tolist(), skip_special_tokens=True))
        answers = []
        for array in found:
            own = np.array([[next(given)] for _ in range(len(array))], dtype=np.object_)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("generated_text", own)]))
        return answers
