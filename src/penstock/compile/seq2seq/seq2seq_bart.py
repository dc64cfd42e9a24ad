"""BART and relatives (mBART, Marian) as an encoder graph and a decoder-step graph.

Positions are absolute: a learned table (its first two rows are unused) or sinusoids. Norms are
layer norms, after each block (BART, Marian) or before it (mBART). Attention is scaled by
the square root of the head's size, which is folded into the query's weights. The logits get a bias
of their own.
Source of the algorithm: Lewis et al., 2019, "BART: Denoising Sequence-to-Sequence Pre-training".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.compile.seq2seq.seq2seq_graph import Builder, CacheShape
from penstock.compile.seq2seq.seq2seq_t5 import past_bias

_EPSILON = 1e-5
_PRE_NORM = ("mbart",)
_OFFSET = 2  #: rows of the position table that no position uses (BART, mBART)


def shape_of(config: dict[str, Any]) -> CacheShape:
    heads = int(config["decoder_attention_heads"])
    return CacheShape(
        layers=int(config["decoder_layers"]),
        heads=heads,
        head_size=int(config["d_model"]) // heads,
        vocabulary=int(config.get("decoder_vocab_size") or config["vocab_size"]),
        width=int(config["d_model"]),
    )


def encoder(b: Builder, config: dict[str, Any]) -> Any:
    """As `seq2seq_t5.encoder`."""
    import openvino as ov  # noqa: PLC0415 - see Builder

    ops, sizes = b.ops, shape_of(config)
    heads = int(config["encoder_attention_heads"])
    ids = b.parameter("ids", [-1, -1], "i32")
    mask = b.parameter("mask", [-1, -1], "f32")
    length = ops.gather(ops.shape_of(ids, "i32"), b.integers(1), b.integers(0))
    places = ops.unsqueeze(ops.range(b.integers(0), length, b.integers(1), "i32"), b.integers(0))
    value = _embedded(b, config, "encoder", ids, places)
    bias = b.padding(mask)
    for at in range(int(config["encoder_layers"])):
        layer = f"model.encoder.layers.{at}"

        def attend(normal: Any, layer: str = layer) -> Any:
            query, keys, values = _projected(b, normal, f"{layer}.self_attn", heads)
            return b.linear(b.attention(query, keys, values, bias), f"{layer}.self_attn.out_proj")

        value = _block(b, config, value, f"{layer}.self_attn_layer_norm", attend)
        value = _feed_forward(b, config, value, layer)
    value = _last_norm(b, value, "model.encoder.layer_norm")
    prefixes = [f"model.decoder.layers.{at}.encoder_attn" for at in range(sizes.layers)]
    both = b.linear(value, *(f"{prefix}.{kind}_proj" for prefix in prefixes for kind in "kv"))
    stacked = b.stack_heads(both, sizes.heads, 2 * sizes.layers)
    return ov.Model([b.result(stacked, "cross_kv")], [ids, mask], "encoder")


def decoder(b: Builder, config: dict[str, Any]) -> Any:
    """One step: see `penstock.runtimes.seq2seq` for the inputs and outputs."""
    import openvino as ov  # noqa: PLC0415 - see Builder

    ops, sizes = b.ops, shape_of(config)
    heads, size = sizes.heads, sizes.head_size
    ids, positions, source_bias, past, cross = b.step_inputs(sizes)
    value = _embedded(b, config, "decoder", ids, positions)
    self_bias = past_bias(b, positions, past[0], np.zeros((1, 1), dtype=np.float32))
    new: list[Any] = []
    for at in range(sizes.layers):
        layer = f"model.decoder.layers.{at}"

        def attend(normal: Any, layer: str = layer, at: int = at) -> Any:
            query, key, val = _projected(b, normal, f"{layer}.self_attn", heads)
            new.extend((key, val))
            pair = (past[2 * at], past[2 * at + 1])
            mixed = b.attention_with_past(query, pair, (key, val), self_bias)
            return b.linear(mixed, f"{layer}.self_attn.out_proj")

        def attend_source(normal: Any, layer: str = layer, at: int = at) -> Any:
            query = b.linear(normal, f"{layer}.encoder_attn.q_proj", scales=(size**-0.5,))
            query = b.split_heads(query, heads, 1)[0]
            mixed = b.attention(query, cross[2 * at], cross[2 * at + 1], source_bias)
            return b.linear(mixed, f"{layer}.encoder_attn.out_proj")

        value = _block(b, config, value, f"{layer}.self_attn_layer_norm", attend)
        value = _block(b, config, value, f"{layer}.encoder_attn_layer_norm", attend_source)
        value = _feed_forward(b, config, value, layer)
    value = _last_norm(b, value, "model.decoder.layer_norm")
    head = b.same("lm_head.weight", "model.shared.weight")
    logits = ops.squeeze(b.output(value, head), b.integers([1]))
    if b.has("final_logits_bias"):
        logits = ops.add(logits, b.floats(b.array("final_logits_bias")))
    results = b.step_results(logits, new)
    return ov.Model(results, [ids, positions, source_bias, *past, *cross], "decoder")


def _embedded(b: Builder, config: dict[str, Any], part: str, ids: Any, places: Any) -> Any:
    ops = b.ops
    scale = math.sqrt(config["d_model"]) if config.get("scale_embedding") else 1.0
    own = f"model.{part}.embed_tokens.weight"
    table = own if b.has(own) and not b.has("model.shared.weight") else "model.shared.weight"
    value = b.embedding(ids, table, scale=scale)
    if config["model_type"] == "marian":
        rows = _sinusoids(int(config["max_position_embeddings"]), int(config["d_model"]))
    else:
        rows = b.array(f"model.{part}.embed_positions.weight")[_OFFSET:]
    value = ops.add(value, b.table(places, rows))
    norm = f"model.{part}.layernorm_embedding"
    return b.layer_norm(value, norm, _EPSILON) if b.has(f"{norm}.weight") else value


def _sinusoids(positions: int, width: int) -> np.ndarray:
    """Sines in the first half of the width, cosines in the second."""
    place = np.arange(positions)[:, None]
    angles = place / np.power(10000.0, 2 * (np.arange(width) // 2) / width)[None]
    half = width // 2 + width % 2
    table = np.zeros((positions, width), dtype=np.float32)
    table[:, :half] = np.sin(angles[:, 0::2])
    table[:, half:] = np.cos(angles[:, 1::2])
    return table


def _projected(b: Builder, value: Any, prefix: str, heads: int) -> list[Any]:
    """Scaled queries, keys and values, from one multiplication."""
    names = [f"{prefix}.{kind}_proj" for kind in "qkv"]
    size = b.array(f"{names[0]}.weight").shape[0] // heads
    scales = (size**-0.5, 1.0, 1.0)
    return b.split_heads(b.linear(value, *names, scales=scales), heads, 3)


def _block(b: Builder, config: dict[str, Any], value: Any, norm: str, inner: Any) -> Any:
    """A residual block, with its norm before or after."""
    if config["model_type"] in _PRE_NORM:
        return b.ops.add(value, inner(b.layer_norm(value, norm, _EPSILON)))
    return b.layer_norm(b.ops.add(value, inner(value)), norm, _EPSILON)


def _feed_forward(b: Builder, config: dict[str, Any], value: Any, layer: str) -> Any:
    kind = str(config.get("activation_function", "gelu"))

    def inner(normal: Any) -> Any:
        return b.linear(b.activation(b.linear(normal, f"{layer}.fc1"), kind), f"{layer}.fc2")

    return _block(b, config, value, f"{layer}.final_layer_norm", inner)


def _last_norm(b: Builder, value: Any, name: str) -> Any:
    """mBART ends each stack with a norm; the others have none there."""
    return b.layer_norm(value, name, _EPSILON) if b.has(f"{name}.weight") else value
