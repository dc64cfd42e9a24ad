"""One customer's embedding model: a small transformer encoder as an OpenVINO graph.

All customers have one shape and one base; each has weights of its own on top, as fine-tuning would
leave them. Weights are drawn, not learnt: words have directions, and a text's vector is near those
of texts with the same words. That is what a search needs to be tried, and no more.

Token ids in, one vector of length 1 per text out. The graph has no name or number in it that
depends on when it was made, so that one seed gives one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import (
    Batching,
    Embedding,
    ModelDescription,
    TensorSpec,
    Tokenizer,
)

VOCABULARY = 6000  #: of the tokenizer that query intent's model has, too
TOKENS_MAX = 640
#: Of the base's weights; the customer's own are what is left.
BASE_SHARE = 0.8
_FAR = -1e4  #: added to the scores of padding


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the encoder."""

    layers: int = 2
    width: int = 128
    heads: int = 4
    half: bool = True  #: weights are kept in 16 bits, else in 32


class Weights:
    """Named tables of one customer. One name and one seed give one table."""

    def __init__(self, customer: int, seed: int) -> None:
        self._customer = customer
        self._seed = seed

    def table(self, name: str, *sizes: int, scale: float) -> np.ndarray:
        base = _drawn(f"base {self._seed} {name}", sizes)
        own = _drawn(f"{self._customer} {self._seed} {name}", sizes)
        return (scale * (BASE_SHARE * base + (1.0 - BASE_SHARE) * own)).astype(np.float32)


def _drawn(name: str, sizes: tuple[int, ...]) -> np.ndarray:
    """A normal table. PCG64 is the same on every machine."""
    rng = np.random.Generator(np.random.PCG64(list(name.encode())))
    return rng.standard_normal(sizes, dtype=np.float32)


def graph(weights: Weights, shape: Shape) -> ov.Model:
    """`input_ids` and `attention_mask` INT64 [rows, tokens] -> `embedding` FP32 [rows, width]."""
    ids = _parameter("input_ids")
    given = _parameter("attention_mask")
    mask = ops.convert(given, "f32")
    width = shape.width
    value = ops.gather(
        ops.constant(weights.table("words", VOCABULARY, width, scale=1.0)), ids, _int(0)
    )
    length = ops.gather(ops.shape_of(ids, "i32"), _int(1), _int(0))
    places = ops.range(_int(0), length, _int(1), "i32")
    positions = ops.constant(weights.table("positions", TOKENS_MAX, width, scale=0.1))
    value = ops.add(value, ops.gather(positions, places, _int(0)))
    bias = ops.multiply(ops.subtract(mask, _float(1.0)), _float(-_FAR))
    bias = ops.unsqueeze(bias, _int([1, 2]))
    for at in range(shape.layers):
        value = ops.add(value, _attention(weights, at, value, bias, shape))
        value = ops.add(value, _feed_forward(weights, at, value, width))
    vector = _mean(_norm(value), mask)
    length = ops.sqrt(ops.reduce_sum(ops.multiply(vector, vector), _int([1]), True))
    answer = ops.result(ops.divide(vector, ops.maximum(length, _float(1e-6))), "embedding")
    answer.output(0).get_tensor().set_names({"embedding"})
    model = ov.Model([answer], [ids, given], "embedder")
    for at, node in enumerate(model.get_ordered_ops()):
        node.set_friendly_name(f"n{at}")
    return model


def write(
    folder: Path, *, customer: int, name: str, seed: int, shape: Shape, threads: int = 1
) -> None:
    """model.xml, model.bin and model.yaml; the tokenizer is copied beside them by the caller.

    Weights in 16 bits are marked as such, so that OpenVINO keeps them so when it compiles.
    `threads` of each run; 0 = as many as the instance has cores.
    """
    model = graph(Weights(customer, seed), shape)
    ov.save_model(model, folder / "model.xml", compress_to_fp16=shape.half)
    tensors = (("input_ids", "INT64", -1), ("attention_mask", "INT64", -1))
    description = ModelDescription(
        runtime="openvino",
        task="feature-extraction",
        name=name,
        file="model.xml",
        inputs=tuple(TensorSpec(name=n, dtype=d, shape=(-1, s)) for n, d, s in tensors),
        outputs=(TensorSpec(name="embedding", dtype="FP32", shape=(-1, shape.width)),),
        tokenizer=Tokenizer(tokens_max=TOKENS_MAX),
        embedding=Embedding(),
        # Few rows: a batch of long texts would take more memory than the weights of such a model.
        batching=Batching(rows_max=4, buckets=(16, 32, 64, 128, 256, TOKENS_MAX)),
        threads_per_lane=threads,
    )
    (folder / model_yaml.FILE_NAME).write_text(model_yaml.dump(description), encoding="utf-8")


def _attention(weights: Weights, at: int, value: Any, bias: Any, shape: Shape) -> Any:
    normal, width, heads = _norm(value), shape.width, shape.heads
    parts = []
    for part in ("query", "key", "value"):
        mixed = _linear(weights, f"{at} {part}", normal, width, width)
        split = ops.reshape(mixed, _int([0, 0, heads, width // heads]), True)
        parts.append(ops.transpose(split, _int([0, 2, 1, 3])))
    mixed = ops.scaled_dot_product_attention(*parts, bias, causal=False)
    joined = ops.reshape(ops.transpose(mixed, _int([0, 2, 1, 3])), _int([0, 0, width]), True)
    return _linear(weights, f"{at} out", joined, width, width)


def _feed_forward(weights: Weights, at: int, value: Any, width: int) -> Any:
    inner = ops.gelu(_linear(weights, f"{at} up", _norm(value), width, 4 * width), "tanh")
    return _linear(weights, f"{at} down", inner, 4 * width, width)


def _linear(weights: Weights, name: str, value: Any, before: int, after: int) -> Any:
    """Small, so that what a word means is still seen behind the layers."""
    table = weights.table(name, after, before, scale=0.5 * before**-0.5)
    return ops.matmul(value, ops.constant(table), False, True)


def _norm(value: Any) -> Any:
    return ops.mvn(value, _int([-1]), True, 1e-6, "inside_sqrt")


def _mean(value: Any, mask: Any) -> Any:
    weight = ops.unsqueeze(mask, _int([2]))
    count = ops.maximum(ops.reduce_sum(weight, _int([1])), _float(1.0))
    return ops.divide(ops.reduce_sum(ops.multiply(value, weight), _int([1])), count)


def _parameter(name: str) -> Any:
    node = ops.parameter([-1, -1], ov.Type.i64, name)
    node.output(0).get_tensor().set_names({name})
    return node


def _int(value: int | list[int]) -> Any:
    return ops.constant(np.array(value, dtype=np.int32))


def _float(value: float) -> Any:
    return ops.constant(np.array(value, dtype=np.float32))
