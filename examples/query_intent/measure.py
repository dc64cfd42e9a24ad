"""What a compiled classifier is worth: accuracy, agreement, independence of padding.

Serves `export.py`. Reads OpenVINO models only; knows nothing of how they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import openvino as ov
from data import Query
from grammar import LABELS
from tokenizers import Encoding, Tokenizer
from tokens import padded

#: Widths that queries are padded to when served; the check pads every query to each of them.
BUCKETS = (8, 12, 16, 32, 64)


class Classifier:
    """One compiled model on the CPU, with one stream: one batch at a time."""

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
        self._request = self._compiled.create_infer_request()

    def logits(self, queries: Sequence[Query], *, rows: int = 64, width: int = 0) -> np.ndarray:
        """Logits of all queries, in batches of `rows`, padded to the longest or to `width`."""
        encodings = self._tokenizer.encode_batch([query.text for query in queries])
        parts = [self._run(encodings[i : i + rows], width) for i in range(0, len(encodings), rows)]
        return np.concatenate(parts)

    def _run(self, encodings: Sequence[Encoding], width: int) -> np.ndarray:
        ids, mask = padded(encodings, width)
        return self._infer({"input_ids": ids, "attention_mask": mask}).copy()

    def _infer(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Logits in the request's own memory. Inputs are always shared: a request that once shared
        a small array can't copy a larger one later (OpenVINO 2026.4)."""
        return self._request.infer(inputs, share_inputs=True, share_outputs=True)["logits"]


def scores(logits: np.ndarray) -> np.ndarray:
    """Softmax of the rows."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def accuracy(logits: np.ndarray, queries: Sequence[Query]) -> float:
    """Share of queries whose first label is the right one."""
    return round(float(np.mean(logits.argmax(axis=1) == _targets(queries))), 4)


def padding_effect(classifier: Classifier, queries: Sequence[Query]) -> dict[str, float | int]:
    """How far answers move between a query alone and the same query in a padded batch.

    Every query is asked alone and unpadded, then in batches of 32 at each bucket that holds it.
    """
    alone = classifier.logits(queries, rows=1)
    moved, changed = 0.0, 0
    for width in (0, *BUCKETS[-3:]):
        together = classifier.logits(queries, rows=32, width=width)
        moved = max(moved, float(np.abs(scores(together) - scores(alone)).max()))
        changed += int((together.argmax(axis=1) != alone.argmax(axis=1)).sum())
    return {"score_change_max": round(moved, 6), "labels_changed": changed}


def report(name: str, logits: np.ndarray, queries: Sequence[Query]) -> None:
    """Prints accuracy, recall by label and the most frequent confusions."""
    expected, given = _targets(queries), logits.argmax(axis=1)
    print(f"{name}: accuracy {accuracy(logits, queries):.4f} of {len(queries)} queries")
    for index, label in enumerate(LABELS):
        recall = float(np.mean(given[expected == index] == index))
        precision = float(np.mean(expected[given == index] == index))
        print(f"  {label:16} recall {recall:.3f}  precision {precision:.3f}")
    wrong = Counter((LABELS[e], LABELS[g]) for e, g in zip(expected, given, strict=True) if e != g)
    for (right, answer), count in wrong.most_common(8):
        print(f"  {count:4} x {right} answered as {answer}")


def confusion(logits: np.ndarray, queries: Sequence[Query]) -> list[list[int]]:
    """Rows: the right label; columns: the answer; both in the order of LABELS."""
    table = np.zeros((len(LABELS), len(LABELS)), dtype=int)
    np.add.at(table, (_targets(queries), logits.argmax(axis=1)), 1)
    return table.tolist()


def _targets(queries: Sequence[Query]) -> np.ndarray:
    return np.array([LABELS.index(query.label) for query in queries])
