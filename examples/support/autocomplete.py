"""One customer's autocomplete model: a T5 that writes the canned reply that the words call for.

Its weights are set by hand instead of learnt. A word of the question, averaged with the others by
the decoder's attention to the source, votes for the first pieces of the replies; each piece says
which one follows, and the last says that it is the end. The graphs are those that `penstock
compile` makes of a trained T5, so it is loaded, batched and decoded as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from replies import Reply
from tokenizers import Tokenizer as TokenizerFile
from tokenizers import models, normalizers, pre_tokenizers

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import (
    Batching,
    Generation,
    ModelDescription,
    Tokenizer,
)
from penstock.compile.seq2seq import seq2seq_t5
from penstock.compile.seq2seq.seq2seq_graph import Builder

PAD, END, UNKNOWN = 0, 1, 2
WIDTH = 256
TOKENS_MAX = 640
#: What a piece's own embedding is worth beside one vote of a question's words, and what following
#: it is worth beside a vote: both large, so that a reply once begun is written to its end.
_OWN, _FOLLOWS, _VOTE = 4.0, 50.0, 4.0
_NOISE = 1e-3  #: of all weights, so that no two customers and no two layers are equal


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Ids of words, then of pieces."""

    words: dict[str, int]
    pieces: dict[str, int]

    @classmethod
    def of(cls, replies: Sequence[Reply]) -> Vocabulary:
        words = dict.fromkeys(word for reply in replies for word in reply.words)
        pieces = dict.fromkeys(piece for reply in replies for piece in reply.pieces)
        first = UNKNOWN + 1
        ids = {word: first + at for at, word in enumerate(words)}
        return cls(ids, {piece: first + len(ids) + at for at, piece in enumerate(pieces)})

    @property
    def size(self) -> int:
        return UNKNOWN + 1 + len(self.words) + len(self.pieces)


def config(vocabulary: Vocabulary, layers: int) -> dict[str, Any]:
    """The shape, in Hugging Face's words."""
    return {
        "d_model": WIDTH,
        "d_kv": 32,
        "d_ff": 4 * WIDTH,
        "num_heads": 8,
        "num_layers": layers,
        "num_decoder_layers": layers,
        "vocab_size": vocabulary.size,
        "relative_attention_num_buckets": 32,
        "feed_forward_proj": "relu",
    }


def weights(
    replies: Sequence[Reply], vocabulary: Vocabulary, layers: int, name: str
) -> dict[str, np.ndarray]:
    """Tables by the names that a T5 has them under."""
    rng = np.random.Generator(np.random.PCG64(list(name.encode())))
    tables: dict[str, np.ndarray] = {}

    def noise(*sizes: int) -> np.ndarray:
        return (_NOISE * rng.standard_normal(sizes, dtype=np.float32)).astype(np.float32)

    for part, at, prefix in [
        (part, at, f"{part}.block.{at}.layer")
        for part in ("encoder", "decoder")
        for at in range(layers)
    ]:
        kinds = ["SelfAttention", *(["EncDecAttention"] if part == "decoder" else [])]
        for number, kind in enumerate(kinds):
            for letter in "qkvo":
                tables[f"{prefix}.{number}.{kind}.{letter}.weight"] = noise(WIDTH, WIDTH)
        if at == 0:
            tables[f"{prefix}.0.SelfAttention.relative_attention_bias.weight"] = noise(32, 8)
        for number in range(len(kinds) + 1):
            tables[f"{prefix}.{number}.layer_norm.weight"] = np.ones(WIDTH, dtype=np.float32)
        inner = f"{prefix}.{len(kinds)}.DenseReluDense"
        tables[f"{inner}.wi.weight"] = noise(4 * WIDTH, WIDTH)
        tables[f"{inner}.wo.weight"] = noise(WIDTH, 4 * WIDTH)
    for part in ("encoder", "decoder"):
        tables[f"{part}.final_layer_norm.weight"] = np.ones(WIDTH, dtype=np.float32)
    tables["shared.weight"] = noise(vocabulary.size, WIDTH)
    tables["lm_head.weight"] = noise(vocabulary.size, WIDTH)
    _teach(tables, replies, vocabulary)
    return tables


def _teach(tables: dict[str, np.ndarray], replies: Sequence[Reply], vocabulary: Vocabulary) -> None:
    """Each token has a dimension, and behind them each reply has one, for its votes."""
    votes = vocabulary.size
    if votes + len(replies) > WIDTH:
        raise ValueError(f"{votes} tokens and {len(replies)} replies do not fit {WIDTH} dimensions")
    own, head = tables["shared.weight"], tables["lm_head.weight"]
    own[np.arange(votes), np.arange(votes)] += _OWN
    attention = "decoder.block.0.layer.1.EncDecAttention"
    values, out = tables[f"{attention}.v.weight"], tables[f"{attention}.o.weight"]
    values[np.arange(WIDTH), np.arange(WIDTH)] += 1.0
    for at, reply in enumerate(replies):
        for word in reply.words:
            out[votes + at, vocabulary.words[word]] += 1.0
        ids = [vocabulary.pieces[piece] for piece in reply.pieces]
        head[ids[0], votes + at] += _VOTE
        for before, after in zip(ids, [*ids[1:], END], strict=True):
            head[after, before] += _FOLLOWS


def write_tokenizer(vocabulary: Vocabulary, path: Path) -> None:
    """Words in, pieces out; a word of no reply has no vote."""
    special = {"<pad>": PAD, "</s>": END, "<unk>": UNKNOWN}
    ids = special | vocabulary.words | vocabulary.pieces
    tokenizer = TokenizerFile(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.save(str(path), pretty=False)


def write(folder: Path, replies: Sequence[Reply], *, name: str, seed: int, layers: int = 2) -> None:
    """encoder and decoder, tokenizer.json and model.yaml."""
    vocabulary = Vocabulary.of(replies)
    shape = config(vocabulary, layers)
    tables = weights(replies, vocabulary, layers, f"autocomplete {seed} {name}")
    for part in ("encoder", "decoder"):
        builder = Builder(tables, int8=True, bf16=False)
        model = getattr(seq2seq_t5, part)(builder, shape)
        for at, node in enumerate(model.get_ordered_ops()):
            node.set_friendly_name(f"n{at}")
        ov.serialize(model, folder / f"{part}.xml")
    write_tokenizer(vocabulary, folder / "tokenizer.json")
    description = ModelDescription(
        runtime="seq2seq",
        task="text2text-generation",
        name=name,
        file="decoder.xml",
        tokenizer=Tokenizer(tokens_max=TOKENS_MAX, pad_id=PAD),
        generation=Generation(eos_ids=(END,), decoder_start_id=PAD, tokens_new_max=8, beams_max=1),
        batching=Batching(rows_max=8),
        threads_per_lane=1,
        precision="f32",
    )
    (folder / model_yaml.FILE_NAME).write_text(model_yaml.dump(description), encoding="utf-8")
