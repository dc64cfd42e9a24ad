"""T5 and relatives as two programs of torch.export, for runtime `torch` with a static cache.

`encoder.pt2` and `decoder.pt2` have the interface that `penstock.runtimes.seq2seq` defines, with
the caches of all layers stacked into one tensor each. A decoder step reads them in place and
returns the new keys and values, which the runtime writes at each row's own position. Positions,
masks and the layout of the caches are those of `seq2seq_t5`. Sums over the layers, norms, softmax
and logits are FP32 in every weight format.

It is imported only when programs are written, so PyTorch is installed.
Source of the algorithm: Raffel et al., 2020, "Exploring the Limits of Transfer Learning", 2.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.graphs.torch_graph import TORCH_DTYPES, not_converted
from penstock.compile.libraries import need
from penstock.compile.seq2seq import seq2seq_t5
from penstock.compile.seq2seq.seq2seq_graph import MASKED
from penstock.errors import CallerError
from penstock.runtimes.pytorch.record import RECORD as PYTORCH

torch: Any = need("torch")
functional: Any = torch.nn.functional
Module: Any = torch.nn.Module
_ACTIVATIONS: Mapping[str, tuple[Any, Mapping[str, str]]] = {
    "relu": (functional.relu, {}),
    "gelu": (functional.gelu, {}),
    "gelu_new": (functional.gelu, {"approximate": "tanh"}),
    "silu": (functional.silu, {}),
}


class T5Source:
    """Weights and settings of the model, and the format to compute in."""

    def __init__(self, weights: Mapping[str, Any], config: Mapping[str, Any], dtype: Any) -> None:
        self.config = dict(config)
        self.dtype = dtype
        self.heads = int(self.config["num_heads"])
        self.layers = seq2seq_t5.shape_of(self.config).layers
        self.epsilon = float(self.config.get("layer_norm_epsilon", 1e-6))
        self._weights = weights

    def has(self, name: str) -> bool:
        return name in self._weights

    def weight(self, name: str) -> Any:
        """The weight in FP32. Raises CallerError (`weights-incomplete`)."""
        try:
            return self._weights[name].float()
        except KeyError:
            raise CallerError(
                "weights-incomplete",
                f"the source has no tensor {name!r}",
                hint="Check that all of the model's safetensors files are there and whole.",
            ) from None

    def linear(self, *names: str, dtype: Any = None) -> Any:
        """Layers that share their input, as one layer."""
        matrix = torch.cat([self.weight(f"{name}.weight") for name in names])
        made = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
        made.weight = torch.nn.Parameter(matrix.to(dtype or self.dtype))
        return made

    def words(self) -> Any:
        return torch.nn.Embedding.from_pretrained(self.weight("shared.weight").to(self.dtype))

    def distances(self, part: str) -> tuple[Any, int]:
        """Bias by distance (key - query), and the reach of the table."""
        name = f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        table, reach = seq2seq_t5._distances(
            self.config, self.weight(name).numpy(), both_ways=part == "encoder"
        )
        return np.asarray(table, dtype=np.float32), reach


class Norm(Module):  # type: ignore[misc]
    def __init__(self, source: T5Source, name: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(source.weight(f"{name}.weight"))
        self.epsilon = source.epsilon
        self.dtype = source.dtype

    def forward(self, value: Any) -> Any:
        mean = value.pow(2).mean(-1, keepdim=True)
        return (self.weight * (value * torch.rsqrt(mean + self.epsilon))).to(self.dtype)


class FeedForward(Module):  # type: ignore[misc]
    """A residual block. In trained T5, values exceed FP16's range before the last matrix, so that
    one stays FP32 in that format, as in transformers."""

    def __init__(self, source: T5Source, prefix: str) -> None:
        super().__init__()
        kind = str(source.config.get("feed_forward_proj", "relu"))
        self.gated = kind.startswith("gated-")
        kind = kind.removeprefix("gated-")
        kind = "gelu_new" if self.gated and kind == "gelu" else kind
        if kind not in _ACTIVATIONS:
            raise CallerError(
                "architecture-unsupported",
                f"the activation {kind!r} is not one of {', '.join(_ACTIVATIONS)}",
            )
        self.activation, self.options = _ACTIVATIONS[kind]
        inner = f"{prefix}.DenseReluDense"
        names = (f"{inner}.wi_0", f"{inner}.wi_1") if self.gated else (f"{inner}.wi",)
        self.norm = Norm(source, f"{prefix}.layer_norm")
        self.inner = source.linear(*names)
        last = torch.float32 if source.dtype == torch.float16 else source.dtype
        self.outer = source.linear(f"{inner}.wo", dtype=last)

    def forward(self, value: Any) -> Any:
        inner = self.inner(self.norm(value))
        if self.gated:
            gate, up = inner.chunk(2, -1)
            inner = self.activation(gate, **self.options) * up
        else:
            inner = self.activation(inner, **self.options)
        return value + self.outer(inner.to(self.outer.weight.dtype)).float()


class EncoderLayer(Module):  # type: ignore[misc]
    def __init__(self, source: T5Source, at: int) -> None:
        super().__init__()
        prefix = f"encoder.block.{at}.layer"
        own = f"{prefix}.0.SelfAttention"
        self.parts = 3 * source.heads
        self.norm = Norm(source, f"{prefix}.0.layer_norm")
        self.project = source.linear(f"{own}.q", f"{own}.k", f"{own}.v")
        self.out = source.linear(f"{own}.o")
        self.feed_forward = FeedForward(source, f"{prefix}.1")

    def forward(self, value: Any, bias: Any) -> Any:
        query, keys, values = _split(self.project(self.norm(value)), self.parts).chunk(3, 1)
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=bias, scale=1.0
        )
        return self.feed_forward(value + self.out(_joined(mixed)).float())


class Encoder(Module):  # type: ignore[misc]
    """ids, mask [rows, source] -> cross_kv [2 * layers, rows, heads, source, size]."""

    def __init__(self, source: T5Source) -> None:
        super().__init__()
        self.words = source.words()
        table, self.reach = source.distances("encoder")
        self.register_buffer("table", torch.from_numpy(table))
        count = int(source.config["num_layers"])
        self.layers = torch.nn.ModuleList(EncoderLayer(source, at) for at in range(count))
        self.norm = Norm(source, "encoder.final_layer_norm")
        prefixes = [f"decoder.block.{at}.layer.1.EncDecAttention" for at in range(source.layers)]
        self.cross = source.linear(*(f"{each}.{kind}" for each in prefixes for kind in "kv"))
        self.heads, self.pairs, self.dtype = source.heads, 2 * source.layers, source.dtype

    def forward(self, ids: Any, mask: Any) -> Any:
        places = torch.arange(ids.shape[1], device=ids.device)
        relative = (places[None, :] - places[:, None]).clamp(-self.reach, self.reach)
        position_bias = self.table[relative + self.reach].permute(2, 0, 1).unsqueeze(0)
        bias = position_bias + ((1.0 - mask) * MASKED)[:, None, None, :]
        # the format's own lowest number: with -inf a row without tokens would become NaN
        bias = bias.clamp(min=torch.finfo(self.dtype).min).to(self.dtype)
        value = self.words(ids).float()
        for layer in self.layers:
            value = layer(value, bias)
        parts = _split(self.cross(self.norm(value)), self.pairs * self.heads)
        return torch.stack(parts.chunk(self.pairs, 1))


class DecoderLayer(Module):  # type: ignore[misc]
    def __init__(self, source: T5Source, at: int) -> None:
        super().__init__()
        prefix = f"decoder.block.{at}.layer"
        own, other = f"{prefix}.0.SelfAttention", f"{prefix}.1.EncDecAttention"
        self.heads = source.heads
        self.norm = Norm(source, f"{prefix}.0.layer_norm")
        self.project = source.linear(f"{own}.q", f"{own}.k", f"{own}.v")
        self.out = source.linear(f"{own}.o")
        self.cross_norm = Norm(source, f"{prefix}.1.layer_norm")
        self.cross_query = source.linear(f"{other}.q")
        self.cross_out = source.linear(f"{other}.o")
        self.feed_forward = FeedForward(source, f"{prefix}.2")

    def forward(
        self, value: Any, self_bias: Any, source_bias: Any, past: Any, cross: Any
    ) -> tuple[Any, Any, Any]:
        parts = _split(self.project(self.norm(value)), 3 * self.heads)
        query, key, new = parts.chunk(3, 1)
        # the token's own score is separate, so that no cache is copied to append to it
        own = (query.float() * key.float()).sum(-1, keepdim=True)
        scores = torch.cat([(query @ past[0].transpose(-1, -2)).float(), own], -1)
        shares = torch.softmax(scores + self_bias, -1).to(query.dtype)
        mixed = shares[..., :-1] @ past[1] + shares[..., -1:] * new
        value = value + self.out(_joined(mixed)).float()
        query = _split(self.cross_query(self.cross_norm(value)), self.heads)
        scores = (query @ cross[0].transpose(-1, -2)).float() + source_bias
        mixed = torch.softmax(scores, -1).to(query.dtype) @ cross[1]
        value = value + self.cross_out(_joined(mixed)).float()
        return self.feed_forward(value), key, new


class T5Decoder(Module):  # type: ignore[misc]
    """A decoder step: one token of each row.

    ids [rows, 1], positions [rows, 1], source_bias [rows, 1, 1, source],
    past [2 * layers, rows, heads, past, size], cross [2 * layers, rows, heads, source, size] ->
    logits [rows, vocabulary] in FP32, new_kv [2 * layers, rows, heads, 1, size]. Places of `past`
    at and beyond a row's position are masked.
    """

    def __init__(self, source: T5Source) -> None:
        super().__init__()
        self.words = source.words()
        table, self.reach = source.distances("decoder")
        by_distance = np.ascontiguousarray(table[: self.reach + 1][::-1])
        self.register_buffer("by_distance", torch.from_numpy(by_distance))
        self.layers = torch.nn.ModuleList(DecoderLayer(source, at) for at in range(source.layers))
        self.norm = Norm(source, "decoder.final_layer_norm")
        self.heads = source.heads
        shared = source.weight("shared.weight")
        name = "lm_head" if source.has("lm_head.weight") else ""
        tied = not name or torch.equal(source.weight("lm_head.weight"), shared)
        self.head = torch.nn.Linear(1, 1, bias=False)
        self.head.weight = self.words.weight if tied else source.linear(name).weight
        scaled = bool(source.config.get("scale_decoder_outputs"))
        self.scale = float(source.config["d_model"]) ** -0.5 if scaled else 1.0

    def forward(
        self, ids: Any, positions: Any, source_bias: Any, past: Any, cross: Any
    ) -> tuple[Any, Any]:
        self_bias = self._past_bias(positions, past.shape[3])
        value = self.words(ids).float()
        new = []
        for at, layer in enumerate(self.layers):
            pair = slice(2 * at, 2 * at + 2)
            value, *pair_of_token = layer(value, self_bias, source_bias, past[pair], cross[pair])
            new += pair_of_token
        value = self.norm(value)
        value = value * self.scale if self.scale != 1.0 else value
        return self.head(value).squeeze(1).float(), torch.stack(new)

    def _past_bias(self, positions: Any, length: Any) -> Any:
        """[rows, heads, 1, past + 1]; the last place is the row's own token."""
        places = torch.arange(length, device=positions.device)
        distance = positions - places[None, :]
        looked_up = self.by_distance[distance.clamp(0, self.reach)]
        # not `where`: it would copy its number to the GPU, which a graph capture forbids
        masked = looked_up.masked_fill((distance <= 0).unsqueeze(-1), MASKED)
        own = self.by_distance[:1].unsqueeze(0).expand(positions.shape[0], 1, self.heads)
        return torch.cat([masked, own], 1).transpose(1, 2).unsqueeze(2)


