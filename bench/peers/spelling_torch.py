"""The spelling corrector as `generate` of transformers in SageMaker's four functions.

Served by the python runtime from a folder that `spelling_source.py` makes; one text is one call.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import T5ForConditionalGeneration


def model_fn(model_dir: str) -> tuple[Any, Tokenizer]:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    source = Path(model_dir, "source")
    model = T5ForConditionalGeneration.from_pretrained(source, dtype=torch.float32).eval()
    return model, Tokenizer.from_file(str(source / "tokenizer.json"))


def predict_fn(data: Any, model: tuple[Any, Tokenizer]) -> Any:
    network, tokenizer = model
    ids = torch.tensor([tokenizer.encode(data["inputs"]).ids])
    with torch.inference_mode():
        made = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=1,
            max_new_tokens=48,
        )
    text = tokenizer.decode(made[0].tolist(), skip_special_tokens=True)
    return [{"generated_text": text}]
