"""Whether an answer of the assistant is true to its products and does what was asked.

Serves `judge_chat.py` and the tests. Knows texts, and no model: a claim is checked against the list
of products, whoever made it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from answers import known
from catalogue import shop
from dialogues import Scene, Turn
from prompt import messages_of, price

_MARKED = re.compile(r"([A-Z][a-z]+ [A-Z][a-z]+ [a-z][a-z' -]*?) \[(\d)\]")
_PRICE = re.compile(r"\$\d+\.\d\d")
_STARS = re.compile(r"(\d\.\d) stars(?! up)")


@dataclass(frozen=True, slots=True)
class Verdict:
    names: bool  #: every product it names is listed and has its own number
    prices: bool  #: every price is that of the product named before it
    ratings: bool  #: likewise
    asked: bool  #: it speaks of a product that is what was asked for, or of none where none is

    @property
    def right(self) -> bool:
        return self.names and self.prices and self.ratings and self.asked


def judged(scene: Scene, turn: Turn, answer: str) -> Verdict:
    return Verdict(
        names=names_right(answer, scene.products),
        prices=_claims_right(answer, scene.products, _PRICE, _price_of),
        ratings=_claims_right(answer, scene.products, _STARS, _stars_of),
        asked=_asked(scene, turn, answer),
    )


def named(answer: str) -> list[tuple[int, str, int]]:
    """(place, title, number) of the products that an answer names."""
    return [(found.start(), found[1], int(found[2])) for found in _MARKED.finditer(answer)]


def names_right(answer: str, products: Sequence[Mapping[str, Any]]) -> bool:
    marked = named(answer)
    if len(re.findall(r"\[\d\]", answer)) != len(marked):
        return False
    brands = set(shop()["brands"].split())
    if sum(word in brands for word in re.findall(r"[A-Za-z]+", answer)) != len(marked):
        return False
    return all(
        0 < number <= len(products) and products[number - 1]["title"] == title
        for _, title, number in marked
    )


def facts_right(answer: str, products: Sequence[Mapping[str, Any]]) -> bool:
    """Prices and ratings."""
    return _claims_right(answer, products, _PRICE, _price_of) and _claims_right(
        answer, products, _STARS, _stars_of
    )


def _claims_right(answer: str, products: Sequence[Mapping[str, Any]], claim: Any, of: Any) -> bool:
    marked = named(answer)
    for found in claim.finditer(answer):
        before = [number for place, _, number in marked if place < found.start()]
        if not before or not 0 < before[-1] <= len(products):
            return False
        if found[found.re.groups] != of(products[before[-1] - 1]):
            return False
    return True


def _price_of(product: Mapping[str, Any]) -> str:
    return price(product["price_cents"])


def _stars_of(product: Mapping[str, Any]) -> str:
    return f"{product['rating']:.1f}"


def _asked(scene: Scene, turn: Turn, answer: str) -> bool:
    """Names what the good answer may name first, and says yes where that does."""
    numbers = [number for _, _, number in named(answer)]
    wanted = [number for _, _, number in named(turn.answer.text)]
    if not wanted or not numbers:
        return not wanted and not numbers
    if "For less money" in answer and len(set(numbers)) < 2:
        return False
    if _yes_or_no(answer) != _yes_or_no(turn.answer.text):
        return False
    history = messages_of("", (), turn.history)[1:-1] if turn.history else ()
    seen = known(turn.question, scene.products, history)
    if turn.intent in ("compare", "compare-here"):
        return set(numbers[:2]) == set(wanted[:2])
    allowed = {wanted[0]}
    if turn.intent in ("find", "another") and seen.numbers("fits"):
        allowed = set(seen.numbers("fits"))
    elif turn.intent.startswith("cheapest") and seen.numbers("cheapest"):
        allowed |= set(seen.numbers("cheapest") if not seen.terms or seen.numbers("fits") else ())
    return numbers[0] in allowed


def _yes_or_no(answer: str) -> str:
    first = answer.split(maxsplit=1)[0]
    return first if first in ("Yes,", "No,") else ""
