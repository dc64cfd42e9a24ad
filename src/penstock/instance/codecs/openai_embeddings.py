"""OpenAI's /v1/embeddings: texts in, vectors out, for models with the one task feature extraction.

`{"input": text | [text, ...] | [id, ...] | [[id, ...], ...], "encoding_format": "float" | "base64",
"model": ...}`. Token ids are those of the model's own tokenizer, and go to the model as they are,
special ones included. Base64 is the vector's float32 values, little endian; OpenAI's clients ask
for it by default. A text that is longer than the model reads is refused, unless the request wants
it cut (`truncate_prompt_tokens` of -1, or TEI's `truncate`): two texts that begin alike would get
one vector.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import numpy as np

from penstock.artifacts.description.description import Head
from penstock.errors import CallerError
from penstock.instance.codecs.base import Tensors, bad
from penstock.instance.codecs.generation.openai_parameters import check_parameters
from penstock.instance.codecs.openai_texts import OpenAiDecoded, cuts_of, invalid, name_of
from penstock.instance.codecs.text import TextModel
from penstock.instance.codecs.text_bodies import JSON_META, check_count
from penstock.instance.codecs.text_heads import result_name
from penstock.instance.codecs.values import dump_json

TEXTS_MAX: Final = 2048  #: most texts of a request, as in OpenAI's own API
EMBEDDINGS: Final = "embeddings"
_FORMATS: Final = ("float", "base64")


def decode_embeddings(model: TextModel, parsed: dict[str, Any]) -> OpenAiDecoded:
    """Raises ModelError with the status that the model answers."""
    [head, *others] = model.heads
    if others or head.task != "embedding":
        raise bad(
            "the model of this endpoint makes no embeddings",
            hint="Ask an endpoint whose model has the task feature-extraction.",
        )
    check_parameters(EMBEDDINGS, parsed)
    texts, ids = _inputs(parsed.get("input"))
    form = parsed.get("encoding_format") or "float"
    if form not in _FORMATS:
        raise invalid("encoding_format", f"is {str(form)[:40]!r}; allowed: {', '.join(_FORMATS)}")
    dimensions = parsed.get("dimensions")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise invalid("dimensions", f"is {str(dimensions)[:40]}; allowed: a whole number from 1 on")
    name = name_of(parsed, model)

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        vectors = _vectors(head, outputs, dimensions)
        answer = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": at, "embedding": _written(vector, form)}
                for at, vector in enumerate(vectors)
            ],
            "model": name,
            "usage": {"prompt_tokens": decoded.tokens, "total_tokens": decoded.tokens},
        }
        return dump_json(answer), JSON_META

    decoded = OpenAiDecoded(
        list(texts), head, encode, cuts=cuts_of(parsed), parameter="input", ids=ids
    )
    return decoded


def _inputs(value: Any) -> tuple[list[str], list[list[int]] | None]:
    """Texts, or rows of token ids. Raises CallerError."""
    if isinstance(value, str):
        return [value], None
    if not isinstance(value, list):
        raise invalid("input", "must be a text or a list of texts", hint='{"input": "red cup"}')
    if value and _is_row(value):
        return [], [value]
    check_count(len(value), TEXTS_MAX)
    if all(isinstance(each, str) for each in value):
        return value, None
    if all(isinstance(each, list) and _is_row(each) for each in value):
        return [], value
    raise invalid(
        "input",
        "must be a text, a list of token ids, or a list of texts or of lists of token ids",
        hint='{"input": "red cup"}',
    )


def _is_row(value: list[Any]) -> bool:
    return bool(value) and all(type(each) is int for each in value)


def _vectors(head: Head, outputs: Tensors, dimensions: int | None) -> np.ndarray:
    vectors = np.ascontiguousarray(outputs[result_name(head)], dtype=np.float32)
    if dimensions is not None and dimensions != vectors.shape[1]:
        raise CallerError(
            "dimensions-unsupported",
            f"dimensions is {dimensions}; the vectors of this model have {vectors.shape[1]}",
            hint="Leave dimensions out.",
            param="dimensions",
        )
    return vectors


def _written(vector: np.ndarray, form: str) -> Any:
    if form == "float":
        return vector
    return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode()
