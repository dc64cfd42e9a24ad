"""Pairs of a typed query and the one that was meant; the held-out sets.

Serves `train.py` and `export.py`. Knows nothing of models or tokenizers. Everything follows from
the seed. No clean query of a held-out set is among the training pairs, and no misspelt form.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from queries import QueryMaker, Sections, known_words, read_words
from typos import Side, Typist


@dataclass(frozen=True, slots=True)
class Pair:
    """`typed` is `meant` where nothing is to be corrected."""

    typed: str
    meant: str


class Corpus:
    """All data of one seed: the held-out sets, and training pairs without end."""

    def __init__(self, seed: int, *, held_out: int, new_words: int, handwritten: Path) -> None:
        self._seed = seed
        self.sections: Sections = read_words()
        self.known = known_words(self.sections)
        #: queries and misspelt forms that training does not have
        self.held_out = self._pairs(Side.HELD_OUT, held_out, frozenset(), errors_min=0)
        taken = frozenset(pair.meant for pair in self.held_out)
        #: the same; every misspelt word is one that training shows spelt well alone
        self.new_words = self._pairs(Side.NEW_WORDS, new_words, taken, errors_min=1)
        self.handwritten = read_handwritten(handwritten)
        held = (*self.held_out, *self.new_words, *self.handwritten)
        self._exclude = frozenset(pair.meant for pair in held)

    def training(self, group: int, count: int, letters_max: int = 1000) -> list[Pair]:
        """Pairs of group 0, 1 ...: other ones in each; `letters_max` bounds what was meant."""
        queries = self._maker(f"{self._seed}-queries-{group}")
        typist = Typist(
            self.known, random.Random(f"{self._seed}-typos-{group}"), Side.TRAINING
        )  # fmt: skip
        pairs: list[Pair] = []
        while len(pairs) < count:
            meant = queries.query()
            if len(meant) <= letters_max and meant not in self._exclude:
                pairs.append(Pair(typist.typed(meant), meant))
        return pairs

    def clean(self, count: int, name: str) -> list[str]:
        """Clean training queries, as a shop's log would have them: for vocabularies."""
        queries = self._maker(f"{self._seed}-{name}")
        texts = (queries.query() for _ in range(count))
        return [text for text in texts if text not in self._exclude]

    def _maker(self, seed: str) -> QueryMaker:
        return QueryMaker(self.sections, random.Random(seed))

    def _pairs(
        self, side: Side, count: int, taken: frozenset[str], *, errors_min: int
    ) -> tuple[Pair, ...]:
        queries = self._maker(f"{self._seed}-{side.name}")
        typist = Typist(self.known, random.Random(f"{self._seed}-{side.name}-typos"), side)
        pairs: dict[str, Pair] = {}
        while len(pairs) < count:
            meant = queries.query()
            typed = typist.typed(meant, errors_min=errors_min)
            if meant not in taken and meant not in pairs and (typed != meant or not errors_min):
                pairs[meant] = Pair(typed, meant)
        return tuple(pairs.values())


def read_handwritten(path: Path) -> tuple[Pair, ...]:
    """Lines of `typed<TAB>meant`, written by hand without looking at what the program makes."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(Pair(*line.split("\t")) for line in lines if line)
