"""Makes the labelled queries: expands the templates, fills the slots, adds a shopper's noise.

Serves `train.py`. Knows nothing of models or tokenizers. Everything follows from the seed.

The split is by what a query is made of, not by query: a fifth of every label's phrasings (a
template with its alternatives chosen, "track my {noun}") and a fifth of the open vocabularies
(nouns, brands, titles, people, pages, recipients ...) are drawn out before anything is generated.
Held-out queries are then made of held-out words only, so a model can't pass by having seen the
phrase. Closed classes (colours, prices, weekdays) are shared.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grammar import DEPARTMENTS, LABELS, NOUNS, TEMPLATES, WORDS

#: Phrasings of one label, grouped by the template they come from.
Phrasings = dict[str, list[list[str]]]

HELD_OUT_SHARE = 0.2

#: Training queries of a label, where not 1.0: these two have the widest vocabulary, and product
#: search is what anything unknown should be taken for. The held-out sets are balanced.
_TRAINING_WEIGHTS = {"product-search": 2.0, "media": 1.5}
_SLOT = re.compile(r"\{(\w+)\}")
_INNERMOST = re.compile(r"\(([^()]*)\)")
#: Words that a hurried shopper leaves out.
_DROPPED = frozenset(
    [
        "this",
        "it",
        "a",
        "an",
        "the",
        "my",
        "of",
        "for",
        "to",
        "is",
        "are",
        "i",
        "do",
        "with",
        "on",
        "in",
        "me",
    ]
)
_NEIGHBOURS = {
    **dict(zip("qwertyuiop", "wqerrtyuio", strict=True)),
    **dict(zip("asdfghjkl", "sadfgjhkj", strict=True)),
    **dict(zip("zxcvbnm", "xzcvbnm", strict=True)),
}


@dataclass(frozen=True, slots=True)
class Query:
    """One labelled example."""

    text: str
    label: str


@dataclass(frozen=True)
class Words:
    """The open vocabularies of one side of the split."""

    nouns: tuple[str, ...]
    brands: tuple[str, ...]
    things: tuple[str, ...]
    qualities: tuple[str, ...]
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    pages: tuple[str, ...]
    recipients: tuple[str, ...]
    occasions: tuple[str, ...]
    audiences: tuple[str, ...]
    features: tuple[str, ...]
    compound_share: (
        float  #: nouns put together from the ends of two others, for variety in training
    )

    @cached_property
    def ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """First and last words of the nouns of several words."""
        pairs = [noun.split() for noun in self.nouns if " " in noun]
        return tuple(pair[0] for pair in pairs), tuple(pair[-1] for pair in pairs)


def _parted(items: Sequence[str], rng: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(kept, held out), each in its old order."""
    held = set(rng.sample(list(items), max(1, round(HELD_OUT_SHARE * len(items)))))
    return tuple(i for i in items if i not in held), tuple(i for i in items if i in held)


def split_words(seed: int) -> tuple[Words, Words]:
    """(training words, held-out words)."""
    rng = random.Random(f"{seed}-words")
    parts = [
        _parted(items, rng)
        for items in (
            NOUNS,
            WORDS["brands"],
            WORDS["title-things"],
            WORDS["title-qualities"],
            WORDS["person-first"],
            WORDS["person-last"],
            WORDS["pages"],
            WORDS["recipients"],
            WORDS["occasions"],
            WORDS["audiences"],
            WORDS["features"],
        )
    ]
    kept = Words(*(part[0] for part in parts), compound_share=0.15)
    held = Words(*(part[1] for part in parts), compound_share=0.0)
    return kept, held


def phrasings_of(template: str) -> list[str]:
    """All ways to choose the template's alternatives, each once; slots stay open."""
    found = _INNERMOST.search(template)
    if found is None:
        return [" ".join(template.split())]
    before, after = template[: found.start()], template[found.end() :]
    each = (phrasings_of(before + choice + after) for choice in found.group(1).split("|"))
    return list(dict.fromkeys(phrasing for phrasings in each for phrasing in phrasings))


def split_phrasings(seed: int) -> tuple[Phrasings, Phrasings]:
    """(training phrasings, held-out phrasings) by label, grouped by template.

    A phrasing that is a slot and nothing else can't be held out: there is no other way to put it.
    """
    rng = random.Random(f"{seed}-phrasings")
    kept: Phrasings = {}
    held: Phrasings = {}
    for label in LABELS:
        groups = [phrasings_of(template) for template in TEMPLATES[label]]
        worded = {p: None for group in groups for p in group if _SLOT.sub("", p).strip()}
        out = set(_parted(list(worded), rng)[1])
        kept[label] = [part for group in groups if (part := [p for p in group if p not in out])]
        held[label] = [part for group in groups if (part := [p for p in group if p in out])]
    return kept, held


