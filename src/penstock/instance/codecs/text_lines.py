"""JSON of many results at once: the bytes that `text_heads.as_json` and `dump_json` would write.

Of a small model's time, dictionaries for each head of each row would be a twentieth. Numbers are
written a column at a time, and what stands around them is the same for all rows of a label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson

from penstock.artifacts.description.description import Head
from penstock.instance.codecs.base import Tensors
from penstock.instance.codecs.text_heads import result_name


def json_rows(heads: Sequence[Head], outputs: Tensors) -> list[bytes] | None:
    """The result of each row, with the best label of each classification (`top_k` 0). None for
    results that are more than labels and numbers."""
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
    """What stands before the number, and the number."""
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
