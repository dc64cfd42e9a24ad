"""Rerank and score: how well texts answer another, by a model that compares two texts and gives one
number for them (a cross-encoder).

    /rerank  {"query", "documents": [text or {"text"}, ...], "top_n", ...}, of Jina, Cohere, vLLM ->
             {"id", "model", "usage", "results": [{"index", "relevance_score", "document"}, ...]}
    /rerank  {"query", "texts": [...], "raw_scores", "return_text", ...}, of TEI ->
             [{"index", "score", "text"}, ...]
    /score   {"text_1", "text_2"} or vLLM's other names, texts or lists of them ->
             {"id", "object", "created", "model", "usage", "data": [{"index", "object", "score"}]}

Results of rerank are sorted, the best first. A score is the number that the model gives at any
other door: of a classifier with one label it is in 0 to 1, and the number before that can be asked
for; what a regression gives is its score, whatever its range.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from penstock.artifacts.description.description import Head
from penstock.errors import CallerError
from penstock.instance.codecs.base import Tensors, bad
from penstock.instance.codecs.generation.calls import flag, unsupported
from penstock.instance.codecs.generation.openai_fields import missing, wrong_type
from penstock.instance.codecs.generation.openai_parameters import REFUSED, check_parameters
from penstock.instance.codecs.openai_texts import OpenAiDecoded, cuts_of, invalid, name_of
from penstock.instance.codecs.text import TEXTS_MAX, Text, TextModel
from penstock.instance.codecs.text_bodies import JSON_META, check_count
from penstock.instance.codecs.text_heads import raw_head, result_name
from penstock.instance.codecs.values import dump_json

RERANK: Final = "rerank"
SCORE: Final = "score"
#: vLLM's names for the two sides of /score.
_SIDES: Final = (
    ("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"),
)  # fmt: skip
#: (scores, tokens of all rows) -> the answer's JSON
Written = Callable[[np.ndarray, int], Any]


def decode_scores(model: TextModel, operation: str, parsed: dict[str, Any]) -> OpenAiDecoded:
    """Raises ModelError and CallerError with the status that the model answers."""
    head = model.scoring
    if head is None:
        raise bad(
            f"the model of this endpoint gives no number for two texts, which {operation} needs",
            hint="Ask an endpoint of a cross-encoder: its task is pair-classification with one "
            "label, or text-regression.",
        )
    check_parameters(operation, parsed)
    head = _asked_head(head, parsed)
    decode = _rerank if operation == RERANK else _score
    pairs, parameter, written = decode(parsed, name_of(parsed, model))
    check_count(len(pairs), TEXTS_MAX)
    name = result_name(head)

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        return dump_json(written(outputs[name][:, 0], decoded.tokens)), JSON_META

    texts: list[Text] = list(pairs)
    decoded = OpenAiDecoded(texts, head, encode, cuts=cuts_of(parsed), parameter=parameter)
    return decoded


def _asked_head(head: Head, parsed: dict[str, Any]) -> Head:
    """With the model's last function, or without it: by TEI's parameter, or by vLLM's."""
    raw = flag(parsed, "raw_scores") or not flag(parsed, "use_activation", default=True)
    if not raw:
        return head
    if head.task != "classification":
        name = "raw_scores" if flag(parsed, "raw_scores") else "use_activation"
        raise unsupported(name, REFUSED[RERANK]["raw_scores (of a text-regression)"])
    return raw_head(head)


Pairs = list[tuple[str, str]]


def _rerank(parsed: dict[str, Any], name: str) -> tuple[Pairs, str, Written]:
    query = _text(parsed.get("query"), "query")
    of_tei = parsed.get("texts") is not None
    if of_tei and parsed.get("documents") is not None:
        raise invalid("texts", "is left out where documents are sent: each asks for its own answer")
    parameter = "texts" if of_tei else "documents"
    texts = [
        _text(_inner(each), f"{parameter}[{at}]")
        for at, each in enumerate(_list(parsed.get(parameter), parameter))
    ]
    top = parsed.get("top_n")
    if top is not None and (type(top) is not int or top < 0):
        raise invalid("top_n", f"is {str(top)[:40]}; allowed: a whole number from 0 (all) on")
    given = flag(parsed, "return_documents", default=not of_tei)
    shown = flag(parsed, "return_text", default=given)

    def results(scores: np.ndarray) -> list[dict[str, Any]]:
        order = np.argsort(-scores, kind="stable")[: top or None].tolist()
        key = "score" if of_tei else "relevance_score"
        made: list[dict[str, Any]] = [{"index": at, key: float(scores[at])} for at in order]
        for each in made if shown else ():
            text = texts[each["index"]]
            each.update({"text": text} if of_tei else {"document": {"text": text}})
        return made

    def written(scores: np.ndarray, tokens: int) -> Any:
        if of_tei:
            return results(scores)
        return {
            "id": f"rerank-{uuid.uuid4().hex}",
            "model": name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": results(scores),
        }

    return [(query, text) for text in texts], parameter, written


def _score(parsed: dict[str, Any], name: str) -> tuple[Pairs, str, Written]:
    first, second = _sides(parsed)
    ones, others = _side(parsed, first), _side(parsed, second)
    if len(ones) == 1:
        ones = ones * len(others)
    if len(ones) != len(others):
        raise invalid(
            second,
            f"has {len(others)} texts, {first} has {len(ones)}",
            hint="Send one text on the first side, or as many on both.",
        )

    def written(scores: np.ndarray, tokens: int) -> Any:
        data = [
            {"index": at, "object": "score", "score": value}
            for at, value in enumerate(scores.tolist())
        ]
        return {
            "id": f"score-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": name,
            "data": data,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    return list(zip(ones, others, strict=True)), second, written


def _sides(parsed: dict[str, Any]) -> tuple[str, str]:
    """The names of the two sides that the request has."""
    names = {name for sides in _SIDES for name in sides}
    sent = {name for name in names if parsed.get(name) is not None}
    for sides in _SIDES:
        if sent == set(sides):
            return sides
    one = next((sides for sides in _SIDES if sent < set(sides)), None)
    if one is not None:
        raise missing(next(name for name in one if name not in sent))
    raise CallerError(
        "invalid-parameter",
        f"{', '.join(sorted(sent))} came: the two sides are text_1 and text_2, queries and "
        "documents, queries and items, or data_1 and data_2",
        param=min(sent),
    )


def _side(parsed: dict[str, Any], name: str) -> list[str]:
    value = parsed[name]
    if not isinstance(value, list):
        return [_text(_inner(value), name)]
    return [_text(_inner(each), f"{name}[{at}]") for at, each in enumerate(_list(value, name))]


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        raise missing(name)
    if not isinstance(value, list):
        raise wrong_type(name, value, "an array")
    if not value:
        raise invalid(name, "has no texts; send at least one")
    return value


def _inner(value: Any) -> Any:
    """A document may be an object with its text."""
    return value["text"] if isinstance(value, dict) and set(value) == {"text"} else value


def _text(value: Any, name: str) -> str:
    if value is None:
        raise missing(name)
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string")
    return value
