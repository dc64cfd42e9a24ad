"""SymSpell beside the model: a classical speller with the same words and their frequencies.

Serves `export.py`. It gets what a shop would give it: clean queries to count words and pairs of
words in, all known words, and the better of its settings, chosen on training pairs. Tokens with
digits are left alone, which helps it. Source: Garbe, "SymSpell", symmetric deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from pairs import Pair
from symspellpy import SymSpell, Verbosity

DISTANCES = (1, 2)
Speller = Callable[[str], str]


class Classical:
    """Dictionaries of one text collection."""

    def __init__(self, texts: Iterable[str], known: Iterable[str]) -> None:
        words: Counter[str] = Counter(dict.fromkeys(known, 1))
        pairs: Counter[str] = Counter()
        for text in texts:
            parts = text.split(" ")
            words.update(parts)
            pairs.update(f"{one} {other}" for one, other in pairwise(parts))
        self._spellers = {distance: SymSpell(distance, 7) for distance in DISTANCES}
        for speller in self._spellers.values():
            for word, count in words.items():
                speller.create_dictionary_entry(word, count)
            speller.bigrams.update(pairs)
            speller.bigram_count_min = min(pairs.values())

    def compound(self, distance: int) -> Speller:
        """Whole queries: words may be parted and joined."""
        speller = self._spellers[distance]

        def corrected(text: str) -> str:
            found = speller.lookup_compound(
                text,
                distance,
                ignore_non_words=True,
                split_by_space=True,
                ignore_term_with_digits=True,
            )
            return str(found[0].term)

        return corrected

    def by_word(self, distance: int) -> Speller:
        """Each word on its own."""
        speller = self._spellers[distance]

        def corrected(text: str) -> str:
            return " ".join(
                word
                if any(letter.isdigit() for letter in word)
                else str(
                    speller.lookup(word, Verbosity.TOP, distance, include_unknown=True)[0].term
                )
                for word in text.split(" ")
            )

        return corrected

    def best(self, pairs: Sequence[Pair]) -> dict[str, tuple[int, Speller]]:
        """(distance, speller) of both ways, by the exact matches on `pairs`."""
        chosen = {}
        for name, made in (("compound", self.compound), ("by word", self.by_word)):
            spellers = {distance: made(distance) for distance in DISTANCES}

            def right(distance: int, spellers: dict[int, Speller] = spellers) -> int:
                return sum(spellers[distance](pair.typed) == pair.meant for pair in pairs)

            distance = max(DISTANCES, key=right)
            chosen[name] = (distance, spellers[distance])
        return chosen
