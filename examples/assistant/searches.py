"""Searches made from products, with what a product must be to answer them.

Serves `train_embedder.py`. Words are those of shoppers: other names of a kind ("sneaker") and other
words for a feature ("light") stand in the question and not in the product's text, which is what a
search by words cannot bridge. The last phrasing is held out from training.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asked import read
from catalogue import an, shop
from questions import FIND

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    question: str
    kinds: tuple[str, ...]  #: any of them
    wanted: tuple[tuple[str, str], ...]  #: (field, value), all of them; field "features" has it

    def answers(self, product: Fields) -> bool:
        return product["kind"] in self.kinds and all(
            value in product[field] if field == "features" else product[field] == value
            for field, value in self.wanted
        )


def make_search(product: Fields, rng: random.Random, *, held_out: bool = False) -> Search:
    """A search that this product answers."""
    kind = next(each for each in shop()["kinds"] if each["kind"] == product["kind"])
    names = [kind["kind"], kind["kind"], *kind["also"]]
    last = kind["kind"].split()[-1]
    if last not in ("set", "maker"):
        names.append(last)
    name = rng.choice(names)
    terms = read(name)
    possible = [("colour", product["colour"]), ("material", product["material"])]
    possible += [("features", each) for each in product["features"]]
    wanted = rng.sample(possible, rng.choice((0, 1, 1, 2, 2, 3)))
    ahead = [_put(value, rng) for _, value in wanted if not value.startswith(("with ", "for "))]
    behind = [_put(value, rng) for _, value in wanted if value.startswith(("with ", "for "))]
    one = " ".join((*ahead, name))
    phrase = FIND[-1] if held_out else rng.choice(FIND[:-1])
    question = phrase.format(
        wanted=one,
        an_wanted=an(one),
        wanteds=f"{one}s",
        wish="".join(f" {each}" for each in behind),
    )
    if rng.random() < 0.4:
        question = question.lower().rstrip("?")
    return Search(question, terms[0].values if terms else (kind["kind"],), tuple(wanted))


def share_found(found: Sequence[Fields], search: Search, relevant: int) -> float:
    """Recall of the first ten, where no more than ten can be found."""
    return sum(search.answers(each) for each in found[:10]) / min(10, relevant)


def _put(value: str, rng: random.Random) -> str:
    """The value, or one of its words as others say it."""
    if rng.random() < 0.5:
        return value
    words = value.split()
    for at, word in enumerate(words):
        others = [other for other, known in shop()["synonyms"].items() if known == word]
        if others and " " not in word:
            words[at] = rng.choice(others)
    return " ".join(words)
