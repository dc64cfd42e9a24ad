"""OpenAI's /v1/embeddings: texts in, vectors out, for models with the one task feature extraction.

`{"input": text | [text, ...], "encoding_format": "float" | "base64", "model": ...}`. Token numbers
instead of texts are refused: they belong to OpenAI's own vocabularies. Base64 is the vector's
float32 values, little endian; OpenAI's clients ask for it by default. A text that is longer than
the model reads is refused, unless the request wants it cut (`truncate_prompt_tokens` of -1, or
TEI's `truncate`): two texts that begin alike would get one vector.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import numpy as np

from penstock.artifacts.description.description import Head
from penstock.errors import CallerError
from penstock.instance.codecs.base import Tensors, bad
from penstock.instance.codecs.generation.calls import flag
from penstock.instance.codecs.generation.openai_parameters import check_parameters
from penstock.instance.codecs.text import TextDecoded, TextModel
from penstock.instance.codecs.text_bodies import JSON_META, check_count
from penstock.instance.codecs.text_heads import result_name
from penstock.instance.codecs.values import dump_json, parse_json
from penstock.wire.frames import RequestMeta

TEXTS_MAX: Final = 2048  #: most texts of a request, as in OpenAI's own API
_OPERATION: Final = "embeddings"
_FORMATS: Final = ("float", "base64")


class EmbeddingsDecoded(TextDecoded):
    """Texts whose vectors are requested. The engine sets `tokens`, for the usage, and refuses texts
    that are too long unless `cuts`."""

    __slots__ = ("cuts", "tokens")

    tokens: int
    cuts: bool


def decode_embeddings(model: TextModel, meta: RequestMeta, body: bytes) -> EmbeddingsDecoded:
    """Raises ModelError with the status that the model answers."""
    [head, *others] = model.heads
    asked: dict[str, Any] = parse_json(meta.parameters.encode()) if meta.parameters else {}
    if asked.get("operation") != _OPERATION:
        raise bad(
            "the model of this endpoint generates no text",
            hint="Ask an endpoint of a text-generation model.",
        )
    if others or head.task != "embedding":
        raise bad(
            "the model of this endpoint makes no embeddings",
            hint="Ask an endpoint whose model has the task feature-extraction.",
        )
    parsed = parse_json(body)
    if not isinstance(parsed, dict):
        raise bad("the body is not a JSON object")
    check_parameters(_OPERATION, parsed)
    texts = _texts(parsed.get("input"))
    form = parsed.get("encoding_format") or "float"
    if form not in _FORMATS:
        raise _wrong("encoding_format", f"is {str(form)[:40]!r}; allowed: {', '.join(_FORMATS)}")
    dimensions = parsed.get("dimensions")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise _wrong("dimensions", f"is {str(dimensions)[:40]}; allowed: a whole number from 1 on")
    last = parsed.get("truncate_prompt_tokens")
    if last is not None and (type(last) is not int or last != -1):
        raise _wrong("truncate_prompt_tokens", "may be -1, as many tokens as the model reads")
    name = parsed.get("model")

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        vectors = _vectors(head, outputs, dimensions)
        answer = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": at, "embedding": _written(vector, form)}
                for at, vector in enumerate(vectors)
            ],
            "model": name if isinstance(name, str) else "",
            "usage": {"prompt_tokens": decoded.tokens, "total_tokens": decoded.tokens},
        }
        return dump_json(answer), JSON_META

    decoded = EmbeddingsDecoded(list(texts), (head,), encode)
    decoded.tokens = 0
    decoded.cuts = last is not None or flag(parsed, "truncate")
    return decoded


def _wrong(name: str, words: str, hint: str = "") -> CallerError:
    return CallerError("invalid-parameter", f"{name} {words}", hint=hint, param=name)


def too_long(at: int, tokens_max: int) -> CallerError:
    """For the text at this place of the input."""
    return CallerError(
        "prompt-too-long",
        f"the text at place {at} of input has more than {tokens_max} tokens, special ones included:"
        " the model reads no longer ones",
        hint='Shorten it, or send "truncate_prompt_tokens": -1 to have its beginning read.',
        param="input",
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        if isinstance(value, list) and value and isinstance(value[0], int | list):
            raise _wrong(
                "input",
                "holds token numbers, and those of this model are its own",
                hint="Send texts; the client's length check (check_embedding_ctx_length of "
                "LangChain, for one) is what turns them into numbers.",
            )
        raise _wrong("input", "must be a text or a list of texts", hint='{"input": "red cup"}')
    check_count(len(value), TEXTS_MAX)
    return value


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
