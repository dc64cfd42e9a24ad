"""From the model's output to a head's result: softmax, the numbers themselves, or pooled vectors.

A result has one row per text and is what `codecs.text_heads` ranks and writes.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from penstock.artifacts.description.description import Embedding, Head
from penstock.errors import ModelError
from penstock.instance.codecs.base import Tensors

#: of the output that a head is read from, the batch included
_DIMENSIONS = {"classification": (2,), "regression": (1, 2), "embedding": (2, 3)}


def checked_head(head: Head, outputs: Tensors) -> Head:
    """The head with its output's name and a label for each score. Raises ModelError."""
    name = head.output or next(iter(outputs))
    if name not in outputs:
        raise ModelError(
            "output-missing",
            f"head {head.name!r} is read from output {name!r}, the model has {', '.join(outputs)}",
            hint="Give `output` of the head the name of one of these.",
        )
    shape = outputs[name].shape
    if len(shape) not in _DIMENSIONS[head.task]:
        raise ModelError(
            "output-mismatch",
            f"output {name!r} has shape {list(shape)}, which is no {head.task} of one text",
            hint="Give the task that the model was trained for.",
        )
    if head.task == "embedding":
        return dataclasses.replace(head, output=name)
    count = int(shape[1]) if len(shape) == 2 else 1
    labels = head.labels or tuple(f"LABEL_{at}" for at in range(count))
    if len(labels) != count:
        whose = f"head {head.name!r}" if head.name else "the description"
        raise ModelError(
            "labels-mismatch",
            f"{whose} names {len(labels)} labels, the model answers {count} scores",
            hint="Give `labels` in model.yaml one name per score, in their order.",
        )
    return dataclasses.replace(head, output=name, labels=labels)


def result(
    head: Head, output: np.ndarray, mask: np.ndarray, embedding: Embedding | None
) -> np.ndarray:
    """`output` and `mask` [n, tokens] hold the texts' rows alone, without padded ones."""
    array = output.astype(np.float32, copy=False)
    if head.task == "classification":
        return _softmax(array)
    if head.task == "regression":
        return np.ascontiguousarray(array.reshape(len(array), -1))
    return _pooled(array, mask, embedding or Embedding())


def _softmax(logits: np.ndarray) -> np.ndarray:
    """A single logit is a binary classifier's: its sigmoid."""
    if logits.shape[1] == 1:
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _pooled(array: np.ndarray, mask: np.ndarray, embedding: Embedding) -> np.ndarray:
    """One vector per text; token vectors of padding count for nothing."""
    if array.ndim == 3:
        if embedding.pooling == "cls":
            array = array[:, 0]
        else:
            weights = mask[:, :, None].astype(np.float32)
            array = (array * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0)
    if embedding.normalize:
        array = array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)
    return np.ascontiguousarray(array)
