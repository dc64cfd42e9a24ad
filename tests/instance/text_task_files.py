"""A tiny graph over two segments, described as each of the text tasks.

Each word has a worth; the first text counts for it, the second against it. Worked by hand:
good is worth 2, bad -2, very 1, not -1, film and book 0.5, anything else 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tests.kit.model_files import describe, tokenizer, value, write_onnx

#: by the ids of `model_files.WORDS`
WORTH = (0.0, 0.0, 2.0, -2.0, 1.0, -1.0, 0.5, 0.5)
#: how the graph's outputs are called
LOGITS, GAP, TOKENS = "pair_logits", "gap", "token_vectors"
HEADS = [
    {"name": "better", "task": "classification", "output": LOGITS, "labels": ["second", "first"]},
    {"name": "gap", "task": "regression", "output": GAP},
    {"name": "mean-worth", "task": "embedding", "output": TOKENS},
]


def text_task(folder: Path, task: str, *, runtime: str = "openvino", **fields: Any) -> Path:
    """`pair_logits` [n, 2] = (-gap, gap), `gap` [n, 1], `token_vectors` [n, t, 1]."""
    tokenizer(folder)
    _write(folder / "model.onnx")
    outputs: Sequence[tuple[str, list[int]]] = {
        "pair-classification": [(LOGITS, [-1, 2])],
        "text-classification": [(LOGITS, [-1, 2])],
        "text-regression": [(GAP, [-1, 1])],
    }.get(task, [])
    described = [{"name": name, "dtype": "FP32", "shape": shape} for name, shape in outputs]
    return describe(
        folder,
        runtime=runtime,
        task=task,
        file="model.onnx",
        tokenizer={"tokens_max": 16},
        batching={"rows_max": 8, "buckets": [4, 8, 16]},
        **({"outputs": described} if described else {}),
        **fields,
    )


def pair_classifier(folder: Path) -> Path:
    return text_task(folder, "pair-classification", labels=["second", "first"])


def regression(folder: Path) -> Path:
    return text_task(folder, "text-regression", runtime="onnxruntime", labels=["worth"])


def multi_head(folder: Path) -> Path:
    return text_task(folder, "multi-head", heads=HEADS, embedding={"normalize": False})


def _write(path: Path) -> None:
    tokens = ["n", "t"]
    write_onnx(
        path,
        [
            helper.make_node("Gather", ["table", "input_ids"], [TOKENS]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Cast", ["token_type_ids"], ["segment"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["segment", "minus_two"], ["twice"]),
            helper.make_node("Add", ["twice", "one"], ["sign"]),
            helper.make_node("Mul", ["mask", "sign"], ["signed_mask"]),
            helper.make_node("Unsqueeze", ["signed_mask", "last"], ["weight"]),
            helper.make_node("Mul", [TOKENS, "weight"], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted", "axis"], [GAP], keepdims=0),
            helper.make_node("Mul", [GAP, "both"], [LOGITS]),
        ],
        [
            value("input_ids", TensorProto.INT64, tokens),
            value("attention_mask", TensorProto.INT64, tokens),
            value("token_type_ids", TensorProto.INT64, tokens),
        ],
        [
            value(LOGITS, TensorProto.FLOAT, ["n", 2]),
            value(GAP, TensorProto.FLOAT, ["n", 1]),
            value(TOKENS, TensorProto.FLOAT, ["n", "t", 1]),
        ],
        [
            ("table", np.array(WORTH, dtype=np.float32)[:, None]),
            ("minus_two", np.array([-2.0], dtype=np.float32)),
            ("one", np.array([1.0], dtype=np.float32)),
            ("last", np.array([2], dtype=np.int64)),
            ("axis", np.array([1], dtype=np.int64)),
            ("both", np.array([[-1.0, 1.0]], dtype=np.float32)),
        ],
    )
