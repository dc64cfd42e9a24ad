"""A request of a given length for the live verification, made from the model's description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from penstock.artifacts.description import ModelDescription, TensorSpec
from penstock.errors import ModelError
from penstock.tune.measure import inputs_of

_WORD = "a "


def body_of(
    model_dir: Path, description: ModelDescription, inputs: tuple[TensorSpec, ...], tokens: int
) -> bytes:
    """JSON for one row: a text of about `tokens` tokens, or tensors with free dimensions of it."""
    if description.tokenizer is not None:
        text = _text(model_dir / description.tokenizer.file, tokens)
        paired = description.task == "pair-classification"
        value: Any = {"text": text[: len(text) // 2], "text_pair": text} if paired else text
        return orjson.dumps({"inputs": value})
    tensors = inputs_of(inputs, 1, tokens)
    rows = {name: array.tolist() for name, array in tensors.items()}
    return orjson.dumps({"inputs": rows if len(rows) > 1 else next(iter(rows.values()))})


def _text(tokenizer_file: Path, tokens: int) -> str:
    """Words until the tokenizer makes `tokens` of them, or one token per word at most."""
    import tokenizers  # noqa: PLC0415 - only text models need it

    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            "tokenizer-unreadable",
            f"{tokenizer_file.name}: {str(error)[:300]}",
            hint="It must be a `tokenizers` JSON file, whole.",
        ) from None
    tokenizer.no_padding()
    words = 1
    while words < tokens and len(tokenizer.encode(_WORD * (words + 1)).ids) <= tokens:
        words += 1
    return (_WORD * words).strip()
