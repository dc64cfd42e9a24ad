"""Transformers' classifier in PyTorch, eager: see bert_loop.py.

`python bert_torch.py SOURCE float32|bfloat16`
"""

from __future__ import annotations

import os
import sys

import numpy as np
import torch
import transformers
from bert_loop import serve


def main(folder: str, dtype: str) -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=getattr(torch, dtype)
    ).eval()

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            answer = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        return answer.logits.float().numpy()

    serve(run)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
