"""The pipeline's own steps: what is asked, what the shop has of it, and what the answer names.

Each function is a step of `pipeline.yaml`, in the order in which they stand here. They must not
know how the stream is merged or who asks; the search is `retrieval.py`'s, the prompt `prompt.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asked import Term, read
from prompt import PRODUCTS_MAX, messages_of
from retrieval import Retrieval

from penstock.errors import CallerError

QUESTION_CHARACTERS_MAX: Final = 2000
HISTORY_MESSAGES_MAX: Final = 20
ANSWERS_READ: Final = 2  #: whose products a question may go on about

#: A marker, and what a text that is still coming may end with before one.
_MARKER: Final = re.compile(r"\s*\[(\d{1,2})\]")
_MAYBE: Final = re.compile(r"\s*(\[\d{0,2})?$")
_CHEAPER: Final = re.compile(r"\b(cheaper|less expensive|lower price|costs? less|less money)\b")
_OF_THESE: Final = re.compile(r"\b(which|them|both|two|these|those)\b")

Json = dict[str, Any]


def model_fn(model_dir: str) -> Retrieval:
    return Retrieval.read(Path(model_dir, "index"))


def asked(request: Json) -> Json:
    """The question and what was said before, in this example's own form or in OpenAI's messages."""
    messages = request.get("messages", request.get("history", []))
    if not isinstance(messages, list) or not all(_is_message(each) for each in messages):
        raise CallerError(
            "history-invalid", 'messages are a list of {"role": ..., "content": text}'
        )
    question = request.get("question")
    if question is None and messages and messages[-1]["role"] == "user":
        question = messages[-1]["content"]
        messages = messages[:-1]
    if not isinstance(question, str) or not question.strip():
        raise CallerError(
            "question-missing",
            "there is no question",
            hint='Send {"question": "..."}, or "messages" that end with one of the user\'s.',
        )
    if len(question) > QUESTION_CHARACTERS_MAX:
        raise CallerError(
            "question-too-long",
            f"the question has {len(question)} characters; {QUESTION_CHARACTERS_MAX} are read",
        )
    history = messages[-HISTORY_MESSAGES_MAX:]
    said = [each["content"] for each in history if each["role"] == "user"]
    terms = read(question)
    goes_on = bool(said) and not _names_a_kind(terms)
    return {
        "question": question,
        "history": history,
        "goes_on": goes_on,
        "search": " ".join([*_wanted_so_far(said, terms), question]) if goes_on else question,
    }


def keywords(search: str, model: Retrieval) -> list[int]:
    """The ranking by words, while the endpoint makes the vector."""
    return model.keywords(search)


def found(
    asked: Json, keywords: Sequence[int] | None, vector: Sequence[float] | None, model: Retrieval
) -> Json:
    """At most four products and the prompt that lists them.

    A question that goes on has the products of the last answers among them, or nobody would know
    what "it" is. Where nothing is found the list is of whatever is near: a model that is to say so
    should see what there is.
    """
    question, history = asked["question"], asked["history"]
    before = _named_before(history, model) if asked["goes_on"] else []
    cheaper = bool(before) and _wants_cheaper(question.lower())
    prices = [model.products[at]["price_cents"] for at in before]
    places = model.find(
        asked["search"], vector, ranked=keywords, cents_max=min(prices) - 1 if cheaper else None
    )
    if read(question):  # a wish of its own: what meets it comes first
        places = [*places[: PRODUCTS_MAX - len(before[:1])], *before[:1]]
    else:
        places = [*before[: 1 if cheaper else PRODUCTS_MAX - 1], *places]
    near = model.nearest(vector, PRODUCTS_MAX) if vector is not None else range(PRODUCTS_MAX)
    places = list(dict.fromkeys(places or near))[:PRODUCTS_MAX]
    products = [model.products[at] for at in places]
    return {"products": products, "messages": messages_of(question, products, history)}


def say(products: Sequence[Mapping[str, Any]], pieces: Iterator[Json]) -> Iterator[Json]:
    """The model's text, with an event `mention` in the place of each `[n]`.

    Where the model said nothing at all, the products that were found are named instead.
    """
    named: set[str] = set()
    held, spoke = "", False
    for piece in pieces:
        spoke = spoke or bool(piece["text"])
        ready, held = _split(held + piece["text"])
        yield from _told(ready, products, named)
    yield from _told(held, products, named)
    if not spoke and products:
        yield _text("Here is what the shop has:")
        for number, product in enumerate(products, 1):
            yield _text(f" {product['title']}")
            yield from _told(f"[{number}]", products, named)


def named(pieces: Iterator[Json]) -> Iterator[Json]:
    """The products that the answer names, each once, as it names them."""
    for piece in pieces:
        if piece["event"] == "mention" and piece["data"]["first"]:
            yield {"id": piece["data"]["id"], "title": piece["data"]["title"]}


def _names_a_kind(terms: Iterable[Term]) -> bool:
    return any(term.field == "kind" for term in terms)


def _wanted_so_far(questions: Sequence[str], now: Sequence[Term]) -> list[str]:
    """What the questions asked for together and the present one leaves: a new kind begins anew, a
    new colour takes the place of the old one, features add up."""
    wanted: list[Term] = []
    for terms in (*map(read, questions), now):
        if _names_a_kind(terms):
            wanted = []
        fields = {term.field for term in terms} - {"feature"}
        wanted = [term for term in wanted if term.field not in fields] + list(terms)
    return list(dict.fromkeys(term.label for term in wanted if term not in now))


def _wants_cheaper(question: str) -> bool:
    """Something else for less; "which of them is cheaper?" asks about what is there."""
    return bool(_CHEAPER.search(question)) and not _OF_THESE.search(question)


def _named_before(history: Sequence[Json], model: Retrieval) -> list[int]:
    """Products that the last answers named, the latest first."""
    answers = [each["content"] for each in history if each["role"] == "assistant"]
    latest = answers[: -ANSWERS_READ - 1 : -1]
    return list(dict.fromkeys(at for answer in latest for at in model.named_in(answer)))


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and isinstance(value.get("content"), str)
    )


def _split(text: str) -> tuple[str, str]:
    """What may leave, and what may be the beginning of a marker."""
    maybe = _MAYBE.search(text)
    at = maybe.start() if maybe else len(text)
    return text[:at], text[at:]


def _told(text: str, products: Sequence[Mapping[str, Any]], named: set[str]) -> Iterator[Json]:
    at = 0
    for marker in _MARKER.finditer(text):
        if marker.start() > at:
            yield _text(text[at : marker.start()])
        at = marker.end()
        number = int(marker[1])
        if not 1 <= number <= len(products):
            continue  # a number that stands for nothing is not shown
        product = products[number - 1]
        data = {
            "id": product["id"],
            "title": product["title"],
            "number": number,
            "first": product["id"] not in named,
        }
        named.add(product["id"])
        yield {"event": "mention", "data": data}
    if at < len(text):
        yield _text(text[at:])


def _text(text: str) -> Json:
    return {"event": "text", "data": {"text": text}, "advance": len(text)}
