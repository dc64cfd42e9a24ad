"""The prompt of the shopping assistant: the same function when the model learns and when it serves.

A small language model writes well and counts badly. So code compares: behind the shopper's question
stands a line of facts, which of the listed products meets what was asked, which is the cheapest and
the best rated of them, and which one "it" or "the second one" is. The model says it in words.

The function must not know servers, indexes or the catalogue; products are mappings with the fields
of a `Product`. Imports nothing but the standard library. A change here needs a new training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from asked import Term, meets, read

PRODUCTS_MAX: Final = 4
HISTORY_MESSAGES_MAX: Final = 2
HISTORY_CHARACTERS_MAX: Final = 400
QUESTION_CHARACTERS_MAX: Final = 300
INSTRUCTION: Final = "Answer with these products only and put the number behind a name."
NO_PRODUCTS: Final = "No products."

_MARKER: Final = re.compile(r"\s*\[\d\]")
_POINTING: Final = re.compile(
    r"\b(it|its|it's|this|that|these|those|them|they|their|both|one|two|either|which)\b"
)
_ORDINALS: Final = ("first", "second", "third", "fourth")
_ORDINAL: Final = re.compile(r"\b(first|second|third|fourth|last)\b")
_CHEAPER: Final = re.compile(
    r"\b(cheaper|less expensive|too expensive|lower price|costs? less|less money|spend less)\b"
)
_FOLLOWING: Final = re.compile(
    r"\b(it|its|they|them|their|that|this|these|those|one|ones|another|else|other|and|which|first"
    r"|second|third|fourth|last|two|both|cheaper|expensive|less|same|instead)\b"
)


def messages_of(
    question: str,
    products: Sequence[Mapping[str, Any]],
    history: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, str]]:
    """Chat messages for a question about at most four products, the first of those given.

    `history` has earlier messages (`role` "user" or "assistant", `content`), the latest last; of
    them the last question and its answer are kept. Products that the last answer named should be
    among `products`, or "it" means nothing.
    """
    listed = list(products)[:PRODUCTS_MAX]
    lines = [product_line(number, each) for number, each in enumerate(listed, 1)]
    earlier = [
        {"role": str(each["role"]), "content": _plain(str(each["content"]), HISTORY_CHARACTERS_MAX)}
        for each in history
        if each["role"] in ("user", "assistant")
    ]
    earlier = earlier[-HISTORY_MESSAGES_MAX:]
    asked = _plain(question, QUESTION_CHARACTERS_MAX)
    told = facts(asked, listed, earlier)
    return [
        {"role": "system", "content": "\n".join([INSTRUCTION, *(lines or [NO_PRODUCTS])])},
        *earlier,
        {"role": "user", "content": f"{asked}\n{told}" if told else asked},
    ]


def product_line(number: int, product: Mapping[str, Any]) -> str:
    """`[2] Northfell Alta tent, blue, nylon, $149.99, 4.6 stars, waterproof, for families`"""
    about = ", ".join(product["features"])
    return (
        f"[{number}] {product['title']}, {product['colour']}, {product['material']},"
        f" {price(product['price_cents'])}, {product['rating']:.1f} stars, {about}"
    )


def price(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02d}"


def search_text(question: str, history: Sequence[Mapping[str, Any]] = ()) -> str:
    """What to search for: a question that names no kind of thing goes on from the one before."""
    if any(term.field == "kind" for term in read(question)):
        return question
    before = [str(each["content"]) for each in history if each["role"] == "user"]
    if not before or not _FOLLOWING.search(question.lower()):
        return question
    kinds = (text for text in reversed(before) if any(t.field == "kind" for t in read(text)))
    return f"{next(kinds, before[-1])} {question}"


def facts(
    question: str, products: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]] = ()
) -> str:
    """`(tent [1] [2]; blue [2]; fits [2]; cheapest [1]; best rated [2])`, "" without products."""
    found = facts_of(question, products, history)
    return "(" + "; ".join(f"{label} {_shown(at)}" for label, at in found) + ")" if found else ""


def facts_of(
    question: str, products: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]] = ()
) -> list[tuple[str, list[int]]]:
    """What code finds out for the model: (what, numbers of the products of which it is true).

    Cheapest and best rated are those among what the question names, else among what fits, else
    among what it points at, else among all of the kind asked for, else among all; equals stand
    together.
    """
    if not products:
        return []
    numbers = list(range(1, len(products) + 1))
    terms = read(question)
    told = [(term.label, _meeting(term, products)) for term in terms]
    about = about_of(question, products, history)
    fits = [number for number in numbers if all(number in found for _, found in told)]
    kinds = [found for term, (_, found) in zip(terms, told, strict=True) if term.field == "kind"]
    alike = [number for number in numbers if all(number in found for found in kinds)]
    counts = {number: sum(number in found for _, found in told) for number in alike}
    if terms:
        told.append(("fits", fits))
    if terms and not fits and counts and max(counts.values()):
        told.append(("closest", [max(alike, key=lambda number: (counts[number], -number))]))
    if about:
        told.append(("about", about))
        if terms:  # yes or no, for a model that should not have to compare two lists
            told.append(("about fits", [number for number in about if number in fits]))
    elif not terms:
        told.append(("nothing known", []))
    if about and _CHEAPER.search(question.lower()):
        told.append(("cheaper", _cheaper(about, products)))
    several = about if len(about) > 1 else []
    wanted = fits if terms else []
    pointed = bool(several) and not _names(question, products)
    scope = (wanted or several if pointed else several or wanted) or alike or numbers
    prices = {number: products[number - 1]["price_cents"] for number in scope}
    stars = {number: products[number - 1]["rating"] for number in scope}
    cheapest = [n for n in scope if prices[n] == min(prices.values())]
    best = [n for n in scope if stars[n] == max(stars.values())]
    if cheapest == best:
        return [*told, ("cheapest and best rated", best)]
    return [*told, ("cheapest", cheapest), ("best rated", best)]


def _cheaper(about: Sequence[int], products: Sequence[Mapping[str, Any]]) -> list[int]:
    """Others of the same kind for less."""
    meant = [products[number - 1] for number in about]
    limit = min(product["price_cents"] for product in meant)
    kinds = {product["kind"] for product in meant}
    return [
        number
        for number, product in enumerate(products, 1)
        if product["kind"] in kinds and product["price_cents"] < limit
    ]


def about_of(
    question: str, products: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]] = ()
) -> list[int]:
    """Numbers of the products that a question means: by name, by place, or by "it"."""
    plain = question.lower()
    named = _names(question, products)
    if named:
        return named
    before = _before(products, history)
    order = before or list(range(1, len(products) + 1))
    places = _ORDINAL.findall(plain)
    if places:
        at = [len(order) - 1 if place == "last" else _ORDINALS.index(place) for place in places]
        if re.search(r"\bfirst two\b", plain):
            at = [0, 1]
        if max(at) >= len(order):  # more than were named: places in the list
            order = list(range(1, len(products) + 1))
        return [order[place] for place in dict.fromkeys(at) if place < len(order)]
    if any(term.field == "kind" for term in read(question)):
        return []  # a new search
    return before if _POINTING.search(plain) or _CHEAPER.search(plain) else []


def _names(question: str, products: Sequence[Mapping[str, Any]]) -> list[int]:
    """Products whose brand the question says; where it says their series as well, only those."""
    words = re.findall(r"[a-z0-9]+", question.lower())
    found = []
    for number, product in enumerate(products, 1):
        brand, *rest = product["title"].lower().split()
        if brand in words:
            found.append((words.index(brand), number, bool(rest) and rest[0] in words))
    exact = [number for _, number, both in sorted(found) if both]
    return exact or [number for _, number, _ in sorted(found)]


def _before(
    products: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Listed products that the last answer named, in its order."""
    answers = [str(each["content"]).lower() for each in history if each["role"] == "assistant"]
    if not answers:
        return []
    places = [
        (answers[-1].find(product["title"].lower()), number)
        for number, product in enumerate(products, 1)
    ]
    return [number for place, number in sorted(places) if place >= 0]


def _meeting(term: Term, products: Sequence[Mapping[str, Any]]) -> list[int]:
    return [number for number, product in enumerate(products, 1) if meets(term, product)]


def _shown(numbers: Sequence[int]) -> str:
    return " ".join(f"[{number}]" for number in numbers) or "none"


def _plain(text: str, characters_max: int) -> str:
    """One line without markers, which would point into another list of products."""
    return " ".join(_MARKER.sub("", text).split())[:characters_max]