def _split(value: Any, parts: int) -> Any:
    """[rows, tokens, parts * size] as [rows, parts, tokens, size]"""
    return value.unflatten(-1, (parts, -1)).transpose(1, 2)


def _joined(value: Any) -> Any:
    return value.transpose(1, 2).flatten(2)


ENCODER_FILE, DECODER_FILE = "encoder.pt2", "decoder.pt2"
FAMILIES = ("t5", "mt5")
#: Example sizes: rows, source, past. All differ and none is 1, which would become a constant.
_ROWS, _SOURCE, _PAST = 3, 7, 5


def as_programs(description: ModelDescription, *, precision: str, device: str) -> ModelDescription:
    """The description of an encoder-decoder that has these programs as its graphs."""
    generation = description.generation
    assert generation is not None
    return dataclasses.replace(
        description,
        runtime=PYTORCH.name,
        file=DECODER_FILE,
        generation=dataclasses.replace(
            generation, encoder_file=ENCODER_FILE, decoder_file=DECODER_FILE
        ),
        precision=precision,
        parameters={**description.parameters, "torch_device": device},
    )


def check_family(config: Mapping[str, Any]) -> None:
    if config.get("model_type") not in FAMILIES:
        raise CallerError(
            "architecture-unsupported",
            f"model_type {config.get('model_type')!r} is not compiled for GPUs",
            hint=f"Of the encoder-decoders, {' and '.join(FAMILIES)} are; use a cpu-... target.",
        )


