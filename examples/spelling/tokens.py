"""The tokenizer: the model reads characters and writes subwords.

Serves `train.py`. A misspelt word falls into odd subwords, another set for each error, so the text
that comes in is read letter by letter: that costs the encoder, which runs once. The answer is spelt
well, so it is written in subwords, a third as many: each is a step of the decoder, which is what
takes the time. One file holds both: its pre-tokenizer parts every letter, so encoding meets no
merge, and its decoder knows all pieces. Whatever has no token of its own becomes UTF-8 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

VOCABULARY = 6144
PAD, EOS, UNK = 0, 1, 2
SPECIAL = ("<pad>", "</s>", "<unk>")
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
_SPACE = "\u2581"


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """The writing tokenizer: subwords of `texts`, digits one by one, byte fallback."""
    learned = Tokenizer(models.BPE())
    learned.normalizer = _normalizer()
    learned.pre_tokenizer = _by_word()
    reserved = len(SPECIAL) + len(BYTES)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - reserved, show_progress=False, special_tokens=[]
    )
    learned.train_from_iterator(texts, trainer)
    state = json.loads(learned.to_str())["model"]
    pieces = sorted(state["vocab"], key=state["vocab"].__getitem__)
    vocabulary = {piece: at for at, piece in enumerate((*SPECIAL, *BYTES, *pieces))}
    merges = [tuple(merge) for merge in state["merges"]]
    writing = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=SPECIAL[UNK], byte_fallback=True, fuse_unk=False)
    )
    writing.add_special_tokens(list(SPECIAL))
    writing.normalizer = _normalizer()
    writing.pre_tokenizer = _by_word()
    writing.post_processor = TemplateProcessing(
        single=f"$A {SPECIAL[EOS]}", special_tokens=[(SPECIAL[EOS], EOS)]
    )
    writing.decoder = decoders.Sequence(
        [
            decoders.Replace(_SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return writing


def reading(writing: Tokenizer) -> Tokenizer:
    """The same tokens, text taken apart into single characters: what the artifact carries."""
    tokenizer = Tokenizer.from_str(writing.to_str())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return tokenizer


def _normalizer() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
            normalizers.Prepend(_SPACE),
            normalizers.Replace(" ", _SPACE),
        ]
    )


def _by_word() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_SPACE, "merged_with_next"),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
