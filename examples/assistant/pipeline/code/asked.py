"""What a shopper's question asks for: a kind of thing, colour, material, features, price, rating.

Words are compared with `shop.json`, numbers are read after words like "under". It serves the prompt
(which product meets what) and may serve retrieval (filters); it must not know models, and does not
understand sentences: what it does not find here is left to the language model and to the search.
Imports nothing but the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

_NEGATIONS: Final = frozenset(("not", "no", "without", "non", "never"))
#: Words that carry nothing when a feature is looked for.
_SMALL: Final = frozenset(("with", "a", "an", "the", "for", "of", "s", "and"))
_UNDER: Final = (
    r"under|below|less than|cheaper than|up to|max|maximum|at most|no more than|not more than|"
    r"within|not over|budget of|budget is|limit is|only have|spend"
)
_OVER: Final = r"over|above|more than|at least|from"
_AMOUNT: Final = r"\s*(?:about\s+)?\$?\s*(\d{1,4}(?:\.\d{1,2})?)"
_LIMIT: Final = re.compile(
    rf"\b(?:(?P<under>{_UNDER})|(?P<over>{_OVER})){_AMOUNT}(?P<stars>\s*stars?)?"
)
_OR_LESS: Final = re.compile(r"\$?(\d{1,4}(?:\.\d{1,2})?)(?: dollars?)?(?: or less| max\b| tops)")


@dataclass(frozen=True, slots=True)
class Term:
    """One thing asked for. `field`: kind, colour, material, feature, under, over or stars."""

    field: str
    label: str  #: as the prompt shows it: "shoe", "blue", "under $60", "not red"
    values: tuple[str, ...] = ()  #: any of these will do
    amount: float = 0.0  #: of under and over in cents, of stars in stars
    negative: bool = False


@lru_cache(maxsize=1024)
def read(question: str) -> tuple[Term, ...]:
    """The terms of a question, kinds first, each once."""
    plain = question.lower()
    limits = _limits(plain)
    words = _words(_OR_LESS.sub(" ", _LIMIT.sub(" ", plain)))
    present = set(words)
    found: list[tuple[int, Term]] = []
    for phrase, field, label, values in _phrases():
        if not present.issuperset(phrase):
            continue
        while (at := _find(words, phrase)) is not None:
            negative = field != "kind" and bool(_NEGATIONS & set(words[max(0, at - 2) : at]))
            shown = f"not {label}" if negative else label
            found.append((at, Term(field, shown, values, negative=negative)))
            words[at : at + len(phrase)] = [""] * len(phrase)
    found.sort(key=lambda each: (each[1].field != "kind", each[0]))
    return tuple({term.label: term for _, term in found}.values()) + limits


def meets(term: Term, product: Mapping[str, Any]) -> bool:
    """Whether a product (a mapping with the catalogue's fields) is what the term asks for."""
    if term.field == "under":
        return bool(product["price_cents"] <= term.amount)
    if term.field == "over":
        return bool(product["price_cents"] >= term.amount)
    if term.field == "stars":
        return bool(product["rating"] >= term.amount)
    if term.field == "feature":
        has = any(value in product["features"] for value in term.values)
    else:
        has = product[term.field] in term.values
    return has != term.negative


def _limits(plain: str) -> tuple[Term, ...]:
    terms = []
    for match in _LIMIT.finditer(plain):
        amount = float(match.group(3))
        if match.group("stars"):
            terms.append(Term("stars", f"{amount:g} stars up", amount=amount))
        else:
            field = "under" if match.group("under") else "over"
            terms.append(Term(field, f"{field} ${amount:g}", amount=amount * 100))
    for match in () if terms else _OR_LESS.finditer(plain):
        amount = float(match.group(1))
        terms.append(Term("under", f"under ${amount:g}", amount=amount * 100))
    return tuple(terms)


def _words(text: str) -> list[str]:
    """Lower case, without plural and with the shop's word for another."""
    synonyms = shop()["synonyms"]
    stems = [_stem(word) for word in re.findall(r"[a-z0-9]+", text.lower())]
    return [synonyms.get(word, word) for word in stems]


def _stem(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us")):
        return word[:-1]
    return word


def _find(words: list[str], phrase: tuple[str, ...]) -> int | None:
    size = len(phrase)
    for at in range(len(words) - size + 1):
        if tuple(words[at : at + size]) == phrase:
            return at
    return None


@cache
def shop() -> Mapping[str, Any]:
    path = Path(__file__).with_name("shop.json")
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
def _phrases() -> tuple[tuple[tuple[str, ...], str, str, tuple[str, ...]], ...]:
    """(words, field, label, values) of everything that can be asked for, the longest first."""
    told: dict[tuple[str, ...], tuple[str, str, list[str]]] = {}

    def tell(text: str, field: str, label: str, value: str) -> None:
        phrase = tuple(word for word in _words(text) if word not in _SMALL)
        values = told.setdefault(phrase, (field, label, []))[2]
        if value not in values:
            values.append(value)

    for kind in shop()["kinds"]:
        name = kind["kind"]
        for other in (name, *kind["also"]):
            tell(other, "kind", other, name)
    for kind in shop()["kinds"]:  # "shoes" are trail shoes and running shoes
        tell(kind["kind"].split()[-1], "kind", kind["kind"].split()[-1], kind["kind"])
    for colour in shop()["colours"].split():
        tell(colour, "colour", colour, colour)
    for other, colour in shop()["colour_words"].items():
        tell(other, "colour", colour, colour)
    for kind in shop()["kinds"]:
        for material in kind["materials"]:
            tell(material, "material", material, material)
        for feature in kind["features"]:
            tell(feature, "feature", feature, feature)
    rows = [
        (phrase, *rest) for phrase, rest in told.items() if phrase not in (("set",), ("maker",))
    ]
    rows.sort(key=lambda row: (-len(row[0]), row[1] != "kind", row[0]))
    return tuple((phrase, field, label, tuple(values)) for phrase, field, label, values in rows)
