"""What transformers reads of a source: its tokenizer, and its model in PyTorch.

The tokenizer becomes the one file that an instance reads, `tokenizer.json`. A fast tokenizer is
copied unchanged. Vocabularies of the slow kinds (WordPiece, BPE merges, SentencePiece) are
converted here once. A model that is loaded here serves to build graphs from its weights. No code of
the source runs. Missing weights are an error, because transformers would replace them by random
numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import Tokenizer
from penstock.compile.libraries import first_line, need
from penstock.errors import CallerError, ModelError

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
        raise CallerError(
            "tokenizer-damaged",
            f"the tokenizer can't be read: {first_line(error)[:300]}",
            hint=f"Convert it where it works: AutoTokenizer...save_pretrained writes {FAST}.",
        ) from None


def _pad_id(tokenizer: Any, configured: int | None) -> int:
    for token in ("[PAD]", "<pad>"):
        found = tokenizer.token_to_id(token)
        if found is not None:
            return int(found)
    return configured if configured is not None and configured >= 0 else 0


def load_model(root: Path, auto_class: str, what: str) -> Any:
    """The model in FP32 on the CPU, ready to answer.

    Args:
        auto_class: class of transformers, such as `AutoModelForCausalLM`.
        what: the kind of model, for people: "a language model".

    Raises CallerError (those of `need`), ModelError (`weights-unreadable`, `weights-missing`).
    """
    transformers, torch = need("transformers"), need("torch")
    try:
        model, told = getattr(transformers, auto_class).from_pretrained(
            root, dtype=torch.float32, local_files_only=True, trust_remote_code=False,
            output_loading_info=True,
        )  # fmt: skip
    except Exception as error:  # transformers, safetensors and json raise kinds of their own
        words = " ".join(str(error).split())[:300]
        raise ModelError(
            "weights-unreadable",
            f"transformers cannot load the source as {what}: {words}",
            hint="Check that config.json and all weights are there and whole.",
        ) from None
    lacking = sorted(told["missing_keys"])
    if lacking:
        raise ModelError(
            "weights-missing",
            f"the source lacks {len(lacking)} tensors, the first is {lacking[0]!r}",
            hint="Check that all of the model's safetensors files are there and whole.",
        )
    return model.eval()


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Every tensor in FP32, by its name in the source."""
    return {key: value.float().numpy() for key, value in model.state_dict().items()}
