"""A Llama model run over several conversations that share their beginning.

Serves `train_chat.py`. The list of products is read once, and the questions about it side by side:
each branch sees the beginning and itself. It uses the weights of transformers' LlamaForCausalLM and
computes what that would compute for each branch alone, at about half the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_FAR = -30_000.0


@dataclass(frozen=True, slots=True)
class Batch:
    """R beginnings of P tokens with K branches of S tokens each; padding on the right."""

    begin: Tensor  #: [R, P]
    begin_sizes: Tensor  #: [R]
    branch: Tensor  #: [R, K, S]
    labels: Tensor  #: [R, K, S]: the token after each one, -100 where nothing is learned
    places: Tensor  #: [R, K, S]: where in the beginning that token is copied from, else -1


@dataclass(frozen=True, slots=True)
class Read:
    hidden: Tensor  #: [R, K, S, width], behind the last norm
    looked: Tensor  #: [R, heads, K, S, P + S]: attention of the branches in the layer asked for


def read(model: Any, batch: Batch, *, layer_shown: int) -> Read:
    config = model.config
    rows, begin_width = batch.begin.shape
    _, branches, width = batch.branch.shape
    flat = torch.cat([batch.begin, batch.branch.reshape(rows, -1)], dim=1)
    value = model.model.embed_tokens(flat)
    turns = _turns(model, batch, value.dtype)
    seen = _masks(batch, value.dtype)
    looked = value
    for at, layer in enumerate(model.model.layers):
        normal = _norm(value, layer.input_layernorm.weight, config)
        mixed, weights = _attend(
            layer.self_attn, normal, turns, seen, (begin_width, branches, width)
        )
        if at == layer_shown:
            looked = weights
        value = value + layer.self_attn.o_proj(mixed)
        normal = _norm(value, layer.post_attention_layernorm.weight, config)
        mlp = layer.mlp
        value = value + mlp.down_proj(functional.silu(mlp.gate_proj(normal)) * mlp.up_proj(normal))
    ends = value[:, begin_width:].reshape(rows, branches, width, -1)
    return Read(_norm(ends, model.model.norm.weight, config), looked)


def _attend(
    layer: Any,
    value: Tensor,
    turns: tuple[Tensor, Tensor],
    seen: tuple[Tensor, Tensor],
    sizes: tuple[int, int, int],
) -> tuple[Tensor, Tensor]:
    begin, branches, width = sizes
    rows, count, _ = value.shape
    size = layer.head_dim
    heads = layer.q_proj.out_features // size

    def split(part: Any) -> Tensor:
        found: Tensor = part(value).view(rows, count, heads, size).transpose(1, 2)
        return found

    query, key = (_turned(split(part), turns) for part in (layer.q_proj, layer.k_proj))
    values = split(layer.v_proj)
    query = query * size**-0.5
    first = query[:, :, :begin] @ key[:, :, :begin].transpose(-1, -2) + seen[0][:, None, :, :begin]
    early = torch.softmax(first, dim=-1) @ values[:, :, :begin]
    own = (rows, heads, branches, width, size)
    queries, keys, news = (each[:, :, begin:].reshape(own) for each in (query, key, values))
    back = query[:, :, begin:] @ key[:, :, :begin].transpose(-1, -2)
    scores = torch.cat(
        [back.view(rows, heads, branches, width, begin), queries @ keys.transpose(-1, -2)], dim=-1
    )
    weights = torch.softmax(scores + seen[1][:, None], dim=-1)
    far = weights[..., :begin].reshape(rows, heads, branches * width, begin)
    late = far @ values[:, :, :begin] + (weights[..., begin:] @ news).flatten(2, 3)
    mixed = torch.cat([early, late], dim=2).transpose(1, 2).reshape(rows, count, -1)
    return mixed, weights


def _norm(value: Tensor, weight: Tensor, config: Any) -> Tensor:
    return functional.rms_norm(value, weight.shape, weight, config.rms_norm_eps)


def _turned(value: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    half = value.shape[-1] // 2
    swapped = torch.cat([-value[..., half:], value[..., :half]], dim=-1)
    return value * turns[0] + swapped * turns[1]


def _turns(model: Any, batch: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine by position; branches go on where their beginning ends."""
    rates = model.model.rotary_emb.inv_freq.float()
    rows, begin = batch.begin.shape
    _, branches, width = batch.branch.shape
    first = torch.arange(begin).expand(rows, begin)
    later = batch.begin_sizes[:, None, None] + torch.arange(width).expand(rows, branches, width)
    places = torch.cat([first, later.reshape(rows, -1)], dim=1)
    angles = places[:, None, :, None].float() * rates
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


def _masks(batch: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What is added to scores: of the beginning [1, P, P], of branches [R, 1, S, P + S]."""
    rows, begin = batch.begin.shape
    width = batch.branch.shape[-1]
    first = torch.full((begin, begin), _FAR).triu(1)[None]
    there = torch.where(torch.arange(begin) < batch.begin_sizes[:, None], 0.0, _FAR)
    own = torch.full((width, width), _FAR).triu(1).expand(rows, width, width)
    later = torch.cat([there[:, None].expand(rows, width, begin), own], dim=-1)
    return first.to(dtype), later[:, None].to(dtype)
