"""A text classifier as transformers' own pages show it, for a server that runs Python code.

One text per request, FP32, no batching, PyTorch's default threads. Copied as code/inference.py of
a model whose environment names the Hugging Face directory in BERT_SOURCE.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import transformers


def model_fn(model_dir: str) -> Any:
    source = os.environ["BERT_SOURCE"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    return tokenizer, model.eval()


def predict_fn(data: Any, loaded: Any) -> Any:
    tokenizer, model = loaded
    inputs = tokenizer(data["inputs"], return_tensors="pt")
    with torch.inference_mode():
        scores = model(**inputs).logits[0].softmax(0)
    best = int(scores.argmax())
    return [{"label": model.config.id2label[best], "score": float(scores[best])}]
