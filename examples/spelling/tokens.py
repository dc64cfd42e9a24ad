"""The tokenizer: UTF-8 bytes, nothing learned.

Serves `train.py`. A misspelt word falls into odd subwords, another set for each error; bytes change
where the error is and nowhere else, and a word that nobody has seen is copied letter by letter.
Text begins with a token of its own, from which attention can count places.
"""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, normalizers
from tokenizers.processors import TemplateProcessing

PAD, EOS, UNK, START = 0, 1, 2, 3
SPECIAL = ("<pad>", "</s>", "<unk>", "<s>")
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))


def make_tokenizer() -> Tokenizer:
    """Lower case, single spaces, composed accents; `<s>`, the bytes, `</s>`."""
    vocabulary = {token: at for at, token in enumerate((*SPECIAL, *BYTES))}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, [], unk_token=SPECIAL[UNK], byte_fallback=True, fuse_unk=False)
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{SPECIAL[START]} $A {SPECIAL[EOS]}",
        special_tokens=[(SPECIAL[START], START), (SPECIAL[EOS], EOS)],
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
