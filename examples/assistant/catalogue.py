"""The shop's products: four thousand made-up things, the same ones for the same seed.

What kinds there are, and what each may be made of and do, stands in `pipeline/code/shop.json`; this
file only draws from it. It must not know prompts, models or servers: the catalogue service, the
index, the training of both models and the tests all begin here, and agree because nothing else
enters. Brands are invented.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from drawings import picture

_SHOP = Path(__file__).resolve().parent / "pipeline" / "code" / "shop.json"
SEED, COUNT = 7, 4000


@dataclass(frozen=True, slots=True)
class Product:
    """One article of the shop."""

    id: str  #: "p00001"
    title: str  #: brand, series and kind; no two products share one
    brand: str
    kind: str
    category: str
    colour: str
    material: str
    price_cents: int
    rating: float  #: 3.1 to 4.9 stars
    reviews: int
    features: tuple[str, ...]  #: "waterproof", "with a hood", "for hiking"
    description: str


@cache
def shop() -> Mapping[str, Any]:
    """What `shop.json` says: brands, series, colours, and kinds with what they may be."""
    found: Mapping[str, Any] = json.loads(_SHOP.read_text(encoding="utf-8"))
    return found


def make_catalogue(seed: int = SEED, count: int = COUNT) -> tuple[Product, ...]:
    """`count` products of all kinds in mixed order; raises ValueError where titles run out."""
    rng = random.Random(seed)
    brands, series = shop()["brands"].split(), shop()["series"].split()
    kinds = shop()["kinds"]
    names = [f"{brand} {line}" for brand in brands for line in series]
    per_kind = -(-count // len(kinds))
    if per_kind > len(names):
        raise ValueError(f"{count} products are more than {len(names) * len(kinds)} titles")
    drawn = [(kind, name) for kind in kinds for name in rng.sample(names, per_kind)]
    rng.shuffle(drawn)
    return tuple(
        _product(f"p{number:05d}", kind, name, rng)
        for number, (kind, name) in enumerate(drawn[:count], 1)
    )


def image_svg(product: Product) -> str:
    """A drawing of the thing in its colour on a ground that tells the category."""
    shapes = {kind["kind"]: kind["shape"] for kind in shop()["kinds"]}
    return picture(
        shapes[product.kind],
        colour=product.colour,
        category=product.category,
        title=product.title,
        variant=int(product.id[1:]),
    )


def link(product: Product) -> str:
    return f"/products/{product.id}"


def _product(number: str, kind: Mapping[str, Any], name: str, rng: random.Random) -> Product:
    colour = rng.choice(shop()["colours"].split())
    material = rng.choice(kind["materials"])
    features = _features(kind["features"], rng)
    title = f"{name} {kind['kind']}"
    return Product(
        id=number,
        title=title,
        brand=name.split(maxsplit=1)[0],
        kind=kind["kind"],
        category=kind["category"],
        colour=colour,
        material=material,
        price_cents=_price_cents(*kind["price"], rng),
        rating=round(min(4.9, max(3.1, rng.gauss(4.2, 0.4))), 1),
        reviews=int(3 * 10 ** rng.uniform(0, 3)),
        features=features,
        description=_description(title, colour, material, features, rng),
    )


def an(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def _features(possible: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """One or two qualities, often a part, and one use, in this order."""
    parts = [each for each in possible if each.startswith("with ")]
    uses = [each for each in possible if each.startswith("for ")]
    qualities = [each for each in possible if not each.startswith(("with ", "for "))]
    return (
        *rng.sample(qualities, rng.choice((1, 2, 2))),
        *rng.sample(parts, rng.choice((0, 1, 1))),
        rng.choice(uses),
    )


def _price_cents(low: int, high: int, rng: random.Random) -> int:
    """A shop's price: the dearer, the fewer steps; cheap ones are more frequent."""
    dollars = low + (high - low) * rng.random() ** 1.6
    if dollars < 20:
        rounded = int(dollars)
    elif dollars < 100:
        rounded = int(dollars) // 5 * 5 + 4
    else:
        rounded = int(dollars) // 10 * 10 + 9
    return rounded * 100 + rng.choice((99, 99, 99, 50, 0))


def _description(
    title: str, colour: str, material: str, features: Sequence[str], rng: random.Random
) -> str:
    *qualities, use = features
    parts = [each for each in qualities if each.startswith("with ")]
    words = " and ".join(each for each in qualities if each not in parts)
    extra = f" It comes {parts[0]}." if parts else ""
    opening = rng.choice(
        (
            f"The {title} is {words} and made {use}.",
            f"Made {use}: the {title} is {words}.",
            f"{an(words).capitalize()} companion, made {use}.",
        )
    )
    return f"{opening}{extra} Made of {material}, in {colour}."
