"""An invented catalogue: products, their attributes, and the titles that sellers give them.

Serves `pairs.py`. Knows nothing of labels or models. Product types, colours, materials and features
are the words of `examples/query_intent`; brands are theirs and more made up from syllables, so that
a model can't know them all and has to compare. Everything follows from the `random.Random` passed
in.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from grammar import DEPARTMENTS, WORDS

#: Attributes that make it another product when they differ, from the heaviest to the lightest.
ATTRIBUTES = ("kind", "brand", "model", "size", "colour", "quantity")

#: Types that are one and the same.
_SYNONYMS = (("tv", "television"), ("sofa", "couch"), ("laptop", "notebook computer"))
_SAME_KIND = {kind: group for group in _SYNONYMS for kind in group}
_DEPARTMENT_OF = {noun: name for name in DEPARTMENTS for noun in WORDS[f"department {name}"]}

#: Of brands and product lines that training makes up.
_SYLLABLES = tuple(
    first + second
    for first, seconds in (
        ("b", "aeo"), ("d", "ao"), ("f", "ai"), ("g", "o"), ("h", "a"), ("k", "i"), ("l", "ao"),
        ("m", "ai"), ("n", "ao"), ("p", "ao"), ("r", "aei"), ("s", "aeo"), ("t", "aeio"),
        ("v", "aeio"), ("x", "a"), ("y", "a"), ("z", "ao"), ("e", "ln"), ("i", "m"), ("o", "r"),
        ("u", "l"),
    )
    for second in seconds
)  # fmt: skip
_LINE_ENDS = ("", "", "", " pro", " plus", " max", " mini", " lite", " air", " x", " s", " ii")
COLOURS = tuple(colour for colour in WORDS["colours"] if colour != "gray")
QUANTITIES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 24)
_COLOUR_FORMS = {
    "grey": ("grey", "gray"),
    "black": ("black", "black", "blk"),
    "white": ("white", "white", "wht"),
    "multicolor": ("multicolor", "multicolour"),
}
_CLOTHES = {"xs": "extra small", "s": "small", "m": "medium", "l": "large", "xl": "extra large"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One thing that can be bought; two titles of equal products are duplicates."""

    kind: str  #: what it is: "kettle"
    brand: str
    line: str  #: "aero pro"; may be empty
    code: str  #: "kx-240"; may be empty
    size: tuple[str, int] | None  #: (unit, number of it)
    colour: str  #: may be empty
    quantity: int  #: pieces in the pack
    material: str  #: never tells two products of a pair apart, as `features`
    features: tuple[str, ...]

    @property
    def department(self) -> str:
        return _DEPARTMENT_OF[self.kind]

    @property
    def model(self) -> tuple[str, str]:
        return self.line, self.code


def differing(one: Product, other: Product) -> list[str]:
    """The attributes in which two products differ, heaviest first."""
    return [name for name in ATTRIBUTES if _compared(one, name) != _compared(other, name)]


def _compared(product: Product, name: str) -> object:
    value = getattr(product, name)
    return _SAME_KIND.get(value, value) if name == "kind" else value


@dataclass(frozen=True, slots=True)
class Shelf:
    """The words and the ways to write a title that one side of the split has."""

    kinds: tuple[str, ...]
    brands: tuple[str, ...]
    orders: tuple[str, ...]
    noise: tuple[str, ...]
    made_up_brand_share: float
    words: tuple[str, ...] = ()  #: everyday words that made-up brands may consist of


