"""A model's tokenizer.json, opened as it is; the library is imported when the first one is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.errors import ModelError

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores belong to the lanes


def open_tokenizer_file(path: Path) -> Any:
    """A `tokenizers.Tokenizer` that pads nothing. Raises ModelError."""
    import tokenizers

    if not path.is_file():
        raise ModelError(
            "tokenizer-missing",
            f"the model has no {path.name}",
            hint="Put the Hugging Face tokenizer.json beside it.",
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            "tokenizer-unreadable",
            f"{path.name}: {str(error)[:300]}",
            hint="It must be a `tokenizers` JSON file, whole.",
        ) from None
    tokenizer.no_padding()
    return tokenizer
