"""The tokenizer: trained on the training queries, and the batches of ids made with it.

Serves `train.py`, `export.py` and `measure.py`. BPE with BERT's normaliser and special tokens.
Digits stay single, so that order numbers and model codes do not fill the vocabulary. In training,
merges are dropped at random (BPE-dropout, Provilkov et al., 2019): pieces of words get trained, and
words never seen and misspellings are read by them. The saved tokenizer drops nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import (
    Encoding,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD_ID = 0


def train_tokenizer(texts: Sequence[str], *, vocabulary: int, tokens_max: int) -> Tokenizer:
    """A tokenizer that puts [CLS] and [SEP] around a query and cuts it at `tokens_max`.

    The first piece of a word is marked, not the others: with WordPiece's "##" the trainer numbers
    the pieces in the order of a hash map, and no two runs give the same ids.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Metaspace(prepend_scheme="always"),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=5,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=[*"abcdefghijklmnopqrstuvwxyz0123456789"],
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.enable_truncation(tokens_max)
    return tokenizer


def padded(encodings: Sequence[Encoding], width: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(ids, mask) as int64 of shape (rows, longest or `width`)."""
    width = max(width, *(len(e.ids) for e in encodings))
    ids = np.full((len(encodings), width), PAD_ID, dtype=np.int64)
    mask = np.zeros((len(encodings), width), dtype=np.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = encoding.ids
        mask[row, : len(encoding.ids)] = 1
    return ids, mask
