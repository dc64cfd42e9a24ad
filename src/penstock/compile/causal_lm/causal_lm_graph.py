"""Decoder-only models of the Llama family as one stateful graph: Llama, Mistral, Qwen2, Qwen3.

The graph has the form that OpenVINO GenAI turns into paged attention: inputs `input_ids`,
`attention_mask`, `position_ids` and `beam_idx`; one pair of variables per layer, each read,
gathered by `beam_idx` and joined with the new keys or values; scaled dot product attention;
`logits` as the only result, directly after the output layer's multiplication. The same graph also
runs alone, which is how parity is measured.

It knows OpenVINO's operations and the weights' names in Hugging Face's format, and no files.
Sources of the algorithms: Touvron et al., 2023, "LLaMA"; Su et al., 2021, "RoFormer" (positions);
Ainslie et al., 2023, "GQA" (shared keys and values); Peng et al., 2023, "YaRN" is not supported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compile.seq2seq.seq2seq_graph import Builder
from penstock.errors import ModelError

#: Values of model_type in config.json that `causal_lm` can build.
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
#: Score of a masked position: far below any other, and finite in 16 bits as well.
_MASKED = -65504.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The values of config.json that shape the graph."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int  #: context length in training, tokens
    epsilon: float
    activation: str


def sizes_of(config: dict[str, Any]) -> Sizes:
    """The sizes. Raises ModelError (`unsupported-architecture`) for what the graph can't
    express."""
    model_type = str(config.get("model_type"))
    if model_type not in MODEL_TYPES:
        raise _unsupported(f"model_type {model_type!r} is not one of {', '.join(MODEL_TYPES)}")
    window = int(config.get("sliding_window") or 0)
    windowed = config.get("use_sliding_window", model_type == "mistral")
    if windowed and 0 < window < int(config.get("max_position_embeddings") or 0):
        raise _unsupported(f"attention in a sliding window of {window} tokens is not supported")
    heads = int(config["num_attention_heads"])
    return Sizes(
        layers=int(config["num_hidden_layers"]),
        width=int(config["hidden_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        vocabulary=int(config["vocab_size"]),
        positions=int(config.get("max_position_embeddings") or 2048),
        epsilon=float(config.get("rms_norm_eps", 1e-6)),
        activation=str(config.get("hidden_act", "silu")),
    )


def causal_lm(b: Builder, config: dict[str, Any]) -> Any:
    """The whole model as an `openvino.Model`."""
    import openvino as ov  # noqa: PLC0415 - see Builder

    ops, sizes = b.ops, sizes_of(config)
    ids = b.parameter("input_ids", [-1, -1], "i64")
    mask = b.parameter("attention_mask", [-1, -1], "i64")
    positions = b.parameter("position_ids", [-1, -1], "i64")
    beams = b.parameter("beam_idx", [-1], "i32")
    for node in (ids, mask, positions, beams):
        # Paged attention finds its inputs by the names of nodes as well as of tensors.
        (name,) = node.output(0).get_tensor().get_names()
        node.set_friendly_name(name)
    turns = _rotations(b, positions, config, sizes)
    rows = ops.gather(ops.shape_of(ids, "i64"), b.integers([0]), b.integers(0))
    bias = _causal_bias(b, ids, mask)
    value = b.embedding(ids, "model.embed_tokens.weight")
    sinks: list[Any] = []
    for at in range(sizes.layers):
        layer = f"model.layers.{at}"
        normal = b.rms_norm(value, f"{layer}.input_layernorm", sizes.epsilon)
        query, key, values = _projected(b, normal, f"{layer}.self_attn", sizes, turns)
        kept = [
            _cached(b, f"past_key_values.{at}.{part}present.{at}.{part}", new, rows, beams, sinks)
            for part, new in (("key", key), ("value", values))
        ]
        wide = [_repeated(b, each, sizes) for each in kept]
        scale = b.floats(sizes.head_size**-0.5)
        mixed = ops.scaled_dot_product_attention(query, *wide, bias, scale, causal=False)
        joined = ops.reshape(
            ops.transpose(mixed, b.integers([0, 2, 1, 3])),
            b.integers([0, 0, sizes.heads * sizes.head_size]), True,
        )  # fmt: skip
        value = ops.add(value, b.linear(joined, f"{layer}.self_attn.o_proj"))
        normal = b.rms_norm(value, f"{layer}.post_attention_layernorm", sizes.epsilon)
        gate = b.activation(b.linear(normal, f"{layer}.mlp.gate_proj"), sizes.activation)
        up = b.linear(normal, f"{layer}.mlp.up_proj")
        value = ops.add(value, b.linear(ops.multiply(gate, up), f"{layer}.mlp.down_proj"))
    normal = b.rms_norm(value, "model.norm", sizes.epsilon)
    table = b.same("lm_head.weight", "model.embed_tokens.weight")
    logits = b.result(b.output(normal, table), "logits")
    return ov.Model([logits], sinks, [ids, mask, positions, beams], "causal_lm")


def _projected(
    b: Builder, normal: Any, name: str, sizes: Sizes, turns: tuple[Any, Any]
) -> tuple[Any, Any, Any]:
    """Query, key and value as [rows, heads, tokens, size]; query and key are rotated by
    position."""
    parts = []
    for part, heads in (("q", sizes.heads), ("k", sizes.kv_heads), ("v", sizes.kv_heads)):
        value = b.linear(normal, f"{name}.{part}_proj")
        shape = b.integers([0, 0, heads, sizes.head_size])
        value = b.ops.reshape(value, shape, True)
        if part != "v" and b.has(f"{name}.{part}_norm.weight"):  # Qwen3
            value = b.rms_norm(value, f"{name}.{part}_norm", sizes.epsilon)
        parts.append(b.ops.transpose(value, b.integers([0, 2, 1, 3])))
    query, key, value = parts
    return _turned(b, query, turns, sizes), _turned(b, key, turns, sizes), value


def _turned(b: Builder, value: Any, turns: tuple[Any, Any], sizes: Sizes) -> Any:
    ops, half = b.ops, sizes.head_size // 2
    cos, sin = turns
    axis, one = b.integers([3]), b.integers([1])
    first = ops.slice(value, b.integers([0]), b.integers([half]), one, axis)
    second = ops.slice(value, b.integers([half]), b.integers([sizes.head_size]), one, axis)
    swapped = ops.concat([ops.multiply(second, b.floats(-1.0)), first], -1)
    return ops.add(ops.multiply(value, cos), ops.multiply(swapped, sin))


def _rotations(b: Builder, positions: Any, config: dict[str, Any], sizes: Sizes) -> tuple[Any, Any]:
    """Cosine and sine of each position's angles, [rows, 1, tokens, size]."""
    ops = b.ops
    rates = b.floats(inverse_frequencies(config, sizes).reshape(1, -1, 1))
    places = ops.unsqueeze(ops.convert(positions, "f32"), b.integers(1))
    angles = ops.transpose(ops.matmul(rates, places, False, False), b.integers([0, 2, 1]))
    both = ops.concat([angles, angles], -1)
    return (
        ops.unsqueeze(ops.cos(both), b.integers(1)),
        ops.unsqueeze(ops.sin(both), b.integers(1)),
    )


