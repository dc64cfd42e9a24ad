"""What a good answer says, made from the same facts that stand in the prompt.

Serves `dialogues.py`. Each answer remembers which of its letters repeat which product's line, so
that training can show the model where to look. It says only what the prompt holds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asked import Term, meets, read
from prompt import facts_of, price


@dataclass(slots=True)
class Said:
    """An answer that is being written."""

    products: Sequence[Mapping[str, Any]]
    text: str = ""
    #: (from, to, number): these letters of the text stand in the line of this product as well
    copied: list[tuple[int, int, int]] = field(default_factory=list)

    def plain(self, words: str) -> None:
        self.text += words

    def copy(self, number: int, words: str) -> None:
        self.copied.append((len(self.text), len(self.text) + len(words), number))
        self.text += words

    def name(self, number: int) -> None:
        self.plain("the ")
        self.copy(number, self.products[number - 1]["title"])
        self.plain(" ")
        self.copy(number, f"[{number}]")

    def price(self, number: int) -> None:
        self.copy(number, price(self.products[number - 1]["price_cents"]))

    def stars(self, number: int) -> None:
        self.copy(number, f"{self.products[number - 1]['rating']:.1f} stars")

    def listed(self, number: int, parts: Sequence[tuple[str, str]]) -> None:
        """(words before, words of the product's line), joined by commas and an "and"."""
        for at, (before, words) in enumerate(parts):
            if at:
                self.plain(" and " if at == len(parts) - 1 else ", ")
            self.plain(before)
            if words:
                self.copy(number, words)

    def begin(self) -> None:
        """A new sentence."""
        self.plain(" " if self.text else "")

    def sentence(self, *parts: tuple[str, int] | str) -> None:
        """Words, or (what, number): "name", "price", "stars"; the first letter is made large."""
        self.begin()
        start = len(self.text)
        for part in parts:
            if isinstance(part, str):
                self.plain(part)
            else:
                getattr(self, part[0])(part[1])
        self.text = self.text[:start] + self.text[start].upper() + self.text[start + 1 :]


@dataclass(frozen=True, slots=True)
class Known:
    """What the prompt tells, as the writer of the answer sees it."""

    products: Sequence[Mapping[str, Any]]
    terms: tuple[Term, ...]
    told: Mapping[str, list[int]]

    def numbers(self, label: str) -> list[int]:
        return self.told.get(label, [])


def known(
    question: str, products: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]
) -> Known:
    told = dict(facts_of(question, products, history))
    both = told.get("cheapest and best rated")
    if both:
        told |= {"cheapest": both, "best rated": both}
    return Known(products, read(question), told)


def found(seen: Known, rng: random.Random) -> Said:
    """The best rated of what fits, why, and a cheaper one; else what comes closest."""
    said = Said(seen.products)
    if not seen.numbers("fits"):
        return _not_quite(seen, said)
    chosen, cheapest = seen.numbers("best rated")[0], seen.numbers("cheapest")
    opening = rng.choice(("I would take ", "My pick is ", "I recommend "))
    said.sentence(opening, ("name", chosen), ".")
    _reasons(seen, said, chosen)
    if len(seen.numbers("fits")) == 1:
        return said
    if chosen in cheapest:
        said.sentence("It is the cheapest and the best rated that fits.")
    else:
        other = cheapest[0]
        said.sentence("For less money there is ", ("name", other), " at ", ("price", other), ".")
    return said


def superlative(seen: Known, label: str) -> Said:
    """`label`: "cheapest" or "best rated", of what fits, of what is meant, or of all."""
    said = Said(seen.products)
    if seen.terms and not seen.numbers("fits"):
        return _not_quite(seen, said)
    chosen = seen.numbers(label)[0]
    if label == "cheapest":
        said.sentence("the cheapest is ", ("name", chosen), " at ", ("price", chosen), ".")
        said.sentence("It has ", ("stars", chosen))
    else:
        said.sentence("the best rated is ", ("name", chosen), " with ", ("stars", chosen), ".")
        said.sentence("It costs ", ("price", chosen))
    said.plain(" and is ")
    said.listed(chosen, _qualities(seen.products[chosen - 1])[:1])
    said.plain(".")
    return said


def compared(seen: Known) -> Said:
    """Price and rating of the first two that the question is about, and which is ahead."""
    said = Said(seen.products)
    first, second = seen.numbers("about")[:2]
    for number in (first, second):
        said.sentence(("name", number), " costs ", ("price", number))
        said.plain(" and has ")
        said.stars(number)
        said.plain(".")
    cheap = [n for n in seen.numbers("cheapest") if n in (first, second)]
    good = [n for n in seen.numbers("best rated") if n in (first, second)]
    if len(cheap) == 1 and cheap == good:
        said.sentence("I would take ", ("name", cheap[0]), ", it is cheaper and better rated.")
    elif len(cheap) == len(good) == 1:
        said.sentence("The first is cheaper" if cheap[0] == first else "The second is cheaper")
        said.plain(", the other one is better rated.")
    elif len(cheap) == 1:
        said.sentence("Both are rated alike, so I would take ", ("name", cheap[0]), ".")
    elif len(good) == 1:
        said.sentence("Both cost the same, so I would take ", ("name", good[0]), ".")
    else:
        said.sentence("Both cost the same and are rated alike.")
    return said


