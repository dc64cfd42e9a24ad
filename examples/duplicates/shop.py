"""A shop's catalogue: offers of many sellers, of which several may be of one product.

Serves `run.py`. Products come in families (the same kettle in black and white, of 1 and 1.7
litres), as the offers that are most easily taken for duplicates are those of a family. Titles are
those of `catalogue.py`, of the words that the model was trained with; which offers are of one
product is kept aside as the truth that clusters are judged by.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from catalogue import Catalogue, Product, differing
from pairs import VARIED, has, shelves, varied

#: Of the split of words: the seed that the model was trained with, so that its words are known.
WORDS_SEED = 7
#: Offers of a product: most have one.
_OFFERS = (1, 1, 1, 2, 2, 3, 4)
_SIBLING_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Offer:
    """One seller's title."""

    number: int
    title: str
    product: int  #: the truth: offers with the same number are duplicates


def make_offers(products: int, seed: int = 0) -> list[Offer]:
    """In an order that tells nothing. One seed makes the same shop."""
    rng = random.Random(f"shop-{seed}")
    catalogue = Catalogue(shelves(WORDS_SEED)[1], rng)
    made: list[tuple[str, int]] = []
    product = 0
    while product < products:
        family = _family(catalogue, rng, products - product)
        required = frozenset(name for other in family[1:] for name in differing(family[0], other))
        for one in family:
            titles = {catalogue.title(one, required) for _ in range(rng.choice(_OFFERS))}
            made += [(title, product) for title in sorted(titles)]
            product += 1
    rng.shuffle(made)
    return [Offer(number, title, of) for number, (title, of) in enumerate(made)]


def true_pairs(offers: list[Offer]) -> set[tuple[int, int]]:
    """All pairs of offers of one product, the lower number first."""
    by_product: dict[int, list[int]] = {}
    for offer in offers:
        by_product.setdefault(offer.product, []).append(offer.number)
    return {
        (one, other)
        for numbers in by_product.values()
        for at, one in enumerate(numbers)
        for other in numbers[at + 1 :]
    }


def _family(catalogue: Catalogue, rng: random.Random, most: int) -> list[Product]:
    """Products that differ from the first in one attribute, and from each other in some."""
    family = [catalogue.product()]
    while len(family) < most and rng.random() < _SIBLING_SHARE:
        names = [name for name in VARIED if has(family[0], name)]
        sibling = varied(family[0], rng.choice(names), catalogue, rng)
        if all(differing(sibling, other) for other in family):
            family.append(sibling)
    return family