def inverse_frequencies(config: dict[str, Any], sizes: Sizes) -> np.ndarray:
    """The angular frequency of each pair in a head; "linear" and "llama3" scale the low ones.

    It reads both of Hugging Face's forms: `rope_theta` with `rope_scaling`, and `rope_parameters`.
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    rates = 1.0 / theta ** (np.arange(0, sizes.head_size, 2, dtype=np.float64) / sizes.head_size)
    if kind == "linear":
        rates = rates / float(rope["factor"])
    elif kind == "llama3":
        rates = _llama3(rates, rope)
    elif kind != "default":
        raise _unsupported(f"positions of type {kind!r} are not one of default, linear, llama3")
    return rates.astype(np.float32)


def _llama3(rates: np.ndarray, rope: dict[str, Any]) -> np.ndarray:
    """Divides low frequencies by `factor`, keeps high ones, and interpolates between them."""
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    trained = float(rope["original_max_position_embeddings"])
    turns = trained * rates / (2 * math.pi)  # over the training context
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    mixed: np.ndarray = rates * share + rates / float(rope["factor"]) * (1.0 - share)
    return mixed


def _causal_bias(b: Builder, ids: Any, mask: Any) -> Any:
    """[rows, 1, tokens, past + tokens]: 0 for visible tokens, else far below any score."""
    ops = b.ops
    zero, one = b.integers(0), b.integers(1)
    total = ops.gather(ops.shape_of(mask, "i32"), one, zero)
    new = ops.gather(ops.shape_of(ids, "i32"), one, zero)
    keys = ops.unsqueeze(ops.range(zero, total, one, "i32"), b.integers([0]))
    queries = ops.unsqueeze(ops.range(ops.subtract(total, new), total, one, "i32"), b.integers([1]))
    seen = ops.unsqueeze(ops.less_equal(keys, queries), b.integers([0, 1]))
    real = ops.unsqueeze(ops.convert(mask, "boolean"), b.integers([1, 2]))
    allowed = ops.logical_and(seen, real)
    return ops.select(allowed, b.floats(0.0), b.floats(_MASKED))


def _cached(b: Builder, name: str, new: Any, rows: Any, beams: Any, sinks: list[Any]) -> Any:
    """The cached part of earlier steps, in the order of `beam_idx`, followed by the new part."""
    import openvino as ov  # noqa: PLC0415 - see Builder
    from openvino.op.util import Variable, VariableInfo  # noqa: PLC0415 - see Builder

    ops = b.ops
    shape = new.output(0).get_partial_shape() if hasattr(new, "output") else new.get_partial_shape()
    heads, size = shape[1].get_length(), shape[3].get_length()
    info = VariableInfo()
    info.data_shape = ov.PartialShape([-1, heads, -1, size])
    info.data_type = ov.Type.f32
    info.variable_id = name
    variable = Variable(info)
    empty = ops.broadcast(
        b.floats(0.0),
        ops.concat([rows, ops.constant(np.array([heads, 0, size], dtype=np.int64))], 0),
    )
    past = ops.gather(ops.read_value(empty, variable), beams, b.integers(0))
    joined = ops.concat([past, new], 2)
    sinks.append(ops.assign(joined, variable))
    return joined


def _repeated(b: Builder, value: Any, sizes: Sizes) -> Any:
    """Repeats keys and values for each of the query heads that share them."""
    times = sizes.heads // sizes.kv_heads
    if times == 1:
        return value
    ops = b.ops
    wide = ops.unsqueeze(value, b.integers(2))
    shape = ops.shape_of(value, "i64")
    zero = b.integers(0)
    target = ops.concat(
        [
            ops.gather(shape, b.integers([0, 1]), zero),
            ops.constant(np.array([times], dtype=np.int64)),
            ops.gather(shape, b.integers([2, 3]), zero),
        ],
        0,
    )
    wide = ops.broadcast(wide, target, "BIDIRECTIONAL")
    return ops.reshape(wide, ops.constant(np.array([0, sizes.heads, -1, sizes.head_size])), True)


def _unsupported(message: str) -> ModelError:
    return ModelError(
        "unsupported-architecture",
        message,
        hint="Serve it with runtime vllm, or with runtime python and your own code.",
    )