def detail(seen: Known, what: str) -> Said:
    """`what`: price, colour, material, rating or more, of the first that is meant."""
    said = Said(seen.products)
    number = seen.numbers("about")[0]
    product = seen.products[number - 1]
    if what == "more":
        said.sentence(("name", number), " is ")
        said.copy(number, product["colour"])
        said.plain(", made of ")
        said.copy(number, product["material"])
        said.plain(" and ")
        said.listed(number, _qualities(product))
        said.plain(".")
        said.sentence("It costs ", ("price", number), " and has ", ("stars", number), ".")
    elif what == "price":
        said.sentence(("name", number), " costs ", ("price", number), ".")
    elif what == "rating":
        said.sentence(("name", number), " has ", ("stars", number), ".")
    else:
        said.sentence(("name", number), " is " if what == "colour" else " is made of ")
        said.copy(number, product[what])
        said.plain(".")
    return said


def whether(seen: Known) -> Said:
    """Yes or no to one feature of the one that is meant, and what else it has."""
    said = Said(seen.products)
    number = seen.numbers("about")[0]
    term = seen.terms[-1]
    if meets(term, seen.products[number - 1]):
        said.sentence("yes, ", ("name", number), " ", f"{_verb(term)}{term.label}.")
        said.sentence("It costs ", ("price", number), " and has ", ("stars", number), ".")
    else:
        said.sentence("no, ", ("name", number), " ", f"{_verb(term, no=True)}{term.label}.")
        said.sentence("It is ")
        said.listed(number, _qualities(seen.products[number - 1]))
        said.plain(".")
    return said


def cheaper(seen: Known) -> Said:
    said = Said(seen.products)
    others = seen.numbers("cheaper")
    if not others:
        said.sentence("I found nothing cheaper.")
        if seen.numbers("about"):
            about = seen.numbers("about")[0]
            said.sentence(("name", about), " at ", ("price", about), " is still my advice.")
        return said
    said.sentence("yes, ", ("name", others[0]), " costs only ", ("price", others[0]), ".")
    said.sentence("It has ", ("stars", others[0]), " and is ")
    said.listed(others[0], _qualities(seen.products[others[0] - 1])[:1])
    said.plain(".")
    return said


def vague(seen: Known) -> Said:
    said = Said(seen.products)
    chosen = seen.numbers("best rated")[0]
    said.sentence("how about ", ("name", chosen), "?")
    said.sentence("It is the best rated here with ", ("stars", chosen))
    said.plain(" and costs ")
    said.price(chosen)
    said.plain(".")
    return said


def nothing(seen: Known) -> Said:
    said = Said(seen.products)
    said.sentence("Sorry, I found nothing like that.")
    said.sentence("Tell me the kind of thing you need, a colour or a price.")
    return said


def unclear(seen: Known) -> Said:
    said = Said(seen.products)
    said.sentence("Which one do you mean? Please tell me its name.")
    return said


def _not_quite(seen: Known, said: Said) -> Said:
    """What was asked for is not there: what comes closest, what it has, what it lacks."""
    close = seen.numbers("closest")
    if not close:
        return nothing(seen)
    number = close[0]
    product = seen.products[number - 1]
    said.sentence("nothing here fits fully, but ", ("name", number), " comes close.")
    _reasons(seen, said, number)
    lacks = [term for term in seen.terms if term.field != "kind" and not meets(term, product)]
    if lacks:
        said.sentence("But it ", f"{_verb(lacks[0], no=True)}{lacks[0].label}.")
    return said


def _reasons(seen: Known, said: Said, number: int) -> None:
    """What it has of what was asked, then price and rating."""
    product = seen.products[number - 1]
    parts = [
        (_verb(term), term.label)
        for term in seen.terms
        if term.field in ("colour", "material", "feature")
        and not term.negative
        and meets(term, product)
        and (term.field != "feature" or term.label in product["features"])
    ]
    said.sentence("It ")
    said.listed(number, parts)
    if parts:
        said.plain(". It ")
    under = any(term.field == "under" and meets(term, product) for term in seen.terms)
    said.plain("costs only " if under else "costs ")
    said.price(number)
    said.plain(" and has ")
    said.stars(number)
    said.plain(".")


def _verb(term: Term, *, no: bool = False) -> str:
    """The words before a term's label."""
    if term.field == "feature" and term.label.startswith("with "):
        return "does not come " if no else "comes "
    if term.field == "feature" and term.label.startswith("for "):
        return "is not made " if no else "is made "
    if term.field == "material":
        return "is not made of " if no else "is made of "
    if term.field == "stars":
        return "does not have " if no else "has "
    return "is not " if no else "is "


def _qualities(product: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Its features as they follow "is"."""
    shown = []
    for feature in product["features"]:
        if feature.startswith("with "):
            shown.append(("comes ", feature))
        elif feature.startswith("for "):
            shown.append(("made ", feature))
        else:
            shown.append(("", feature))
    return shown
