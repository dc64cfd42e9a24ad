"""The building blocks of encoder and decoder graphs: linear layers, norms, attention.

Graphs are written node by node, not traced from PyTorch. So their shapes, the place of every INT8
weight and the form of the cache are under control, and conversion needs only the weights. This
module knows OpenVINO's operations, but no architecture (`seq2seq_t5`, `seq2seq_bart`).

A decoder step takes one token of each row and the rows' caches. It returns logits and each layer's
new keys and values, which the runtime writes into its own memory. A row's position is an input, so
rows at different positions share a step.

INT8 is of weights only: a linear layer keeps one scale per output (symmetric, largest magnitude /
127). Activations are not quantised here; the runtime may round them while it multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import ModelError

#: Score of a masked position: far below any real one, and finite, so that a row that is
#: masked completely (padding of a batch) gives numbers.
MASKED = -1.0e9

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """Sizes with which the runtime allocates its caches."""

    layers: int  #: layers of the decoder
    heads: int
    head_size: int
    vocabulary: int
    width: int


class Builder:
    """Makes nodes, for one graph: the encoder and the decoder share no nodes."""

    def __init__(self, weights: Weights, *, int8: bool, bf16: bool) -> None:
        import openvino.opset13 as ops  # noqa: PLC0415 - heavy, and only conversion needs it

        self.ops: Any = ops
        self._weights = weights
        self._int8 = int8
        self._bf16 = bf16
        self._tables: dict[str, Any] = {}

    def array(self, name: str) -> np.ndarray:
        """A weight. Raises ModelError if the source lacks it: a truncated or foreign file."""
        try:
            return np.ascontiguousarray(self._weights[name], dtype=np.float32)
        except KeyError:
            raise ModelError(
                "weights-missing",
                f"the source has no tensor {name!r}",
                hint="Check that all of the model's safetensors files are there and whole.",
            ) from None

    def has(self, name: str) -> bool:
        return name in self._weights

    def parameter(self, name: str, shape: list[int], dtype: str) -> Any:
        import openvino as ov  # noqa: PLC0415 - see __init__

        node = self.ops.parameter(shape, getattr(ov.Type, dtype), name)
        node.output(0).get_tensor().set_names({name})
        return node

    def result(self, value: Any, name: str) -> Any:
        node = self.ops.result(value, name)
        node.output(0).get_tensor().set_names({name})
        return node

    def step_inputs(self, sizes: CacheShape) -> tuple[Any, Any, Any, list[Any], list[Any]]:
        """Parameters of a decoder step: token ids, positions, bias of the source, and the caches
        of keys and values, layer by layer: of the answer so far, and of the source."""
        past, cross = (
            [
                self.parameter(f"{kind}.{at}", [-1, sizes.heads, -1, sizes.head_size], "f32")
                for at in range(2 * sizes.layers)
            ]
            for kind in ("past", "cross")
        )
        ids, positions = (self.parameter(name, [-1, 1], "i32") for name in ("ids", "positions"))
        return ids, positions, self.parameter("source_bias", [-1, 1, 1, -1], "f32"), past, cross

    def step_results(self, logits: Any, new: list[Any]) -> list[Any]:
        """Results of a decoder step; `new`: keys and values of the token, layer by layer."""
        stacked = self.ops.concat([self.ops.unsqueeze(each, self.integers(0)) for each in new], 0)
        return [self.result(logits, "logits"), self.result(stacked, "new_kv")]

    def padding(self, mask: Any) -> Any:
        """[rows, 1, 1, source]: 0 for tokens, far below any score for padding."""
        hidden = self.ops.multiply(self.ops.subtract(self.floats(1.0), mask), self.floats(MASKED))
        return self.ops.unsqueeze(hidden, self.integers([1, 2]))

    def floats(self, value: Any) -> Any:
        return self.ops.constant(np.asarray(value, dtype=np.float32))

    def integers(self, value: Any) -> Any:
        return self.ops.constant(np.asarray(value, dtype=np.int32))

    # weights

    def _matrix(self, key: str, matrix: np.ndarray) -> Any:
        """A matrix [out, in] as an operand of MatMul; `key` shares it within the graph."""
        ops = self.ops
        if self._int8:
            stored, scales = self._quantised(key, matrix)
            return ops.multiply(ops.convert(stored, "f32"), scales)
        return self._stored(key, matrix)

    def _stored(self, key: str, matrix: np.ndarray) -> Any:
        if key not in self._tables:
            if self._bf16:
                halves = _bfloat16(matrix)
                self._tables[key] = self.ops.convert(halves, "f32")
            else:
                self._tables[key] = self.ops.constant(matrix)
        return self._tables[key]

    def _quantised(self, key: str, matrix: np.ndarray) -> Any:
        if key not in self._tables:
            scales = np.abs(matrix).max(axis=1, keepdims=True) / 127.0
            scales = np.where(scales == 0.0, 1.0, scales).astype(np.float32)
            values = np.clip(np.rint(matrix / scales), -127, 127).astype(np.int8)
            self._tables[key] = (self.ops.constant(values), self.ops.constant(scales))
        return self._tables[key]

    def linear(self, value: Any, *names: str, scales: tuple[float, ...] = ()) -> Any:
        """Linear layers. `names` are prefixes of layers that share their input: one multiplication
        computes all, and each part is multiplied by its scale."""
        scales = scales or (1.0,) * len(names)
        pairs = list(zip(names, scales, strict=True))
        parts = [self.array(f"{name}.weight") * np.float32(scale) for name, scale in pairs]
        product = self.ops.matmul(
            value, self._matrix("+".join(names), np.concatenate(parts)), False, True
        )
        product.set_friendly_name(
            f"{'+'.join(names)}/matmul"
        )  # adapters find layers by these names
        if not any(self.has(f"{name}.bias") for name in names):
            return product
        biases = [
            self.array(f"{name}.bias") * np.float32(scale)
            if self.has(f"{name}.bias")
            else np.zeros(len(part), dtype=np.float32)
            for (name, scale), part in zip(pairs, parts, strict=True)
        ]
        return self.ops.add(product, self.floats(np.concatenate(biases)))

    def embedding(self, ids: Any, name: str, *, scale: float = 1.0) -> Any:
        """Rows of a table that an output layer of the same name may share (tied weights)."""
        ops, table = self.ops, self.array(name)
        axis = self.integers(0)
        if self._int8:
            stored, scales = self._quantised(name, table)
            rows = ops.convert(ops.gather(stored, ids, axis), "f32")
            value = ops.multiply(rows, ops.gather(scales, ids, axis))
        else:
            value = ops.gather(self._stored(name, table), ids, axis)
        return value if scale == 1.0 else ops.multiply(value, self.floats(scale))

    def table(self, ids: Any, rows: np.ndarray) -> Any:
        """Rows of a small table that stays in full precision."""
        return self.ops.gather(self.floats(rows), ids, self.integers(0))

    def output(self, value: Any, name: str) -> Any:
        """Logits through a table [vocabulary, width]."""
        return self.ops.matmul(value, self._matrix(name, self.array(name)), False, True)

    def same(self, name: str, other: str) -> str:
        """`other` if both are one table (tied weights) or `name` does not exist, else `name`."""
        if not self.has(name) or (
            self.has(other) and np.array_equal(self._weights[name], self._weights[other])
        ):
            return other
        return name

    # norms

    def rms_norm(self, value: Any, name: str, epsilon: float) -> Any:
        ops = self.ops
        squares = ops.power(value, self.floats(2.0))
        mean = ops.reduce_mean(squares, self.integers([-1]), True)
        root = ops.sqrt(ops.add(mean, self.floats(epsilon)))
        scaled = ops.multiply(value, ops.divide(self.floats(1.0), root))
        return ops.multiply(self.floats(self.array(f"{name}.weight")), scaled)

    def layer_norm(self, value: Any, name: str, epsilon: float) -> Any:
        ops = self.ops
        normal = ops.mvn(value, self.integers([-1]), True, epsilon, "inside_sqrt")
        scaled = ops.multiply(normal, self.floats(self.array(f"{name}.weight")))
        return ops.add(scaled, self.floats(self.array(f"{name}.bias")))

    def activation(self, value: Any, kind: str) -> Any:
        ops = self.ops
        if kind == "relu":
            return ops.relu(value)
        if kind == "gelu":
            return ops.gelu(value, "erf")
        if kind in ("gelu_new", "gelu_pytorch_tanh"):
            return ops.gelu(value, "tanh")
        if kind in ("silu", "swish"):
            return ops.swish(value)
        raise ModelError(
            "unsupported-architecture",
            f"the activation {kind!r} is not one of relu, gelu, gelu_new, silu",
        )

    # attention

    def split_heads(self, value: Any, heads: int, count: int) -> list[Any]:
        """[rows, tokens, count * heads * size] as `count` tensors [rows, heads, tokens, size]."""
        if count > 1:
            stacked = self.stack_heads(value, heads, count)
            parts = self.ops.split(stacked, self.integers(0), count).outputs()
            return [self.ops.squeeze(part, self.integers([0])) for part in parts]
        ops = self.ops
        shaped = ops.reshape(value, self.integers([0, 0, heads, -1]), True)
        return [ops.transpose(shaped, self.integers([0, 2, 1, 3]))]

    def stack_heads(self, value: Any, heads: int, count: int) -> Any:
        """The same as one tensor [count, rows, heads, tokens, size], whose parts are contiguous, so
        that splitting it copies nothing."""
        ops = self.ops
        shaped = ops.reshape(value, self.integers([0, 0, count, heads, -1]), True)
        return ops.transpose(shaped, self.integers([2, 0, 3, 1, 4]))

    def join_heads(self, value: Any) -> Any:
        ops = self.ops
        return ops.reshape(
            ops.transpose(value, self.integers([0, 2, 1, 3])), self.integers([0, 0, -1]), True
        )

    def attention(self, query: Any, keys: Any, values: Any, bias: Any) -> Any:
        """Attention without scaling: a scale belongs into the query's weights."""
        ops = self.ops
        mixed = ops.scaled_dot_product_attention(
            query, keys, values, bias, self.floats(1.0), causal=False
        )
        return self.join_heads(mixed)

    def attention_with_past(
        self, query: Any, past: tuple[Any, Any], new: tuple[Any, Any], bias: Any
    ) -> Any:
        """Attention over the cache and, in the last place, the row's own token."""
        ops = self.ops
        keys = ops.concat([past[0], new[0]], 2)
        values = ops.concat([past[1], new[1]], 2)
        return self.attention(query, keys, values, bias)


def _bfloat16(matrix: np.ndarray) -> Any:
    import openvino as ov  # noqa: PLC0415 - see Builder

    bits = matrix.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
    tensor = ov.Tensor(ov.Type.bf16, ov.Shape(list(matrix.shape)))
    tensor.data.view(np.uint16)[:] = rounded
    return ov.op.Constant(tensor)
