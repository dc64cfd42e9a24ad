"""Answers of text models: heads, the tensors with their results, and their JSON.

Every text task is a list of heads. A model with one task has one head without a name, whose tensors
are `score` or `embedding`; the heads of a *multi-head* model have names, and their tensors are
`same-brand.score` and the like. Classification scores are a softmax [n, labels], regression scores
the model's own numbers [n, values], embeddings vectors [n, d]. The engine makes these tensors; this
module ranks and writes them, and knows nothing of models or bodies.

`json_rows` writes many results at once, with the same bytes as `as_json` and `dump_json`. For a
small model, dictionaries for each head of each row would take a twentieth of its time. So numbers
are written a column at a time, and the text around them is the same for all rows with a label.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson

from penstock.artifacts.description.description import Head, ModelDescription, TensorSpec
from penstock.instance.codecs.base import Tensors
from penstock.runtimes.tensor_bytes import objects

_HEAD_TASKS: Final = {
    "text-classification": "classification",
    "pair-classification": "classification",
    "text-regression": "regression",
    "feature-extraction": "embedding",
}

#: `parameters.top_k`: 0: not given; None: all labels.
TopK = int | None


def heads_of(description: ModelDescription) -> tuple[Head, ...]:
    """The heads of a text model. An empty `output` means the model's first one."""
    if description.heads:
        return description.heads
    output = description.outputs[0].name if len(description.outputs) == 1 else ""
    task = _HEAD_TASKS[description.task]
    return (Head(name="", task=task, output=output, labels=description.labels),)


def tensor_name(head: Head, part: str) -> str:
    """`part`: label, score or embedding."""
    return f"{head.name}.{part}" if head.name else part


def result_name(head: Head) -> str:
    """The name of the tensor that the engine makes for this head."""
    return tensor_name(head, "embedding" if head.task == "embedding" else "score")


def raw_head(head: Head) -> Head:
    """Gives the number of a head with one label as it is before the sigmoid."""
    return dataclasses.replace(head, name=f"{head.name}.raw", task="regression")


def output_specs(heads: Sequence[Head]) -> tuple[TensorSpec, ...]:
    """The outputs over the Open Inference Protocol."""
    specs: list[TensorSpec] = []
    for head in heads:
        if head.task == "classification":
            name = tensor_name(head, "label")
            specs.append(TensorSpec(name=name, dtype="BYTES", shape=(-1,)))
        several = head.task == "embedding" or (head.task == "regression" and len(head.labels) > 1)
        shape = (-1, -1) if several else (-1,)
        specs.append(TensorSpec(name=result_name(head), dtype="FP32", shape=shape))
    return tuple(specs)


def as_json(heads: Sequence[Head], outputs: Tensors, top_k: TopK) -> Any:
    """One entry per text: its result, or an object with the result of each head."""
    if not heads[0].name:
        return _entries(heads[0], outputs, top_k)
    columns = [_entries(head, outputs, top_k) for head in heads]
    names = [head.name for head in heads]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def as_tensors(heads: Sequence[Head], outputs: Tensors, top_k: TopK) -> Tensors:
    """The tensors of the Open Inference Protocol: shape [n], or [n, k] with `top_k`."""
    made: Tensors = {}
    for head in heads:
        name = result_name(head)
        array = outputs[name]
        if head.task == "classification":
            order = _order(array, top_k)
            best = np.take_along_axis(array, order, axis=1)
            labels = objects([head.labels[at].encode() for at in order.reshape(-1).tolist()])
            shape: tuple[int, ...] = (len(array),) if top_k == 0 else order.shape
            made[tensor_name(head, "label")] = labels.reshape(shape)
            array = best.reshape(shape)
        elif head.task == "regression" and array.shape[1] == 1:
            array = array[:, 0]
        made[name] = array
    return made


def _entries(head: Head, outputs: Tensors, top_k: TopK) -> Any:
    array = outputs[result_name(head)]
    if head.task == "classification":
        ranked = _ranked(array, head.labels, top_k)
        return [best[0] for best in ranked] if top_k == 0 else ranked
    if head.task == "embedding":
        array = np.ascontiguousarray(array)
        return list(array) if head.name else array
    rows = array.tolist()
    if head.name:
        return [{"score": row[0] if len(row) == 1 else row} for row in rows]
    if array.shape[1] == 1:
        label = head.labels[0]
        return [{"label": label, "score": row[0]} for row in rows]
    return [
        [{"label": label, "score": value} for label, value in zip(head.labels, row, strict=True)]
        for row in rows
    ]


def _ranked(scores: np.ndarray, labels: tuple[str, ...], top_k: TopK) -> list[list[dict[str, Any]]]:
    if top_k in (0, 1):
        return [
            [{"label": labels[at], "score": float(row[at])}]
            for row, at in zip(scores, scores.argmax(axis=1).tolist(), strict=True)
        ]
    return [
        [{"label": labels[at], "score": float(row[at])} for at in best]
        for row, best in zip(scores, _order(scores, top_k).tolist(), strict=True)
    ]


def _order(scores: np.ndarray, top_k: TopK) -> np.ndarray:
    """The columns of the `top_k` best scores of each row, best first."""
    count = scores.shape[1] if top_k is None else max(1, min(top_k, scores.shape[1]))
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def json_rows(heads: Sequence[Head], outputs: Tensors) -> list[bytes] | None:
    """The result of each row, with the best label of each classification (`top_k` 0). None if
    results have more than labels and numbers."""
    for head in heads:
        if head.task == "embedding" or (
            head.task == "regression" and outputs[result_name(head)].shape[1] != 1
        ):
            return None
    columns: list[Sequence[bytes]] = []
    opening = b"{"
    for head in heads:
        scores = outputs[result_name(head)]
        named = opening + orjson.dumps(head.name) + b":{" if head.name else b"{"
        columns += _head(head, scores, named)
        opening = b"},"
    rows = len(columns[0]) if columns else 0
    columns.append([b"}}" if heads[0].name else b"}"] * rows)
    return [b"".join(parts) for parts in zip(*columns, strict=True)]


def _head(head: Head, scores: np.ndarray, before: bytes) -> list[Sequence[bytes]]:
    """The bytes before the number, and the number."""
    if head.task == "classification":
        best = scores.argmax(axis=1)
        labelled = [
            before + b'"label":' + orjson.dumps(label) + b',"score":' for label in head.labels
        ]
        chosen = np.take_along_axis(scores, best[:, None], axis=1)[:, 0]
        return [[labelled[at] for at in best.tolist()], _numbers(chosen)]
    if not head.name:  # the value of a regression has the label's name
        before += b'"label":' + orjson.dumps(head.labels[0]) + b","
    return [[before + b'"score":'] * len(scores), _numbers(scores[:, 0])]


def _numbers(values: np.ndarray) -> list[bytes]:
    written = orjson.dumps(values.tolist())
    return written[1:-1].split(b",") if len(values) else []
