"""The tokenizer of a source as the one file that an instance reads: `tokenizer.json`.

A fast tokenizer is copied unchanged. Vocabularies of the slow kinds (WordPiece, BPE merges,
SentencePiece) are converted here once, by transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import Tokenizer
from penstock.compile.libraries import need
from penstock.errors import CallerError

FAST = "tokenizer.json"
#: Vocabularies that transformers can convert. Without one of them it would silently make an empty
#: tokenizer, so their presence is checked first.
SLOW = (
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "tokenizer.model",
)


def write_tokenizer(
    source: Path, staging: Path, *, tokens_max: int, vocabulary: int, pad_id: int | None = None
) -> Tokenizer:
    """Writes `staging`/tokenizer.json and returns its description.

    Args:
        source: the Hugging Face directory.
        staging: an existing folder.
        tokens_max: longer texts are cut there.
        vocabulary: rows of the model's embedding table; 0 = unknown.
        pad_id: from config.json; the tokenizer's own padding token takes precedence.

    Raises CallerError: `tokenizer-missing`, `tokenizer-damaged`, `tokenizer-mismatch`.
    """
    path = staging / FAST
    if (source / FAST).is_file():
        path.write_bytes((source / FAST).read_bytes())
    else:
        _convert(source, path)
    tokenizer = open_tokenizer(path)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest < 0 or 0 < vocabulary <= largest:
        raise CallerError(
            "tokenizer-mismatch",
            f"the tokenizer has ids up to {largest}, the model's embeddings have {vocabulary} rows",
            hint="The tokenizer belongs to another model; copy the one it was trained with.",
        )
    return Tokenizer(file=FAST, tokens_max=tokens_max, pad_id=_pad_id(tokenizer, pad_id))


def open_tokenizer(path: Path) -> Any:
    """A `tokenizers.Tokenizer` without padding. Raises CallerError (`tokenizer-damaged`)."""
    try:
        tokenizer = need("tokenizers").Tokenizer.from_file(str(path))
    except CallerError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise CallerError(
            "tokenizer-damaged",
            f"{path.name}: {str(error)[:300]}",
            hint="Copy tokenizer.json again, or delete it where a vocabulary lies beside it.",
        ) from None
    tokenizer.no_padding()
    return tokenizer


def _convert(source: Path, path: Path) -> None:
    if not any((source / name).is_file() for name in SLOW):
        raise CallerError(
            "tokenizer-missing",
            f"{source.name} has neither {FAST} nor a vocabulary ({', '.join(SLOW)})",
            hint="Copy the tokenizer's files from the model's origin, or save it with "
            "AutoTokenizer.save_pretrained.",
        )
    try:
        loaded = need("transformers").AutoTokenizer.from_pretrained(
            str(source), use_fast=True, local_files_only=True, trust_remote_code=False
        )
        loaded.backend_tokenizer.save(str(path))
    except CallerError:
        raise
    except Exception as error:  # transformers raises many kinds for a bad vocabulary
        cause = str(error).strip().splitlines()
        raise CallerError(
            "tokenizer-damaged",
            f"the tokenizer can't be read: {(cause or [type(error).__name__])[0][:300]}",
            hint=f"Convert it where it works: AutoTokenizer...save_pretrained writes {FAST}.",
        ) from None


def _pad_id(tokenizer: Any, configured: int | None) -> int:
    for token in ("[PAD]", "<pad>"):
        found = tokenizer.token_to_id(token)
        if found is not None:
            return int(found)
    return configured if configured is not None and configured >= 0 else 0