class Catalogue:
    """Makes products and titles. One instance, one stream of random numbers."""

    def __init__(self, shelf: Shelf, rng: random.Random) -> None:
        self._shelf = shelf
        self._rng = rng

    def product(self) -> Product:
        rng = self._rng
        kind = rng.choice(self._shelf.kinds)
        size = self.size(_DEPARTMENT_OF[kind]) if rng.random() < 0.55 else None
        return Product(
            kind=kind,
            brand=self.brand(),
            line=self._line() if rng.random() < 0.6 else "",
            code=self._code() if rng.random() < 0.4 else "",
            size=size,
            colour=rng.choice(COLOURS) if rng.random() < 0.6 else "",
            quantity=rng.choice(QUANTITIES[1:]) if rng.random() < 0.3 else 1,
            material=rng.choice(WORDS["materials"]) if rng.random() < 0.4 else "",
            features=tuple(rng.sample(WORDS["features"], rng.choice((0, 0, 1, 1, 2)))),
        )

    def brand(self) -> str:
        if self._rng.random() >= self._shelf.made_up_brand_share:
            return self._rng.choice(self._shelf.brands)
        if not self._shelf.words or self._rng.random() < 0.3:
            return self._made_up(2, 3)
        return self._worded_brand()

    def other_kind(self, kind: str) -> str:
        """Another type: one that shares a word, one of the same department, or any."""
        words = set(kind.split())
        same = [each for each in self._shelf.kinds if words & set(each.split())]
        near = [each for each in self._shelf.kinds if _DEPARTMENT_OF[each] == _DEPARTMENT_OF[kind]]
        for candidates in (same, near, self._shelf.kinds):
            pool = self._shelf.kinds if self._rng.random() < 0.4 else candidates
            found = self._rng.choice(pool) if pool else kind
            # "drill" may be another seller's word for a cordless drill
            if found not in kind and kind not in found and not _same(found, kind):
                return found
        return self.other_kind(kind)

    def size(self, department: str) -> tuple[str, int]:
        pick = self._rng.choice
        if department == "clothing":
            return pick((("clothes", pick(range(5))), ("shoe", pick(range(36, 47)))))
        if department in ("grocery", "beauty", "pets"):
            grams = ("g", pick((50, 100, 150, 200, 250, 400, 500, 750, 1000, 1500, 2000, 5000)))
            return pick(
                (grams, ("ml", pick((30, 50, 75, 100, 150, 200, 250, 330, 500, 750, 1000))))
            )
        if department == "electronics":
            inches = ("inch", pick((10, 13, 14, 15, 17, 21, 24, 27, 32, 40, 43, 50, 55, 65, 75)))
            return pick((inches, ("gb", pick((16, 32, 64, 128, 256, 512, 1024, 2048)))))
        if department == "kitchen":
            litres = (
                "ml",
                pick((250, 300, 350, 500, 750, 1000, 1200, 1500, 1700, 2000, 3000, 5000)),
            )
            return pick((litres, ("cm", pick((16, 18, 20, 22, 24, 26, 28, 30, 32)))))
        return "cm", pick(
            (20, 25, 30, 40, 45, 50, 60, 70, 75, 80, 90, 100, 120, 140, 150, 160, 200)
        )

    def model(self, product: Product) -> tuple[str, str]:
        """(line, code) of a sibling that is easily taken for the product."""
        rng = self._rng
        if product.code and (not product.line or rng.random() < 0.5):
            at = rng.choice([i for i, char in enumerate(product.code) if char.isdigit()])
            digit = rng.choice([d for d in "0123456789" if d != product.code[at]])
            return product.line, product.code[:at] + digit + product.code[at + 1 :]
        if product.line:
            first = product.line.split()[0]
            ends = [end for end in dict.fromkeys(_LINE_ENDS) if first + end != product.line]
            line = first + rng.choice(ends) if rng.random() < 0.6 else self._line()
            return line, product.code
        return self._line(), product.code

    def title(self, product: Product, required: frozenset[str]) -> str:
        """As one seller writes it: attributes left out unless `required`, in any order and form."""
        rng = self._rng

        def shown(name: str, share: float) -> bool:
            return name in required or rng.random() < share

        parts = {
            "brand": product.brand,
            "line": product.line if shown("model", 0.93) else "",
            "code": self._code_form(product.code) if shown("model", 0.9) else "",
            "kind": self._kind_form(product.kind),
            "size": self._size_form(product.size) if shown("size", 0.88) else "",
            "colour": self._colour_form(product.colour) if shown("colour", 0.88) else "",
            "quantity": self._quantity_form(product.quantity),
            "material": product.material if rng.random() < 0.6 else "",
            "feature": " ".join(f for f in product.features if rng.random() < 0.6),
        }
        words = [parts[name] for name in rng.choice(self._shelf.orders).split() if parts[name]]
        joint = rng.choice((" ", " ", " ", ", ", " - ", " | "))
        head = 2 if len(words) > 2 else len(words)
        text = " ".join(words[:head]) + "".join(joint + word for word in words[head:])
        if rng.random() < 0.12:
            noise = rng.choice(self._shelf.noise)
            text = f"{noise} {text}" if rng.random() < 0.4 else f"{text} {noise}"
        if rng.random() < 0.06:
            text = _misspelt(text, product, rng)
        return text.title() if rng.random() < 0.3 else text

    def _made_up(self, low: int, high: int) -> str:
        return "".join(self._rng.choice(_SYLLABLES) for _ in range(self._rng.randint(low, high)))

    def _worded_brand(self) -> str:
        """A brand that could be taken for a description: "harbor", "harbor lane", "harborvra"."""
        rng = self._rng
        one, other = rng.choice(self._shelf.words), rng.choice(self._shelf.words)
        if rng.random() < 0.5:
            brand = rng.choice(self._shelf.brands)
            ending = brand[rng.randrange(1, len(brand) - 1) :].strip()
            return rng.choice((one + ending, one[: len(one) // 2 + 1] + ending))
        return rng.choice((one, f"{one} {other}", one + other))

    def _line(self) -> str:
        return self._made_up(2, 2) + self._rng.choice(_LINE_ENDS)

    def _code(self) -> str:
        rng = self._rng
        letters = "".join(rng.choice("abcdefghjkmnprstvwxz") for _ in range(rng.randint(1, 2)))
        return f"{letters}-{rng.randint(10, 999) * rng.choice((1, 1, 10))}"

    def _code_form(self, code: str) -> str:
        return code.replace("-", self._rng.choice(("-", "-", "", " ")))

    def _kind_form(self, kind: str) -> str:
        group = _SAME_KIND.get(kind)
        if group and self._rng.random() < 0.5:
            return self._rng.choice(group)
        if kind.endswith("s") and not kind.endswith("ss") and self._rng.random() < 0.15:
            return kind[:-1]
        return kind

    def _colour_form(self, colour: str) -> str:
        return self._rng.choice(_COLOUR_FORMS.get(colour, (colour,)))

    def _quantity_form(self, quantity: int) -> str:
        if quantity == 1:
            return "1 piece" if self._rng.random() < 0.05 else ""
        forms = ("pack of {}", "{} pack", "{}-pack", "set of {}", "{} pcs", "{} pieces", "{} count")
        return self._rng.choice(forms).format(quantity)

    def _size_form(self, size: tuple[str, int] | None) -> str:
        return self._rng.choice(_SIZE_FORMS[size[0]](size[1])) if size else ""


def _same(one: str, other: str) -> bool:
    return one == other or other in _SAME_KIND.get(one, ())


def _scaled(number: int, small: str, large: tuple[str, ...], per_large: int) -> list[str]:
    """ "500 ml", "500ml", "0.5 l"."""
    forms = [f"{number} {small}", f"{number}{small}"]
    if number * 10 >= per_large and number % (per_large // 100 or 1) == 0:
        forms += [f"{number / per_large:g} {unit}" for unit in large]
    return forms


def _clothes(at: int) -> list[str]:
    name = tuple(_CLOTHES)[at]
    return [f"size {name}", name, _CLOTHES[name]]


_SIZE_FORMS: dict[str, Callable[[int], list[str]]] = {
    "ml": lambda n: _scaled(n, "ml", ("l", "liter"), 1000),
    "g": lambda n: _scaled(n, "g", ("kg",), 1000),
    "cm": lambda n: _scaled(n, "cm", ("m",), 100),
    "gb": lambda n: [f"{n} gb", f"{n}gb"] if n < 1024 else [f"{n // 1024} tb", f"{n // 1024}tb"],
    "inch": lambda n: [f"{n} inch", f'{n}"', f"{n} in", f"{n}-inch"],
    "clothes": _clothes,
    "shoe": lambda n: [f"size {n}", f"eu {n}"],
}


def _misspelt(text: str, product: Product, rng: random.Random) -> str:
    """One letter too few in a word that is neither brand nor model: those tell products apart."""
    kept = {*product.brand.split(), *product.line.split()}
    words = text.split(" ")
    open_to_it = [at for at, word in enumerate(words) if word.isalpha() and len(word) > 4]
    open_to_it = [at for at in open_to_it if words[at] not in kept]
    if not open_to_it:
        return text
    at = rng.choice(open_to_it)
    cut = rng.randrange(1, len(words[at]))
    words[at] = words[at][:cut] + words[at][cut + 1 :]
    return " ".join(words)
