"""T5 and relatives (T5 1.1, Flan-T5, mT5, ByT5) as an encoder graph and a decoder-step graph.

Positions are relative: a bias per head and distance, in logarithmic buckets, that the first layer
owns and all layers share. All distances beyond a limit share a bucket, so a table over distances is
enough, and each row reads its own entries. Norms are root-mean-square; attention is not scaled.
Source of the algorithm: Raffel et al., 2020, "Exploring the Limits of Transfer Learning", 2.1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.compile.seq2seq.seq2seq_graph import MASKED, Builder, CacheShape


def shape_of(config: dict[str, Any]) -> CacheShape:
    return CacheShape(
        layers=int(config.get("num_decoder_layers") or config["num_layers"]),
        heads=int(config["num_heads"]),
        head_size=int(config["d_kv"]),
        vocabulary=int(config["vocab_size"]),
        width=int(config["d_model"]),
    )


def _distances(
    config: dict[str, Any], table: np.ndarray, *, both_ways: bool
) -> tuple[np.ndarray, int]:
    """Bias by distance (key - query): [2 * reach + 1, heads], and the reach of the table."""
    reach = int(config.get("relative_attention_max_distance", 128))
    count = int(config["relative_attention_num_buckets"])
    relative = np.arange(-reach, reach + 1)
    buckets = np.zeros_like(relative)
    if both_ways:
        count //= 2
        buckets += (relative > 0) * count
        distance = np.abs(relative)
    else:
        distance = -np.minimum(relative, 0)
    exact = count // 2
    # float32 as in the reference: rounding must not move a bucket's edge
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / np.float32(
        math.log(reach / exact)
    )
    far = exact + (ratio * (count - exact)).astype(np.int64)
    buckets += np.where(distance < exact, distance, np.minimum(far, count - 1))
    return table[buckets], reach


def _feed_forward(b: Builder, config: dict[str, Any], value: Any, prefix: str) -> Any:
    ops = b.ops
    kind = str(config.get("feed_forward_proj", "relu"))
    if kind.startswith("gated-"):
        inner = kind.removeprefix("gated-")
        inner = "gelu_new" if inner == "gelu" else inner
        both = b.linear(value, f"{prefix}.wi_0", f"{prefix}.wi_1")
        gate, up = ops.split(both, b.integers(-1), 2).outputs()
        return b.linear(ops.multiply(b.activation(gate, inner), up), f"{prefix}.wo")
    return b.linear(b.activation(b.linear(value, f"{prefix}.wi"), kind), f"{prefix}.wo")


def encoder(b: Builder, config: dict[str, Any]) -> Any:
    """ids [rows, source], mask [rows, source] -> cross_kv [2 * layers, rows, heads, source, size].

    `mask` is 1 for tokens and 0 for padding. Keys come before values, layer by layer.
    """
    import openvino as ov  # noqa: PLC0415 - see Builder

    ops, heads = b.ops, int(config["num_heads"])
    epsilon = float(config.get("layer_norm_epsilon", 1e-6))
    ids = b.parameter("ids", [-1, -1], "i32")
    mask = b.parameter("mask", [-1, -1], "f32")
    value = b.embedding(ids, "shared.weight")

    table, reach = _distances(
        config,
        b.array("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        both_ways=True,
    )
    length = ops.gather(ops.shape_of(ids, "i32"), b.integers(1), b.integers(0))
    places = ops.range(b.integers(0), length, b.integers(1), "i32")
    relative = ops.subtract(
        ops.unsqueeze(places, b.integers(0)), ops.unsqueeze(places, b.integers(1))
    )
    index = ops.add(ops.clamp(relative, float(-reach), float(reach)), b.integers(reach))
    position_bias = ops.unsqueeze(
        ops.transpose(b.table(index, table), b.integers([2, 0, 1])), b.integers(0)
    )
    bias = ops.add(position_bias, b.padding(mask))

    for at in range(int(config["num_layers"])):
        prefix = f"encoder.block.{at}.layer"
        own = f"{prefix}.0.SelfAttention"
        normal = b.rms_norm(value, f"{prefix}.0.layer_norm", epsilon)
        query, keys, values = b.split_heads(
            b.linear(normal, f"{own}.q", f"{own}.k", f"{own}.v"), heads, 3
        )
        value = ops.add(value, b.linear(b.attention(query, keys, values, bias), f"{own}.o"))
        normal = b.rms_norm(value, f"{prefix}.1.layer_norm", epsilon)
        value = ops.add(value, _feed_forward(b, config, normal, f"{prefix}.1.DenseReluDense"))
    value = b.rms_norm(value, "encoder.final_layer_norm", epsilon)

    layers = shape_of(config).layers
    prefixes = [f"decoder.block.{at}.layer.1.EncDecAttention" for at in range(layers)]
    both = b.linear(value, *(f"{prefix}.{kind}" for prefix in prefixes for kind in "kv"))
    stacked = b.stack_heads(both, heads, 2 * layers)
    return ov.Model([b.result(stacked, "cross_kv")], [ids, mask], "encoder")


def decoder(b: Builder, config: dict[str, Any]) -> Any:
    """One step: see `penstock.runtimes.seq2seq` for the inputs and outputs."""
    import openvino as ov  # noqa: PLC0415 - see Builder

    ops, sizes = b.ops, shape_of(config)
    heads, epsilon = sizes.heads, float(config.get("layer_norm_epsilon", 1e-6))
    ids, positions, source_bias, past, cross = b.step_inputs(sizes)
    value = b.embedding(ids, "shared.weight")

    table, reach = _distances(
        config,
        b.array("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        both_ways=False,
    )
    self_bias = past_bias(b, positions, past[0], table[: reach + 1][::-1])

    new: list[Any] = []
    for at in range(sizes.layers):
        prefix = f"decoder.block.{at}.layer"
        own, other = f"{prefix}.0.SelfAttention", f"{prefix}.1.EncDecAttention"
        normal = b.rms_norm(value, f"{prefix}.0.layer_norm", epsilon)
        query, key, val = b.split_heads(
            b.linear(normal, f"{own}.q", f"{own}.k", f"{own}.v"), heads, 3
        )
        new += [key, val]
        pair = (past[2 * at], past[2 * at + 1])
        mixed = b.attention_with_past(query, pair, (key, val), self_bias)
        value = ops.add(value, b.linear(mixed, f"{own}.o"))
        normal = b.rms_norm(value, f"{prefix}.1.layer_norm", epsilon)
        query = b.split_heads(b.linear(normal, f"{other}.q"), heads, 1)[0]
        mixed = b.attention(query, cross[2 * at], cross[2 * at + 1], source_bias)
        value = ops.add(value, b.linear(mixed, f"{other}.o"))
        normal = b.rms_norm(value, f"{prefix}.2.layer_norm", epsilon)
        value = ops.add(value, _feed_forward(b, config, normal, f"{prefix}.2.DenseReluDense"))
    value = b.rms_norm(value, "decoder.final_layer_norm", epsilon)
    if config.get("scale_decoder_outputs"):
        value = ops.multiply(value, b.floats(sizes.width**-0.5))
    logits = b.output(value, b.same("lm_head.weight", "shared.weight"))
    results = b.step_results(ops.squeeze(logits, b.integers([1])), new)
    return ov.Model(results, [ids, positions, source_bias, *past, *cross], "decoder")


def past_bias(b: Builder, positions: Any, past: Any, by_distance: np.ndarray) -> Any:
    """[rows, heads, 1, past + 1]: positions at and beyond a row's own are masked; the last one
    is the row's own token. `by_distance` [reach + 1, heads] holds the bias of distances 0, 1 ..."""
    ops = b.ops
    length = ops.gather(ops.shape_of(past, "i32"), b.integers(2), b.integers(0))
    places = ops.range(b.integers(0), length, b.integers(1), "i32")
    distances = ops.subtract(positions, ops.unsqueeze(places, b.integers(0)))
    limit = float(len(by_distance) - 1)
    looked_up = b.table(ops.clamp(distances, 0.0, limit), by_distance)
    allowed = ops.unsqueeze(ops.greater(distances, b.integers(0)), b.integers(2))
    masked = ops.select(allowed, looked_up, b.floats(MASKED))
    own = ops.multiply(
        ops.unsqueeze(ops.convert(ops.equal(positions, positions), "f32"), b.integers(2)),
        b.floats(by_distance[:1][None]),
    )
    whole = ops.concat([masked, own], 1)
    return ops.unsqueeze(ops.transpose(whole, b.integers([0, 2, 1])), b.integers(2))
