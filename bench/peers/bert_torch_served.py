"""A text classifier in PyTorch for a server that runs Python code: a batch of texts in one call.

Copied as model.py of an artifact of Triton's Python backend, with the Hugging Face directory in its
folder `source`; its environment says BERT_DTYPE, and BERT_THREADS of each lane. Rows are padded to
the longest of the batch.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
import transformers
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        torch.set_num_threads(int(os.environ["BERT_THREADS"]))
        source = os.path.join(args["model_repository"], "source")
        dtype = getattr(torch, os.environ["BERT_DTYPE"])
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        found = transformers.AutoModelForSequenceClassification
        self._model = found.from_pretrained(source, dtype=dtype).eval()

    def execute(self, requests: list[Any]) -> list[Any]:
        found = [pb_utils.get_input_tensor_by_name(each, "text").as_numpy() for each in requests]
        texts = [str(text, "utf-8") for array in found for text in array.reshape(-1)]
        inputs = self._tokenizer(texts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            best = self._model(**inputs).logits.argmax(1).tolist()
        labels = iter([self._model.config.id2label[at] for at in best])
        answers = []
        for array in found:
            own = np.array([[next(labels)] for _ in range(len(array))], dtype=np.object_)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("label", own)]))
        return answers
