"""Text models as Hugging Face exporters leave them: ONNX or IR beside tokenizer and config.

It uses only what the files say without doubt: single-label classifiers with named labels, and
sentence encoders with a pooling configuration. Any other model stays a tensor model. Malformed
JSON is an error, since whoever put it there meant it to be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import (
    Batching,
    Embedding,
    ModelDescription,
    Tokenizer,
)
from penstock.errors import CallerError

_JSON_BYTES_MAX = 4 * 1024 * 1024
_TOKENS_MAX = 512  #: BERT's positions; a model.yaml may choose a longer context
#: Larger encoder batches hardly raise throughput on CPUs (FIGURES: 32x16 against 1x16).
_ROWS_MAX = 32


def text_model(root: Path, runtime: str, file: str) -> ModelDescription | None:
    """The description of a text model in `root`; None if the files do not make one."""
    if not (root / "tokenizer.json").is_file() or not (root / "config.json").is_file():
        return None
    config = read_json(root / "config.json")
    labels = _labels(config)
    embedding = _embedding(root)
    if not labels and embedding is None:
        return None
    return ModelDescription(
        runtime=runtime,
        task="text-classification" if labels else "feature-extraction",
        file=file,
        labels=labels,
        tokenizer=Tokenizer(tokens_max=_tokens_max(root, config), pad_id=_pad_id(config)),
        embedding=None if labels else embedding,
        batching=Batching(rows_max=_ROWS_MAX),
    )


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Class names in the order of the logits; () unless this is a single-label classifier."""
    architectures = config.get("architectures")
    names = config.get("id2label")
    if not isinstance(architectures, list) or not isinstance(names, dict):
        return ()
    if not any(str(name).endswith("ForSequenceClassification") for name in architectures):
        return ()
    if config.get("problem_type") not in (None, "single_label_classification"):
        return ()  # several labels may be true at once: scores are no softmax then
    if set(names) != {str(index) for index in range(len(names))}:
        return ()
    return tuple(str(names[str(index)]) for index in range(len(names)))


def _embedding(root: Path) -> Embedding | None:
    pooling_path = root / "1_Pooling" / "config.json"
    if not pooling_path.is_file():
        return None
    pooling = read_json(pooling_path)
    modes = {name for name, value in pooling.items() if name.startswith("pooling_mode_") and value}
    kinds = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(modes) != 1 or not modes <= set(kinds):
        return None
    return Embedding(pooling=kinds[modes.pop()], normalize=(root / "2_Normalize").is_dir())


def _tokens_max(root: Path, config: Mapping[str, Any]) -> int:
    positions = config.get("max_position_embeddings")
    return int(min([*_lengths([positions]), *stated_lengths(root, read_json), _TOKENS_MAX]))


def stated_lengths(root: Path, read: Callable[[Path], Mapping[str, Any]]) -> list[float]:
    """The longest texts, in tokens, that the files of tokenizer and sentence encoder name."""
    files = (
        (root / "tokenizer_config.json", "model_max_length"),
        (root / "sentence_bert_config.json", "max_seq_length"),
    )
    return _lengths(read(path).get(key) for path, key in files if path.is_file())


def _lengths(values: Iterable[Any]) -> list[float]:
    """Tokenizers without a bound say 1e30, or infinity, which Python's JSON parser accepts."""
    return [value for value in values if type(value) in (int, float) and value >= 1]


def _pad_id(config: Mapping[str, Any]) -> int:
    pad_id = config.get("pad_token_id")
    return pad_id if type(pad_id) is int and 0 <= pad_id < 2**31 else 0


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises CallerError (`model-file-invalid`)."""
    try:
        if path.stat().st_size > _JSON_BYTES_MAX:
            raise ValueError(f"larger than {_JSON_BYTES_MAX} bytes")
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError("it holds no object")
    except (ValueError, RecursionError) as error:
        raise CallerError(
            "model-file-invalid",
            f"{path.name}: not the JSON that exporters write: {error}",
            hint="Export the model again, or add a model.yaml and leave this file out.",
        ) from error
    return value
