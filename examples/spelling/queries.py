"""Makes clean shopping queries, from the words of query intent and from `words.txt`.

Serves `pairs.py`. Knows nothing of typing errors or models. Everything follows from the random
numbers passed in. Some words are made up on the way (brands, model names): a speller has never met
them and must leave them alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import data as intent
from grammar import LABELS, TEMPLATES, WORDS

Sections = dict[str, tuple[str, ...]]

_HERE = Path(__file__).parent
_TOKEN = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_IRREGULAR = {
    "knife": "knives",
    "shelf": "shelves",
    "scarf": "scarves",
    "mouse": "mice",
    "foot": "feet",
    "octopus": "octopuses",
}
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
#: Shares of what a query is: a product, a phrasing of query intent, a bare thing.
_KINDS = (0.64, 0.30, 0.06)
_UNITS = ("inch", "cm", "mm", "ft", "oz", "ml", "kg", "lb", "g", "gb", "mah", "w", "v", "count")
_SOUNDS = (
    "ba be bi bo bu ca ce ci co da de di do fa fe fi fo ga go gra gri ha he hi ja jo ka ke "
    "ki ko la le li lo lu ma me mi mo na ne ni no nu pa pe pi po qua ra re ri ro ru sa se "
    "si so ta te ti to tra tri va ve vi vo wa we wi xa xe yo za ze zi zo "
)
_SYLLABLES = tuple(_SOUNDS.split())
_ENDINGS = ("n", "x", "r", "l", "s", "th", "nd", "rk", "lle", "tte", "zz", "ck", "m", "")
_BOOKS = ("book", "books", "textbook")
_LESSONS = ("introduction to", "learn", "basic")


def read_words() -> Sections:
    """`words.txt` by heading, each phrase once."""
    sections: dict[str, list[str]] = {}
    current = ""
    for line in (_HERE / "words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = line.strip("[]")
            sections[current] = []
        elif line and not line.startswith("#"):
            sections[current] += [part.strip() for part in line.strip(",").split(",")]
    return {name: tuple(dict.fromkeys(filter(None, parts))) for name, parts in sections.items()}


def plural(phrase: str) -> str:
    """Of a thing's last word."""
    before, _, last = phrase.rpartition(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith(("s", "x", "z", "ch", "sh")):
        last += "es"
    elif _CONSONANT_Y.search(last):
        last = last[:-1] + "ies"
    else:
        last += "s"
    return f"{before} {last}".strip()


def words_of(text: str) -> list[str]:
    """Its words; numbers and model names (anything with a digit) are none."""
    return [
        word
        for part in text.split()
        if not any(letter.isdigit() for letter in part)
        for word in _TOKEN.findall(part)
    ]


def known_words(sections: Sections) -> frozenset[str]:
    """Every word that a query may contain, those that are made up on the way apart."""
    phrases = [phrase for parts in sections.values() for phrase in parts]
    phrases += [plural(thing) for thing in sections["things"]]
    phrases += [part for name, parts in WORDS.items() for part in (name, *parts)]
    phrases += [*_BOOKS, *_LESSONS, "flavored"]
    for templates in TEMPLATES.values():
        phrases += [re.sub(r"[(){}|]", " ", template) for template in templates]
    return frozenset(word for phrase in phrases for word in words_of(phrase.lower()))


def _shuffled(sections: Sections) -> Sections:
    """The same words, in an order that is nobody's."""
    rng = random.Random(0)
    return {name: tuple(rng.sample(parts, len(parts))) for name, parts in sections.items()}


class QueryMaker:
    """One instance, one stream of random numbers."""

    def __init__(self, sections: Sections, rng: random.Random) -> None:
        self._rng = rng
        self._words = words = _shuffled(sections)
        self._countable = frozenset(sections["things"])
        kept, held = intent.split_words(7)
        both = {
            name: (*getattr(kept, name), *getattr(held, name))
            for name in kept.__dataclass_fields__
            if name != "compound_share"
        }
        self._intent = intent.Generator(intent.Words(**both, compound_share=0.15), rng)
        self._phrasings = [
            [intent.phrasings_of(template) for template in TEMPLATES[label] if "}s" not in template]
            for label in LABELS
        ]
        pick = self._pick
        self._shapes: tuple[tuple[float, Callable[[], str]], ...] = (
            (9.0, self._product),
            (1.0, self._two_things),
            (1.2, lambda: f"{pick(words['themes'])} {self._noun()}"),
            (1.0, lambda: f"{pick(words['themes'])} {self._noun()} for {pick(WORDS['audiences'])}"),
            (1.5, lambda: f"{self._noun()} for {pick(words['purposes'])}"),
            (0.8, lambda: f"{self._looks()} {self._noun()} for {pick(words['purposes'])}"),
            (0.8, lambda: f"{pick(words['flavours'])} {pick(words['stuff'])}"),
            (0.5, lambda: f"{pick(words['flavours'])} flavored {pick(words['stuff'])}"),
            (0.6, lambda: f"{pick(words['subjects'])} {rng.choice(_BOOKS)}"),
            (0.4, lambda: f"{rng.choice(_LESSONS)} {pick(words['subjects'])}"),
            (0.25, lambda: pick(words["accented"])),
            (0.25, lambda: f"{pick(words['accented'])} {self._noun()}"),
            (0.7, lambda: f"{pick(words['asking'])} {self._noun()}"),
            (0.7, lambda: f"{self._noun()} {pick(words['asking'])} {pick(words['asking'])}"),
            (0.5, lambda: f"best {self._looks()} {self._noun()} for {pick(words['purposes'])}"),
            (0.3, lambda: f"{self._made_up()} {self._noun()}"),
            (0.3, lambda: f"{self._made_up()} {self._code()} {self._noun()}"),
            (0.4, lambda: f"{pick(WORDS['brands'])} {self._code()}"),
        )
        self._weights = [weight for weight, _ in self._shapes]

    def query(self) -> str:
        """One clean query in lower case, its words parted by single spaces."""
        rng = self._rng
        kind = rng.choices(range(3), _KINDS)[0]
        if kind == 0:
            text = rng.choices(self._shapes, self._weights)[0][1]()
        elif kind == 1:
            text = self._intent.query(rng.choice(self._phrasings))
        else:
            text = self._noun()
        return " ".join(text.lower().split())

    def _pick(self, items: Sequence[str]) -> str:
        """The first are asked for far more often than the last: a tenth of them by half of all
        shoppers, as the head and the tail of a shop's log are."""
        return items[int(len(items) * self._rng.random() ** 3)]

    def _noun(self) -> str:
        rng = self._rng
        if rng.random() < 0.2:
            return rng.choice(intent.NOUNS)
        thing = self._pick(self._words["things" if rng.random() < 0.7 else "stuff"])
        if thing in self._countable and rng.random() < 0.3:
            return plural(thing)
        return thing

    def _two_things(self) -> str:
        join = self._rng.choice(("with", "and"))
        return f"{self._looks()} {self._noun()} {join} {self._noun()}"

    def _looks(self) -> str:
        return self._pick(self._words["looks"] if self._rng.random() < 0.67 else WORDS["features"])

    def _product(self) -> str:
        """`brand looks colour material thing size for someone`, most of it left out."""
        rng = self._rng
        parts: list[str] = []
        if rng.random() < 0.22:
            parts.append(self._made_up() if rng.random() < 0.2 else rng.choice(WORDS["brands"]))
        if rng.random() < 0.55:
            parts.append(self._looks())
        if rng.random() < 0.25:
            parts.append(rng.choice(WORDS["colours"]))
        if rng.random() < 0.2:
            parts.append(rng.choice(WORDS["materials"]))
        parts.append(self._noun())
        if rng.random() < 0.06:
            parts.append(self._code())
        if rng.random() < 0.16:
            parts.append(self._size())
        if rng.random() < 0.18:
            group = rng.choice((WORDS["audiences"], self._words["purposes"]))
            parts += ["for", self._pick(group)]
        return " ".join(parts)

    def _size(self) -> str:
        rng = self._rng
        number = rng.choice((str(rng.randint(2, 60)), str(rng.randint(1, 9) * 100), "1.5", "2.5"))
        unit = rng.choice(_UNITS)
        return rng.choice(
            (
                f"{number} {unit}",
                f"{number}{unit}",
                rng.choice(WORDS["quantities"]),
                f"size {rng.randint(1, 48)}",
                f"pack of {rng.randint(2, 50)}",
                f"{rng.randint(2, 9)}x{rng.randint(2, 9)}",
            )
        )

    def _made_up(self) -> str:
        """A brand that no list has."""
        rng = self._rng
        syllables = "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 3)))
        return syllables + rng.choice(_ENDINGS)

    def _code(self) -> str:
        rng = self._rng
        letters = "".join(rng.choice("abcdefghjklmnpqrstuvwxyz") for _ in range(rng.randint(1, 3)))
        number = rng.randint(1, 9999)
        return rng.choice(
            (
                f"{letters}{number}",
                f"{letters}-{number}",
                f"{letters}{number}{rng.choice('abcdestx')}",
                f"{number}{letters}",
            )
        )
