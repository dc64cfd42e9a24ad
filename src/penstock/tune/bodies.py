"""A request of a given length for the live verification, made from the model's description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.runtimes.tokenizer_file import open_tokenizer_file
from penstock.tune.measure import inputs_of

_WORD = "a "


def body_of(
    model_dir: Path, description: ModelDescription, inputs: tuple[TensorSpec, ...], tokens: int
) -> bytes:
    """JSON for one row: a text of about `tokens` tokens, or tensors with free dimensions of it."""
    if description.tokenizer is not None:
        text = _text(model_dir, description.tokenizer.file, tokens)
        paired = description.task == "pair-classification"
        value: Any = {"text": text[: len(text) // 2], "text_pair": text} if paired else text
        return orjson.dumps({"inputs": value})
    tensors = inputs_of(inputs, 1, tokens)
    rows = {name: array.tolist() for name, array in tensors.items()}
    return orjson.dumps({"inputs": rows if len(rows) > 1 else next(iter(rows.values()))})


def _text(model_dir: Path, tokenizer_file: str, tokens: int) -> str:
    """Words until the tokenizer makes `tokens` of them, or one token per word at most."""
    tokenizer = open_tokenizer_file(model_dir, tokenizer_file)
    words = 1
    while words < tokens and len(tokenizer.encode(_WORD * (words + 1)).ids) <= tokens:
        words += 1
    return (_WORD * words).strip()