class Generator:
    """Fills templates from one side's words. One instance, one stream of random numbers."""

    def __init__(self, words: Words, rng: random.Random) -> None:
        self._words = words
        self._rng = rng
        pick = rng.choice
        self._fill: dict[str, Callable[[], str]] = {
            "noun": self._noun,
            "product": self._product,
            "title": self._title,
            "person": lambda: f"{pick(words.first_names)} {pick(words.last_names)}",
            "brand": lambda: pick(words.brands),
            "page": lambda: pick(words.pages),
            "recipient": lambda: pick(words.recipients),
            "occasion": lambda: pick(words.occasions),
            "audience": lambda: pick(words.audiences),
            "feature": lambda: pick(words.features),
            "thing": lambda: pick(words.things),
            "colour": lambda: pick(WORDS["colours"]),
            "material": lambda: pick(WORDS["materials"]),
            "quantity": lambda: pick(WORDS["quantities"]),
            "media": lambda: pick(WORDS["media-kinds"]),
            "genre": lambda: pick(WORDS["genres"]),
            "device": lambda: pick(WORDS["devices"]),
            "carrier": lambda: pick(WORDS["carriers"]),
            "time": lambda: pick(WORDS["times"]),
            "search": lambda: pick(WORDS["search-before"]),
            "greeting": lambda: pick(WORDS["greetings"]),
            "department": lambda: pick(DEPARTMENTS),
            "size": lambda: pick(("s", "m", "l", "xl", "small", "large", str(rng.randint(4, 46)))),
            "digit": lambda: str(rng.randint(1, 9)),
            "year": lambda: str(rng.randint(1960, 2026)),
            "price": self._price,
            "code": self._code,
            "order": self._order,
        }

    def query(self, groups: list[list[str]]) -> str:
        """One clean query: a template, one of its phrasings, its slots filled."""
        phrasing = self._rng.choice(self._rng.choice(groups))
        return _SLOT.sub(lambda match: self._fill[match.group(1)](), phrasing)

    def _noun(self) -> str:
        if self._rng.random() < self._words.compound_share:
            first, last = self._words.ends
            return f"{self._rng.choice(first)} {self._rng.choice(last)}"
        return self._rng.choice(self._words.nouns)

    def _product(self) -> str:
        rng, words = self._rng, self._words
        parts = [
            rng.choice(words.brands) if rng.random() < 0.35 else "",
            rng.choice(words.features) if rng.random() < 0.4 else "",
            rng.choice(WORDS["colours"]) if rng.random() < 0.25 else "",
            rng.choice(WORDS["materials"]) if rng.random() < 0.2 else "",
            self._noun(),
            rng.choice(WORDS["quantities"]) if rng.random() < 0.2 else "",
            f"for {rng.choice(words.audiences)}" if rng.random() < 0.15 else "",
        ]
        return " ".join(part for part in parts if part)

    def _title(self) -> str:
        rng = self._rng
        thing, other = rng.choice(self._words.things), rng.choice(self._words.things)
        quality = rng.choice(self._words.qualities)
        return rng.choice(
            (
                f"the {quality} {thing}",
                f"the {thing} of {other}",
                f"{thing} of {other}",
                f"{quality} {thing}",
                f"the {thing}'s {other}",
                f"{thing} and {other}",
                f"a {quality} {thing}",
                f"the {thing}",
                f"the {thing} and the {other}",
                f"{quality} {thing}s",
                f"the last {thing}",
                f"children of the {thing}",
                f"beyond the {thing}",
                f"the {thing} {quality} {other}",
                f"{thing} {rng.randint(2, 5)}",
            )
        )

    def _price(self) -> str:
        amount = self._rng.choice(
            (5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)
        )
        return self._rng.choice((f"${amount}", f"{amount} dollars", f"{amount}", f"{amount} euro"))

    def _code(self) -> str:
        rng = self._rng
        letters = "".join(rng.choice("abcdefghjklmnpqrstuvwxyz") for _ in range(rng.randint(1, 3)))
        digits = rng.randint(10, 9999)
        return rng.choice((f"{letters}{digits}", f"{letters}-{digits}", f"{letters} {digits}"))

    def _order(self) -> str:
        number = "".join(str(self._rng.randint(0, 9)) for _ in range(self._rng.randint(6, 9)))
        return self._rng.choice(
            (number, f"#{number}", f"{number[:3]}-{number[3:]}", f"no {number}")
        )


