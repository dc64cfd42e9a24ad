"""A BERT encoder with a classification head, in plain PyTorch.

Serves `train.py`. Knows nothing of queries or labels. Layout and parameter names are those of
BERT (Devlin et al., 2018: post-norm, learned positions, GELU, pooled [CLS]) as the Hugging Face
checkpoints spell them, so the encoder can be shared by other heads and read by other tools.

Invariant: a token whose mask is 0 changes nothing for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Added to the scores of masked positions, as in the original BERT: exp() of it is 0 in every
#: float format, and unlike -inf it survives quantisation and a row that is all padding.
MASKED = -10000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderShape:
    """The sizes of an encoder."""

    vocabulary: int
    hidden: int = 192
    layers: int = 4
    heads: int = 3
    feed_forward: int = 768
    positions: int = 64
    dropout: float = 0.1


class BertEmbeddings(nn.Module):
    """Token, position and segment vectors; the segment is always 0 here."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(shape.vocabulary, shape.hidden, padding_idx=0)
        self.position_embeddings = nn.Embedding(shape.positions, shape.hidden)
        self.token_type_embeddings = nn.Embedding(2, shape.hidden)
        self.LayerNorm = nn.LayerNorm(shape.hidden, eps=1e-12)
        self.dropout = nn.Dropout(shape.dropout)
        self.register_buffer("position_ids", torch.arange(shape.positions)[None], persistent=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        positions = self.position_ids[:, : input_ids.shape[1]]
        vectors = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        return self.dropout(self.LayerNorm(vectors + self.token_type_embeddings.weight[0]))


class BertSelfAttention(nn.Module):
    """Multi-head attention over the whole query."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.query = nn.Linear(shape.hidden, shape.hidden)
        self.key = nn.Linear(shape.hidden, shape.hidden)
        self.value = nn.Linear(shape.hidden, shape.hidden)
        self.heads, self.head_size = shape.heads, shape.hidden // shape.heads
        self.dropout = shape.dropout

    def forward(self, hidden: Tensor, bias: Tensor) -> Tensor:
        rows, tokens, width = hidden.shape
        query, key, value = (
            layer(hidden).view(rows, tokens, self.heads, self.head_size).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=self.dropout if self.training else 0.0
        )
        return mixed.transpose(1, 2).reshape(rows, tokens, width)


class BertOutput(nn.Module):
    """Projection, residual, norm: the end of both halves of a layer."""

    def __init__(self, width: int, shape: EncoderShape) -> None:
        super().__init__()
        self.dense = nn.Linear(width, shape.hidden)
        self.LayerNorm = nn.LayerNorm(shape.hidden, eps=1e-12)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden)) + residual)


class BertLayer(nn.Module):
    """Attention, then the feed-forward network, each with its residual."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": BertSelfAttention(shape), "output": BertOutput(shape.hidden, shape)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(shape.hidden, shape.feed_forward)})
        self.output = BertOutput(shape.feed_forward, shape)

    def forward(self, hidden: Tensor, bias: Tensor) -> Tensor:
        hidden = self.attention["output"](self.attention["self"](hidden, bias), hidden)
        return self.output(functional.gelu(self.intermediate["dense"](hidden)), hidden)


class BertModel(nn.Module):
    """The shared backbone: ids and mask in, one vector per token and the pooled one out."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(shape)
        layers = nn.ModuleList(BertLayer(shape) for _ in range(shape.layers))
        self.encoder = nn.ModuleDict({"layer": layers})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(shape.hidden, shape.hidden)})

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        bias = (1.0 - attention_mask[:, None, None, :].float()) * MASKED
        hidden = self.embeddings(input_ids)
        for layer in self.encoder["layer"]:
            hidden = layer(hidden, bias)
        return hidden, torch.tanh(self.pooler["dense"](hidden[:, 0]))


class BertForSequenceClassification(nn.Module):
    """(rows, tokens) ids and mask -> (rows, labels) logits."""

    def __init__(self, shape: EncoderShape, labels: int) -> None:
        super().__init__()
        self.bert = BertModel(shape)
        self.dropout = nn.Dropout(shape.dropout)
        self.classifier = nn.Linear(shape.hidden, labels)
        self.apply(_initialise)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.classifier(self.dropout(self.bert(input_ids, attention_mask)[1]))


def _initialise(module: nn.Module) -> None:
    """BERT's own: normal with 0.02, zero biases and padding."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
