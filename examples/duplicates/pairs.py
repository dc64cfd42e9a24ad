"""Labelled pairs of titles: duplicates in other words, and near-duplicates that are not.

Serves `train.py`. The split is by what titles are made of: held-out pairs have types and brands
that training never shows (nor did the training of the backbone), and orders of words of their own.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from pathlib import Path

from catalogue import ATTRIBUTES, COLOURS, QUANTITIES, Catalogue, Product, Shelf, differing
from data import split_words

#: Names of what differs first, as the head `difference` says it, in the order of the logits.
DIFFERENCES = ("nothing", "product", "brand", "model", "size", "colour", "quantity")
#: Share of the similarity that an attribute of the same type of product carries.
_WEIGHTS = {
    "kind": 0.35,
    "brand": 0.2,
    "model": 0.15,
    "size": 0.12,
    "colour": 0.1,
    "quantity": 0.08,
}
VARIED = ("model", "size", "colour", "quantity")

_ORDERS = (
    "brand line code feature material kind size colour quantity",
    "brand line kind code colour size quantity",
    "brand kind line code feature colour quantity size",
    "quantity brand line code kind material colour size feature",
    "kind brand line code size colour material quantity",
    "brand code line kind colour feature size quantity",
    "colour brand line kind code size quantity material",
    "feature kind brand line code colour quantity size",
    "brand line code kind size quantity colour",
    "size kind brand line code quantity colour feature",
)
_ORDERS_HELD_OUT = (
    "kind feature colour brand line code quantity size",
    "brand size kind line code colour quantity feature",
    "material kind size colour quantity brand line code",
)
_NOISE = ("new", "original", "free shipping", "genuine", "best seller", "sale", "with warranty")
_NOISE_HELD_OUT = ("brand new", "fast delivery", "top quality", "official store")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two titles and what every head should say of them."""

    text: str
    text_pair: str
    difference: str  #: one of DIFFERENCES
    same_brand: bool
    same_type: bool
    similarity: float  #: 0 to 1

    @property
    def duplicate(self) -> bool:
        return self.difference == "nothing"


def shelves(seed: int) -> tuple[Shelf, Shelf, Shelf]:
    """(first training, later training, held out), along the split of the backbone's training.

    Training begins with brands that are known or sound made up; later ones are everyday words, too,
    as nothing but its place tells such a brand from a description.
    """
    kept, held = split_words(seed)
    first = Shelf(kept.nouns, kept.brands, _ORDERS, _NOISE, made_up_brand_share=0.6)
    words = (*kept.things, *kept.qualities, *kept.last_names)
    return (
        first,
        dataclasses.replace(first, made_up_brand_share=0.75, words=words),
        Shelf(held.nouns, held.brands, _ORDERS_HELD_OUT, _NOISE_HELD_OUT, made_up_brand_share=0.0),
    )


def make_pairs(shelf: Shelf, count: int, seed: str) -> list[Pair]:
    """45 in 100 are duplicates; of the others most differ in one attribute."""
    rng = random.Random(seed)
    catalogue = Catalogue(shelf, rng)
    return [_pair(catalogue, rng) for _ in range(count)]


def _pair(catalogue: Catalogue, rng: random.Random) -> Pair:
    one = catalogue.product()
    other = _other(one, catalogue, rng)
    differ = differing(one, other)
    required = frozenset(differ)
    texts = [catalogue.title(product, required) for product in (one, other)]
    rng.shuffle(texts)
    return Pair(
        text=texts[0],
        text_pair=texts[1],
        difference=DIFFERENCES[1 + ATTRIBUTES.index(differ[0])] if differ else "nothing",
        same_brand="brand" not in differ,
        same_type="kind" not in differ,
        similarity=_similarity(one, other, differ),
    )


def _other(one: Product, catalogue: Catalogue, rng: random.Random) -> Product:
    share = rng.random()
    if share < 0.45:
        return one
    if share < 0.80:
        names = [name for name in VARIED if has(one, name)]
        for name in rng.sample(names, min(len(names), 1 if rng.random() < 0.75 else 2)):
            one = varied(one, name, catalogue, rng)
        return one
    if share < 0.88:
        return _with_brand(one, catalogue)
    if share < 0.96:
        return dataclasses.replace(one, kind=catalogue.other_kind(one.kind))
    return catalogue.product()


def has(one: Product, name: str) -> bool:
    """What a product lacks is not varied: a title that leaves something out is no other product.

    A quantity is never left out, so "6 pack" and nothing are two products.
    """
    return any(one.model) if name == "model" else bool(getattr(one, name))


def varied(one: Product, name: str, catalogue: Catalogue, rng: random.Random) -> Product:
    """The same product in another size, colour, pack or model; both titles must then say which."""
    if name == "colour":
        others = [colour for colour in COLOURS if colour != one.colour]
        return dataclasses.replace(one, colour=rng.choice(others))
    if name == "quantity":
        others = [quantity for quantity in QUANTITIES if quantity != one.quantity]
        return dataclasses.replace(one, quantity=rng.choice(others))
    if name == "size" and one.size is not None:
        size = one.size
        while size == one.size or size[0] != one.size[0]:
            size = catalogue.size(one.department)
        return dataclasses.replace(one, size=size)
    line, code = catalogue.model(one)
    return dataclasses.replace(one, line=line, code=code)


def _with_brand(one: Product, catalogue: Catalogue) -> Product:
    brand = catalogue.brand()
    return (
        dataclasses.replace(one, brand=brand) if brand != one.brand else _with_brand(one, catalogue)
    )


def _similarity(one: Product, other: Product, differ: list[str]) -> float:
    if "kind" in differ:
        same_department = 0.1 if one.department == other.department else 0.0
        return same_department + (0.2 if "brand" not in differ else 0.0)
    return 1.0 - sum(_WEIGHTS[name] for name in differ)


def read_handwritten(path: Path) -> list[Pair]:
    """Pairs written by hand, before the first training: `text<TAB>text<TAB>yes|no` lines.

    Only whether they are duplicates is known.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = []
    for text, text_pair, answer in (line.split("\t") for line in lines if line):
        difference = "nothing" if answer == "yes" else "product"
        pairs.append(Pair(text, text_pair, difference, True, True, 1.0))
    return pairs
