"""Requests of OpenAI's door at a text model: their rows of tokens, and the answers to questions
about tokens, for which the model does not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.instance.codecs.base import bad
from penstock.instance.codecs.generation import openai_tokens
from penstock.instance.codecs.openai_embeddings import EMBEDDINGS, decode_embeddings
from penstock.instance.codecs.openai_scores import RERANK, SCORE, decode_scores
from penstock.instance.codecs.text import TextDecoded, TextModel
from penstock.instance.codecs.text_bodies import JSON_META
from penstock.instance.codecs.values import parse_json
from penstock.instance.engines.text_tokens import TextTokenizer, Tokens
from penstock.wire.frames import RequestMeta

_NOTHING: Final[Sequence[Tokens]] = ()


def read(
    model: TextModel, tokenizer: TextTokenizer, asked: RequestMeta, body: bytes
) -> tuple[TextDecoded, Sequence[Any]]:
    """The request, and for each of its rows an object with `ids` and `type_ids`. A request without
    rows is answered by its `encode` alone. Raises ModelError and CallerError."""
    parameters: dict[str, Any] = parse_json(asked.parameters.encode()) if asked.parameters else {}
    operation = str(parameters.get("operation"))
    if operation not in (EMBEDDINGS, RERANK, SCORE, *openai_tokens.OPERATIONS):
        raise bad(
            "the model of this endpoint generates no text",
            hint="Ask an endpoint of a text-generation model.",
        )
    parsed = parse_json(body)
    if not isinstance(parsed, dict):
        raise bad("the body is not a JSON object")
    if operation in openai_tokens.OPERATIONS:
        return _told(tokenizer, openai_tokens.question_of(operation, parsed)), _NOTHING
    if operation == EMBEDDINGS:
        decoded = decode_embeddings(model, parsed)
    else:
        decoded = decode_scores(model, operation, parsed)
    tokens_max = tokenizer.tokens_max
    if decoded.ids is not None:
        decoded.check_ids(tokenizer.vocabulary)
        rows: Sequence[Any] = [Tokens(row[:tokens_max], [0] * len(row)) for row in decoded.ids]
        longer = (at for at, row in enumerate(decoded.ids) if len(row) > tokens_max)
        cut = next(longer, None)
    else:
        rows = tokenizer.encode_batch(decoded.texts)
        cut = tokenizer.first_cut(decoded.texts, [row.ids for row in rows])
    if cut is not None and not decoded.cuts:
        raise decoded.too_long(cut, tokens_max)
    decoded.tokens = sum(len(row.ids) for row in rows)
    return decoded, rows


def _told(tokenizer: TextTokenizer, question: openai_tokens.TokenQuestion) -> TextDecoded:
    error = openai_tokens.no_template(question)
    if error is not None:
        raise error
    told = tokenizer.told(question)
    return TextDecoded([], (), lambda _: (openai_tokens.answer_of(told), JSON_META))
