"""The tokenizer of a text model: opened, cut to the model's length, and tried once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.artifacts.description import Tokenizer
from penstock.errors import ModelError

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores belong to the lanes


def open_tokenizer(
    model_dir: Path, spec: Tokenizer | None, width_fixed: int, *, pairs: bool = False
) -> Any:
    """Cuts texts (`pairs`: the longer of two first) to what the model takes.

    `width_fixed` is the one length that the model's graph insists on, 0 if it takes any. Raises
    ModelError.
    """
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
    texts = 2 if pairs else 1
    needed = tokenizer.num_special_tokens_to_add(pairs) + texts
    if tokens_max < needed:
        # Below that the library does not cut at all.
        raise ModelError(
            "tokens-max-too-small",
            f"{tokens_max} tokens do not hold the special tokens and one of each text: {needed}",
            hint="Raise tokenizer.tokens_max in model.yaml, or export the model for longer texts.",
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=tokens_max)
    return tokenizer
