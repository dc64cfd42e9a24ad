"""A source's model in PyTorch, loaded by transformers, for building graphs from its weights.

It never runs code of the source. Missing weights are an error, because transformers would replace
them by random numbers. The caller builds the graphs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.compile.libraries import need
from penstock.errors import ModelError


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
