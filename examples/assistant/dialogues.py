"""Conversations made from the catalogue: a list of products, and several questions about it.

Serves `train_chat.py` and the measurements. Questions are drawn from `questions.py`, what a good
answer says comes from `answers.py`; both are made from the very prompt that serving builds. Every
tenth product, and the last phrasing of each intent, is held out from training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import answers
import questions as asked_as
from answers import Known, Said, known
from catalogue import Product, an, shop
from prompt import messages_of

Fields = Mapping[str, Any]
History = Sequence[Mapping[str, str]]

_LIMITS = (10, 15, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90, 100, 120, 150, 200, 250, 300, 400, 500)
_UNDER = (
    " under ${}", " under {} dollars", " for less than ${}", " below ${}", " up to ${}",
    " under {}",
    " that costs at most ${}", ", max ${}", " within ${}", " for no more than {} dollars",
)  # fmt: skip
#: intent -> how often
WEIGHTS: Mapping[str, int] = {
    "find": 34, "cheapest": 6, "best": 6, "cheapest-here": 3, "best-here": 4, "compare": 8,
    "compare-here": 4, "price": 4, "colour": 2, "material": 2, "rating": 3, "more": 4, "has": 4,
    "comes": 3, "suits": 3, "cheaper": 4, "another": 6, "vague": 3, "strange": 4, "unclear": 1,
    "greeting": 2, "thanks": 2, "goodbye": 1, "about-you": 2, "elsewhere": 4, "orders": 2,
    "gibberish": 1,
}  # fmt: skip
NEEDS_HISTORY = ("compare-here", "cheaper", "another", "cheapest-here", "best-here")
#: Scenes whose questions all follow others; the rest are first questions. Turns of a scene are
#: computed side by side, so they should be of like length.
LATER_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Turn:
    """One question with what came before, and its answer."""

    intent: str
    question: str
    history: History
    answer: Said


@dataclass(frozen=True, slots=True)
class Scene:
    products: tuple[Fields, ...]
    turns: tuple[Turn, ...]

    def messages(self, turn: Turn) -> list[dict[str, str]]:
        return messages_of(turn.question, self.products, turn.history)


class Dialogues:
    """An endless supply, the same for the same seed."""

    def __init__(self, catalogue: Sequence[Product], seed: str, *, held_out: bool = False) -> None:
        self._rng = random.Random(seed)
        self._held_out = held_out
        self._kinds: dict[str, list[Fields]] = {}
        for product in catalogue:
            if (int(product.id[1:]) % 10 == 0) == held_out:
                self._kinds.setdefault(product.kind, []).append(asdict(product))

    def scenes(self, turns: int = 4) -> Iterator[Scene]:
        intents, weights = list(WEIGHTS), list(WEIGHTS.values())
        while True:
            products = self._products()
            made: list[Turn] = []
            later = self._rng.random() < LATER_SHARE
            while len(made) < turns:
                intent = self._rng.choices(intents, weights)[0]
                turn = self._turn(intent, products, later=later)
                if turn is not None:
                    made.append(turn)
            yield Scene(products, tuple(made))

    def _products(self) -> tuple[Fields, ...]:
        """As a search finds them: mostly of one kind, often alike, sometimes few."""
        rng = self._rng
        kind = rng.choice(list(self._kinds))
        target = rng.choice(self._kinds[kind])
        others = [each for each in self._kinds[kind] if each is not target]
        rng.shuffle(others)
        if rng.random() < 0.5:
            others.sort(key=lambda each: -_alike(each, target))
        count = rng.choice((4, 4, 4, 4, 4, 4, 4, 3, 2, 1))
        strangers = rng.choice((0, 0, 0, 0, 1, 1, 2, 3))
        picked = [target, *others[: max(0, count - 1 - strangers)]]
        while len(picked) < count:
            other = rng.choice(self._kinds[rng.choice(list(self._kinds))])
            if other not in picked:
                picked.append(other)
        rng.shuffle(picked)
        return tuple(picked) if rng.random() > 0.015 else ()

    def _turn(self, intent: str, products: tuple[Fields, ...], *, later: bool) -> Turn | None:
        if not later and intent in NEEDS_HISTORY:
            return None
        history = self._history(intent, products) if later else ()
        if history is None:
            return None
        question = self._question(intent, products)
        if question is None:
            return None
        question = _hurried(question, self._rng)
        seen = known(question, products, _unmarked(history))
        answer = self._answer(intent, seen)
        return None if answer is None else Turn(intent, question, history, answer)

    def _history(self, intent: str, products: tuple[Fields, ...]) -> History | None:
        """What was said before; None where the intent needs something and there is nothing."""
        rng = self._rng
        needed = intent in NEEDS_HISTORY
        about = products if needed or rng.random() < 0.7 else self._products()
        if not about:
            return None if needed else ()
        before = rng.choice(("find", "find", "best", "cheapest", "vague", "compare"))
        if intent == "compare-here":
            before = rng.choice(("compare", "find"))
        question = self._question(before, about)
        if question is None:
            return None
        answer = self._answer(before, known(question, about, ()))
        if answer is None:
            return None
        return (
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer.text},
        )

    def _phrase(self, phrasings: Sequence[str]) -> str:
        if len(phrasings) < 6:
            return self._rng.choice(phrasings)
        return phrasings[-1] if self._held_out else self._rng.choice(phrasings[:-1])

    def _question(self, intent: str, products: Sequence[Fields]) -> str | None:
        rng = self._rng
        if intent in asked_as.SMALL_TALK:
            return self._phrase(asked_as.SMALL_TALK[intent][0])
        if intent in ("find", "cheapest", "best", "another"):
            phrasings = _PHRASINGS[intent]
            return self._wish(self._phrase(phrasings), products, short=intent != "find")
        if intent == "strange":
            strange = self._phrase(asked_as.STRANGE)
            text = self._phrase(asked_as.STRANGE_ASKED).format(strange=strange)
            return text.replace("a a", "an a").replace(" a o", " an o")
        if intent == "compare":
            if len(products) < 2:
                return None
            first, second = rng.sample(list(products), 2)
            names = {"a": self._named(first), "b": self._named(second)}
            return self._phrase(asked_as.COMPARE).format(**names)
        if intent == "unclear":
            rest = rng.choice((asked_as.PRICE, asked_as.COLOUR, asked_as.RATING, asked_as.MORE))
            return self._phrase(rest).format(it=rng.choice(("it", "this", "that one")))
        text = self._phrase(_PHRASINGS[intent])
        if "{" not in text:
            return text
        if not products:
            return None
        return self._of_one(text, rng.choice(list(products)))

    def _of_one(self, text: str, product: Fields) -> str:
        """A question about one product, by name or by pointing at it."""
        rng = self._rng
        it = rng.choice(("it", "it", "that one", "the first one", "this one", "the second one"))
        if rng.random() < 0.5:
            it = self._named(product)
        asked: Sequence[str] = product["features"]
        if rng.random() < 0.5:
            asked = next(k["features"] for k in shop()["kinds"] if k["kind"] == product["kind"])
        part = [each for each in asked if each.startswith("with ")] or ["with a lid"]
        use = [each for each in asked if each.startswith("for ")]
        quality = [each for each in asked if not each.startswith(("with ", "for "))]
        return text.format(
            it=it, part=rng.choice(part), use=rng.choice(use), quality=rng.choice(quality)
        )

    def _named(self, product: Fields) -> str:
        brand, series, *_ = product["title"].split()
        return self._rng.choice(
            (f"the {product['title']}", f"the {brand} {series}", product["title"])
        )

    def _wish(self, text: str, products: Sequence[Fields], *, short: bool) -> str | None:
        """A phrasing with what one of the products has, and now and then with what none has."""
        rng = self._rng
        if not products:
            kind = rng.choice(shop()["kinds"])
            product: Fields = rng.choice(self._kinds[kind["kind"]])
        else:
            product = rng.choice(list(products))
        wanted = dict(product)
        if rng.random() < 0.25:
            other = rng.choice(self._kinds[product["kind"]])
            wanted |= {key: other[key] for key in rng.sample(("colour", "material", "features"), 2)}
        adjectives, wish = self._parts(
            wanted, count=rng.choice((0, 1, 1) if short else (0, 1, 1, 2, 2, 3))
        )
        if "one {wish}" in text:
            if not (adjectives or wish):
                return None
            ahead = " ".join(adjectives)
            return text.replace("one {wish}", f"{an(ahead)} one{wish}" if ahead else f"one{wish}")
        kind_names = next(
            (k["kind"], k["kind"], k["kind"].split()[-1], *k["also"])
            for k in shop()["kinds"]
            if k["kind"] == product["kind"]
        )
        name = rng.choice([each for each in kind_names if each not in ("set", "maker")])
        if rng.random() < 0.06 and adjectives:
            name = "thing"
        one = " ".join((*adjectives, name))
        return text.format(wanted=one, an_wanted=an(one), wanteds=_plural(one), wish=wish)

    def _parts(self, wanted: Fields, *, count: int) -> tuple[list[str], str]:
        """What stands before the kind and what behind it."""
        rng = self._rng
        ahead, behind = [], ""
        possible = ["colour", "under", *wanted["features"], *wanted["features"]]
        if rng.random() < 0.3:
            possible.append("material")
        if rng.random() < 0.2:
            possible.append("stars")
        chosen = set(rng.sample(possible, min(count, len(possible))))
        for each in sorted(chosen, key=lambda _: rng.random()):
            if each in ("colour", "material"):
                ahead.append(wanted[each])
            elif each == "under":
                limit = rng.choice(_LIMITS)
                if rng.random() < 0.75:
                    limit = min(
                        (n for n in _LIMITS if n * 100 >= wanted["price_cents"]), default=500
                    )
                behind += rng.choice(_UNDER).format(limit)
            elif each == "stars":
                stars = rng.choice(("4", "4.5", f"{wanted['rating']:.1f}"))
                behind += f" with at least {stars} stars"
            elif each.startswith(("with ", "for ")):
                behind = f" {each}{behind}"
            else:
                ahead.append(each)
        return ahead, behind

    def _answer(self, intent: str, seen: Known) -> Said | None:
        """None where the question, as it came out, does not have this intent."""
        rng, about = self._rng, seen.numbers("about")
        if intent in asked_as.SMALL_TALK:
            said = Said(seen.products)
            said.plain(rng.choice(asked_as.SMALL_TALK[intent][1]))
            return said
        if not seen.products or intent == "strange":
            fits = bool(seen.numbers("fits") or seen.numbers("closest"))
            return None if intent == "strange" and fits else answers.nothing(seen)
        if intent == "unclear":
            return None if about else answers.unclear(seen)
        write: Mapping[str, Callable[[], Said | None]] = {
            "find": lambda: answers.found(seen, rng),
            "another": lambda: answers.found(seen, rng) if seen.terms else None,
            "cheapest": lambda: answers.superlative(seen, "cheapest"),
            "best": lambda: answers.superlative(seen, "best rated"),
            "cheapest-here": lambda: answers.superlative(seen, "cheapest"),
            "best-here": lambda: answers.superlative(seen, "best rated"),
            "compare": lambda: answers.compared(seen) if len(about) == 2 else None,
            "compare-here": lambda: answers.compared(seen) if len(about) == 2 else None,
            "cheaper": lambda: answers.cheaper(seen) if about else None,
            "vague": lambda: None if seen.terms else answers.vague(seen),
        }
        if intent in write:
            return write[intent]()
        if not about:
            return answers.unclear(seen) if rng.random() < 0.3 else None
        if intent in ("has", "comes", "suits"):
            one = seen.terms and seen.terms[-1].field == "feature"
            return answers.whether(seen) if one else None
        return answers.detail(seen, intent)


_PHRASINGS: Mapping[str, tuple[str, ...]] = {
    "find": asked_as.FIND, "cheapest": asked_as.CHEAPEST, "best": asked_as.BEST,
    "another": asked_as.ANOTHER, "cheapest-here": asked_as.CHEAPEST_HERE,
    "best-here": asked_as.BEST_HERE, "compare-here": asked_as.COMPARE_HERE,
    "cheaper": asked_as.CHEAPER, "vague": asked_as.VAGUE, "price": asked_as.PRICE,
    "colour": asked_as.COLOUR, "material": asked_as.MATERIAL, "rating": asked_as.RATING,
    "more": asked_as.MORE, "has": asked_as.HAS, "comes": asked_as.COMES, "suits": asked_as.SUITS,
}  # fmt: skip


def _alike(one: Fields, other: Fields) -> int:
    return (
        (one["colour"] == other["colour"])
        + (one["material"] == other["material"])
        + len(set(one["features"]) & set(other["features"]))
    )


def _unmarked(history: History) -> History:
    """As the prompt shows it."""
    return messages_of("", (), history)[1:-1] if history else ()


def _plural(words: str) -> str:
    if words.endswith(("s", "x", "sh", "ch")):
        return f"{words}es"
    if words.endswith("fe"):
        return f"{words[:-2]}ves"
    return f"{words}s"


def _hurried(text: str, rng: random.Random) -> str:
    """Large letters, small letters, no question mark, now and then a slip of the finger."""
    kind = rng.random()
    if kind < 0.35:
        text = text.lower().rstrip("?.!")
    elif kind < 0.6:
        text = text[:1].upper() + text[1:]
    if rng.random() < 0.08:
        text = rng.choice(("hi, ", "hello, ", "ok, ", "please, ", "hm, ", "and ", "well, ")) + text
    if rng.random() < 0.04 and len(text) > 12:
        at = rng.randrange(2, len(text) - 2)
        text = text[:at] + text[at + 1 :]
    return text
