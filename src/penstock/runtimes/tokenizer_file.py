"""A model's tokenizer.json, opened without padding and truncation.

Imports the standard library and the tokenizer alone: an engine may run in another interpreter.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores belong to the lanes

#: A text with more characters for each token that a model takes is not tokenized as a whole: the
#: library needs about 400 bytes and 2 us per character.
CHARACTERS_PER_TOKEN_MAX: Final = 256


def open_tokenizer_file(model_dir: Path, name: str = "tokenizer.json") -> Any:
    """A `tokenizers.Tokenizer`. Raises ModelError: `tokenizer-missing`, `tokenizer-unreadable`."""
    import tokenizers

    path = model_dir / name
    if not path.is_file():
        raise ModelError(
            "tokenizer-missing",
            f"the artifact has no file {name!r}",
            hint="Put the Hugging Face tokenizer.json there.",
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            "tokenizer-unreadable",
            f"{name}: {str(error)[:300]}",
            hint="It must be a `tokenizers` JSON file, whole.",
        ) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
