"""The backbone of query intent over two segments, and one linear head per question.

Serves `train.py` and `export.py`. Layers and parameter names are those of
`examples/query_intent/encoder.py`, whose trained weights it loads; only the segment vector is
chosen per token here, where there it is always the first. Knows nothing of titles.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from encoder import MASKED, BertEmbeddings, BertModel, EncoderShape
from torch import Tensor, nn


class PairEmbeddings(BertEmbeddings):
    """Token, position and segment vectors."""

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = self.position_ids[:, : input_ids.shape[1]]
        vectors = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        return self.dropout(self.LayerNorm(vectors + self.token_type_embeddings(token_type_ids)))


class PairBackbone(BertModel):
    """Ids, mask and segments in, one vector per token and the pooled one out."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__(shape)
        self.embeddings = PairEmbeddings(shape)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        bias = (1.0 - attention_mask[:, None, None, :].float()) * MASKED
        hidden = self.embeddings(input_ids, token_type_ids)
        for layer in self.encoder["layer"]:
            hidden = layer(hidden, bias)
        return hidden, torch.tanh(self.pooler["dense"](hidden[:, 0]))


class PairHeads(nn.Module):
    """One forward pass for all heads: logits of each, in the order of `sizes`.

    The last value of a call in training is `matched`, two logits per token: does the other title
    have it, and after the same token? They teach the layers to compare, which yes and no alone do
    only slowly, and are not exported.
    """

    def __init__(self, shape: EncoderShape, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.bert = PairBackbone(shape)
        self.dropout = nn.Dropout(shape.dropout)
        self.heads = nn.ModuleDict({n: nn.Linear(shape.hidden, s) for n, s in sizes.items()})
        self.matcher = nn.Linear(shape.hidden, 2)
        self.bounded = frozenset(name for name, size in sizes.items() if size == 1)
        for module in (*self.heads.values(), self.matcher):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        hidden, pooled = self.bert(input_ids, attention_mask, token_type_ids)
        pooled = self.dropout(pooled)
        answers = [
            torch.sigmoid(head(pooled)) if name in self.bounded else head(pooled)
            for name, head in self.heads.items()
        ]
        return (*answers, self.matcher(hidden)) if self.training else tuple(answers)