def write_programs(
    model: Any, config: Mapping[str, Any], folder: Path, *, precision: str, device: str
) -> None:
    """Writes both files. `model` is transformers' own, in FP32.

    Args:
        config: `model.config.to_dict()`, with `scale_decoder_outputs`.
        precision: of the weights and products: f32, f16 or bf16.
        device: where the programs will run; their weights are stored for it.

    Raises CallerError (`architecture-unsupported`, `conversion-failed`).
    """
    check_family(config)
    dtype = getattr(torch, TORCH_DTYPES[precision])
    sizes = seq2seq_t5.shape_of(dict(config))
    source = T5Source(model.state_dict(), config, dtype)
    encoder, decoder = (
        kind(source).to(device).requires_grad_(False).eval() for kind in (Encoder, T5Decoder)
    )
    free = torch.export.Dim.DYNAMIC
    ids = torch.ones((_ROWS, _SOURCE), dtype=torch.int32, device=device)
    mask = torch.ones((_ROWS, _SOURCE), device=device)
    both = {0: free, 1: free}
    _export(encoder, (ids, mask), (both, both), folder / ENCODER_FILE)

    def cache(length: int) -> Any:
        shape = (2 * sizes.layers, _ROWS, sizes.heads, length, sizes.head_size)
        return torch.zeros(shape, dtype=dtype, device=device)

    def one() -> Any:
        """A new tensor each time: the same tensor twice would count as one input."""
        return torch.ones((_ROWS, 1), dtype=torch.int32, device=device)

    bias = torch.zeros((_ROWS, 1, 1, _SOURCE), device=device)
    rows, lengths = {0: free}, {1: free, 3: free}
    _export(
        decoder,
        (one(), one(), bias, cache(_PAST), cache(_SOURCE)),
        (rows, rows, {0: free, 3: free}, lengths, lengths),
        folder / DECODER_FILE,
    )


def _export(module: Any, example: tuple[Any, ...], free: tuple[Any, ...], path: Path) -> None:
    try:
        with torch.no_grad():
            program = torch.export.export(module, example, dynamic_shapes=free)
    except Exception as error:  # torch.export raises many kinds, some of them private
        raise not_converted("torch.export", error) from None
    for node in program.graph.nodes:  # an artifact must not name files of this machine
        node.meta.pop("stack_trace", None)
    torch.export.save(program, str(path))
