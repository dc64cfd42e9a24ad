"""An artifact as an instance would open it: model.yaml, the tokenizer's file, OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import tokenizers
import torch

from penstock.artifacts.description import model_yaml
from penstock.artifacts.detection.detect import detect
from penstock.runtimes.openvino.runtime import arithmetic


class ServedModel:
    def __init__(self, root: Path) -> None:
        self.description = detect(root).description
        self.root = root
        self._compiled = openvino.Core().compile_model(
            root / self.description.file,
            "CPU",
            {**arithmetic(self.description.precision), "INFERENCE_NUM_THREADS": 1},
        )
        assert model_yaml.load(root).file == self.description.file

    def encoded(self, texts: Sequence[Any]) -> dict[str, np.ndarray]:
        spec = self.description.tokenizer
        assert spec is not None
        tokenizer = tokenizers.Tokenizer.from_file(str(self.root / spec.file))
        tokenizer.enable_padding(pad_id=spec.pad_id)
        tokenizer.enable_truncation(spec.tokens_max)
        found = tokenizer.encode_batch(list(texts))
        arrays = {
            "input_ids": [each.ids for each in found],
            "attention_mask": [each.attention_mask for each in found],
            "token_type_ids": [each.type_ids for each in found],
        }
        return {name: np.array(rows, dtype=np.int64) for name, rows in arrays.items()}

    def ask(self, texts: Sequence[Any]) -> np.ndarray:
        arrays = self.encoded(texts)
        answer = self._compiled({spec.name: arrays[spec.name] for spec in self.description.inputs})
        return np.array(answer[0])


def transformers_answer(model: Any, arrays: dict[str, np.ndarray], *, types: bool = False) -> Any:
    """The model's own answer to the same tokens."""
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    with torch.inference_mode():
        return model(**{name: torch.from_numpy(arrays[name]) for name in names})
