"""The tokenizer of a text model: opened, cut to the model's length, and tried once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.artifacts.description import Tokenizer
from penstock.errors import ModelError

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores belong to the lanes


def open_tokenizer(model_dir: Path, spec: Tokenizer | None, width_fixed: int) -> Any:
    import tokenizers  # noqa: PLC0415 - only text models need it

    if spec is None:
        raise ModelError(
            "tokenizer-missing",
            "a text model needs a tokenizer",
            hint="Put tokenizer.json beside the model.",
        )
    path = model_dir / spec.file
    if not path.is_file():
        raise ModelError(
            "tokenizer-missing",
            f"the artifact has no file {spec.file!r}",
            hint="Put the Hugging Face tokenizer.json there.",
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            "tokenizer-unreadable",
            f"{spec.file}: {str(error)[:300]}",
            hint="It must be a `tokenizers` JSON file, whole.",
        ) from None
    tokens_max = min(spec.tokens_max, width_fixed) if width_fixed else spec.tokens_max
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=tokens_max)
    return tokenizer
