"""What a compiled model is worth: every head's accuracy, and independence of padding.

Serves `export.py`. Reads OpenVINO models only; knows nothing of how they were made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import openvino as ov
from pairs import DIFFERENCES, Pair
from tokenizers import Tokenizer

Answers = dict[str, np.ndarray]


class Judge:
    """One compiled model on the CPU, one batch at a time."""

    def __init__(self, model: ov.Model, tokenizer: Tokenizer, *, precision: str) -> None:
        self._tokenizer = tokenizer
        self._compiled = ov.Core().compile_model(
            model,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": precision,
                "INFERENCE_NUM_THREADS": 1,
                "NUM_STREAMS": 1,
            },
        )
        self._names = [port.any_name for port in self._compiled.outputs]

    def answers(self, pairs: Sequence[Pair], *, rows: int = 64, width: int = 0) -> Answers:
        """Every output for all pairs, in batches of `rows`, padded to the longest or to `width`."""
        parts = [
            self.run(self.inputs(pairs[at : at + rows], width)) for at in range(0, len(pairs), rows)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in self._names}

    def inputs(self, pairs: Sequence[Pair], width: int = 0) -> Answers:
        encodings = self._tokenizer.encode_batch([(p.text, p.text_pair) for p in pairs])
        width = max(width, *(len(encoding.ids) for encoding in encodings))
        arrays = np.zeros((3, len(pairs), width), dtype=np.int64)
        for row, encoding in enumerate(encodings):
            length = len(encoding.ids)
            arrays[:, row, :length] = (encoding.ids, encoding.attention_mask, encoding.type_ids)
        return {"input_ids": arrays[0], "attention_mask": arrays[1], "token_type_ids": arrays[2]}

    def run(self, inputs: Answers) -> Answers:
        results = self._compiled(inputs)
        return {name: np.array(results[name]) for name in self._names}


def figures(answers: Answers, pairs: Sequence[Pair]) -> dict[str, float]:
    """Accuracy of each classification, precision and recall of duplicates, error of similarity."""
    given = {name: array.argmax(axis=1) for name, array in answers.items()}
    duplicate = np.array([pair.duplicate for pair in pairs])
    said = given["duplicate"] == 1
    right = {
        "duplicate": said == duplicate,
        "same-brand": given["same-brand"] == [pair.same_brand for pair in pairs],
        "same-type": given["same-type"] == [pair.same_type for pair in pairs],
        "difference": given["difference"] == [DIFFERENCES.index(p.difference) for p in pairs],
    }
    error = np.abs(answers["similarity"][:, 0] - [pair.similarity for pair in pairs])
    return {
        **{name: round(float(np.mean(each)), 4) for name, each in right.items()},
        "duplicate_precision": round(float(np.mean(duplicate[said])), 4),
        "duplicate_recall": round(float(np.mean(said[duplicate])), 4),
        "similarity_error_mean": round(float(error.mean()), 4),
    }


def by_difference(answers: Answers, pairs: Sequence[Pair]) -> dict[str, float]:
    """How often `duplicate` is right, by what the two products differ in first."""
    said = answers["duplicate"].argmax(axis=1) == 1
    right = said == np.array([pair.duplicate for pair in pairs])
    kinds = np.array([pair.difference for pair in pairs])
    return {kind: round(float(right[kinds == kind].mean()), 4) for kind in DIFFERENCES}


def padding_effect(
    judge: Judge, pairs: Sequence[Pair], widths: Sequence[int]
) -> dict[str, float | int]:
    """How far answers move between a pair alone and the same pair in a padded batch of 32."""
    alone = judge.answers(pairs, rows=1)
    moved, changed = 0.0, 0
    for width in (0, *widths[-2:]):
        together = judge.answers(pairs, rows=32, width=width)
        for name, array in together.items():
            shift = array - alone[name]
            if array.shape[1] > 1:
                shift = _softmax(array) - _softmax(alone[name])
                changed += int((array.argmax(axis=1) != alone[name].argmax(axis=1)).sum())
            moved = max(moved, float(np.abs(shift).max()))
    return {"score_change_max": round(moved, 6), "labels_changed": changed}


def word_overlap(pairs: Sequence[Pair], *, tuned_on: Sequence[Pair]) -> float:
    """Accuracy of the simplest rule: duplicates share enough of their words.

    How many are enough is what serves best on `tuned_on`.
    """
    shares, expected = _shares(tuned_on), np.array([pair.duplicate for pair in tuned_on])
    enough = max(np.unique(shares), key=lambda share: float(np.mean((shares >= share) == expected)))
    right = (_shares(pairs) >= enough) == np.array([pair.duplicate for pair in pairs])
    return round(float(np.mean(right)), 4)


def _shares(pairs: Sequence[Pair]) -> np.ndarray:
    words = [[set(re.findall(r"\w+", t.lower())) for t in (p.text, p.text_pair)] for p in pairs]
    return np.array([len(one & other) / len(one | other) for one, other in words])


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