def noisy(text: str, rng: random.Random) -> str:
    """The query as a hurried shopper types it; about two in five stay as they are."""
    words = text.split()
    if rng.random() < 0.06:
        words = [*rng.choice(WORDS["polite-before"]).split(), *words]
    if rng.random() < 0.04 and text not in WORDS["greetings"]:
        words = [*rng.choice(WORDS["greetings"]).split(), *words]
    if rng.random() < 0.06:
        words = [*words, *rng.choice(WORDS["polite-after"]).split()]
    if len(words) > 3 and rng.random() < 0.1:
        words = [w for w in words if w not in _DROPPED] or words
    if len(words) > 2 and rng.random() < 0.06:
        at = rng.randrange(len(words) - 1)
        words[at], words[at + 1] = words[at + 1], words[at]
    if len(words) > 1 and rng.random() < 0.03:
        at = rng.randrange(len(words) - 1)
        words[at : at + 2] = [words[at] + words[at + 1]]
    for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 1, 2))):
        at = rng.randrange(len(words))
        words[at] = _misspelt(words[at], rng)
    if rng.random() < 0.02 and len(words[-1]) > 5:
        words[-1] = words[-1][:-2]  # sent before the last word was finished
    text = " ".join(words)
    if rng.random() < 0.1:
        text += rng.choice(("?", "?", "!", ".", "..."))
    return text.capitalize() if rng.random() < 0.1 else text


def _misspelt(word: str, rng: random.Random) -> str:
    if len(word) < 4 or not word.isalpha():
        return word
    at = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return word[:at] + word[at + 1 :]
    if kind == 1:
        return word[:at] + word[at] + word[at:]
    if kind == 2:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return word[:at] + _NEIGHBOURS.get(word[at], word[at]) + word[at + 1 :]


def generate(
    words: Words,
    phrasings: Phrasings,
    *,
    per_label: int,
    seed: str,
    exclude: frozenset[str] = frozenset(),
    weights: Mapping[str, float] | None = None,
) -> list[Query]:
    """Different queries, up to `per_label` times the label's weight of each label, shuffled.

    Labels made of few fixed phrases may run out of new ones; the tries are bounded.
    """
    rng = random.Random(seed)
    generator = Generator(words, rng)
    queries: list[Query] = []
    for label in LABELS:
        texts: dict[str, None] = {}
        wanted = round(per_label * (weights or {}).get(label, 1.0))
        for _ in range(wanted * 4):
            text = noisy(generator.query(phrasings[label]), rng)
            if text.lower() not in exclude:
                texts.setdefault(text)
            if len(texts) == wanted:
                break
        queries.extend(Query(text, label) for text in texts)
    rng.shuffle(queries)
    return queries


def read_handwritten(path: Path) -> list[Query]:
    """Queries written by hand, without looking at the templates: `text<TAB>label` lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Query(*line.split("\t")) for line in lines if line]


class Corpus:
    """All data of one seed: fresh training queries for every epoch, and the held-out sets."""

    def __init__(self, seed: int, *, held_out_per_label: int, handwritten: list[Query]) -> None:
        self._seed = seed
        self._words, words_held = split_words(seed)
        self._phrasings, phrasings_held = split_phrasings(seed)
        size = held_out_per_label
        #: held-out words in phrasings that training has too
        self.new_words = generate(
            words_held, self._phrasings, per_label=size, seed=f"{seed}-new-words"
        )
        #: held-out words in held-out phrasings: the accuracy that is quoted
        self.held_out = generate(
            words_held, phrasings_held, per_label=size, seed=f"{seed}-held-out"
        )
        self.handwritten = handwritten
        held = (*self.new_words, *self.held_out, *handwritten)
        self._exclude = frozenset(query.text.lower() for query in held)

    def training(self, epoch: int, *, per_label: int) -> list[Query]:
        """None of these is in a held-out set."""
        return generate(
            self._words,
            self._phrasings,
            per_label=per_label,
            seed=f"{self._seed}-train-{epoch}",
            exclude=self._exclude,
            weights=_TRAINING_WEIGHTS,
        )
