"""Corrupts a clean query as hurried fingers and uncertain spellers do.

Serves `pairs.py`. Kinds of error and their shares are invented, after what is known of typing:
hands hit neighbouring keys, drop, double and swap letters; ears confuse `ie` with `ei` and `ph`
with `f`; spaces get lost or slip into a word; accents and hyphens are left out. Numbers and model
names are never touched, and an error that makes another known word is not made: nobody could tell.

Here the split is drawn. A tenth of all misspelt forms and a twelfth of all words are held out, by
their letters (CRC-32), so it does not depend on any random number.
"""

from __future__ import annotations

import random
import re
import unicodedata
import zlib
from collections.abc import Callable
from enum import Enum

_ROWS = (
    ("qwertyuiop", 0.0),
    ("asdfghjkl", 0.25),
    ("zxcvbnm", 0.75),
)
#: What is written for what, by ear; one pair for each direction.
_HEARD = (
    "ph:f f:ph ie:ei ei:ie ck:k k:ck c:k c:s s:c k:c tion:sion sion:tion able:ible ible:able "
    "er:or or:er er:ar ar:er re:er y:ie ie:y y:i i:y ey:y gh: wh:w kn:n x:cks x:ks qu:kw z:s "
    "s:z ou:u ou:o ea:ee ee:ea ee:e ea:e ai:ay ai:a a:e e:a e:i i:e o:u u:o o:a a:u u:e "
    "ight:ite igh:i oo:u oo:o au:o aw:au ue:u ance:ence ence:ance ant:ent ent:ant mb:m sc:s "
    "ch:sh sh:ch tch:ch ge:j j:g dge:ge le:el el:le al:el ous:us our:or or:our cc:c g:j sh:ss "
    "ture:cher ll:l ss:s tt:t nn:n mm:m pp:p rr:r l:ll s:ss t:tt n:nn m:mm p:pp r:rr e: th:t "
)
_CONFUSIONS = tuple(tuple(pair.split(":")) for pair in _HEARD.split())
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*\Z")
_LETTERS_MIN = 3
_TRIES = 60
#: Shares of 0, 1, 2 and 3 errors in a query.
_COUNTS = (0.42, 0.40, 0.14, 0.04)


class Side(Enum):
    """Which errors may be made."""

    TRAINING = "words and forms that are not held out"
    HELD_OUT = "forms that training never has, of words that it misspells otherwise"
    NEW_WORDS = "words that training shows spelt well alone"


def is_held_word(word: str) -> bool:
    return zlib.crc32(f"word {word}".encode()) % 12 == 0


def is_held_form(form: str) -> bool:
    return zlib.crc32(f"form {form}".encode()) % 10 == 0


def _neighbours() -> dict[str, str]:
    places = {
        letter: (row, at + shift)
        for row, (letters, shift) in enumerate(_ROWS)
        for at, letter in enumerate(letters)
    }
    return {
        letter: "".join(
            other
            for other, (row, at) in places.items()
            if other != letter and abs(row - mine[0]) <= 1 and abs(at - mine[1]) <= 1.0
        )
        for letter, mine in places.items()
    }


NEIGHBOURS = _neighbours()


class Typist:
    """Makes errors on one side of the split. One instance, one stream of random numbers."""

    def __init__(self, known: frozenset[str], rng: random.Random, side: Side) -> None:
        self._known = known
        self._rng = rng
        self._side = side
        kinds: tuple[tuple[float, Callable[[str], str]], ...] = (
            (0.15, self._neighbour),
            (0.20, self._dropped),
            (0.08, self._slipped_in),
            (0.09, self._doubled),
            (0.15, self._swapped),
            (0.24, self._by_ear),
            (0.05, self._parted),
            (0.02, self._accent_added),
        )
        self._kinds = [kind for _, kind in kinds]
        self._weights = [weight for weight, _ in kinds]

    def typed(self, text: str, *, errors_min: int = 0) -> str:
        """The query as it was typed; about four in ten stay as they are if `errors_min` is 0.

        It may stay clean although errors were asked for, where no word of it can take one.
        """
        rng = self._rng
        count = max(errors_min, rng.choices(range(4), _COUNTS)[0])
        if count == 0:
            return text
        words = text.split(" ")
        places = [at for at, word in enumerate(words) if self._may_err(word)]
        rng.shuffle(places)
        places.sort(key=lambda at: _is_plain(words[at]))  # accents and hyphens go first, and often
        if len(places) > count and rng.random() < 0.3:
            rng.shuffle(places)
        for at in places[:count]:
            words[at] = self._misspelt(words[at])
            if rng.random() < 0.05 and " " not in words[at] and words[at] not in self._known:
                words[at] = self._once(words[at]) or words[at]
        if rng.random() < 0.09 and len(words) > 1:
            self._join(words)
        return " ".join(words)

    def _may_err(self, word: str) -> bool:
        """Unknown words (brands made up, codes) and numbers stay; very short words as a rule."""
        if word not in self._known or not _WORD.match(word) or len(word) < _LETTERS_MIN:
            return False
        if is_held_word(word) != (self._side is Side.NEW_WORDS):
            return False
        return len(word) > _LETTERS_MIN or self._rng.random() < 0.25

    def _misspelt(self, word: str) -> str:
        for _ in range(_TRIES):
            form = self._once(word)
            if form is not None:
                return form
        return word

    def _once(self, word: str) -> str | None:
        """One error, or None where it made nothing new or something of the other side."""
        rng = self._rng
        if not _is_plain(word) and rng.random() < 0.8:
            form = _plain(word) if not word.isalpha() or rng.random() < 0.9 else word
        else:
            form = rng.choices(self._kinds, self._weights)[0](word)
        if form == word or not self._allowed(form):
            return None
        return form

    def _allowed(self, form: str) -> bool:
        pieces = form.split(" ")
        if form in self._known or all(piece in self._known for piece in pieces):
            return False
        if self._side is Side.NEW_WORDS:
            return True
        return is_held_form(form) == (self._side is Side.HELD_OUT)

    def _join(self, words: list[str]) -> None:
        """Loses the space between two words that could both be mistyped."""
        at = self._rng.randrange(len(words) - 1)
        joined = words[at] + words[at + 1]
        fit = self._may_err(words[at]) and self._may_err(words[at + 1])
        if fit and self._allowed(joined):
            words[at : at + 2] = [joined]

    # kinds of errors: a word in, a word out

    def _at(self, word: str, first_share: float = 0.15) -> int:
        """A place in the word; the first letter is mostly right."""
        if len(word) == 1 or self._rng.random() < first_share:
            return 0
        return self._rng.randrange(1, len(word))

    def _neighbour(self, word: str) -> str:
        at = self._at(word)
        near = NEIGHBOURS.get(word[at])
        return word[:at] + self._rng.choice(near) + word[at + 1 :] if near else word

    def _dropped(self, word: str) -> str:
        at = self._at(word, 0.04)
        return word[:at] + word[at + 1 :]

    def _slipped_in(self, word: str) -> str:
        at = self._at(word)
        near = NEIGHBOURS.get(word[at])
        if not near:
            return word
        behind = self._rng.random() < 0.5
        letter = self._rng.choice(near)
        return word[: at + behind] + letter + word[at + behind :]

    def _doubled(self, word: str) -> str:
        at = self._at(word)
        return word[:at] + word[at] + word[at:]

    def _swapped(self, word: str) -> str:
        at = self._rng.randrange(len(word) - 1)
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]

    def _by_ear(self, word: str) -> str:
        found = [pair for pair in _CONFUSIONS if pair[0] in word]
        if not found:
            return self._dropped(word)
        heard, written = self._rng.choice(found)
        places = [match.start() for match in re.finditer(heard, word)]
        at = self._rng.choice(places)
        return word[:at] + written + word[at + len(heard) :]

    def _parted(self, word: str) -> str:
        if len(word) < 6:
            return word
        at = self._rng.randrange(2, len(word) - 1)
        return f"{word[:at]} {word[at:]}"

    def _accent_added(self, word: str) -> str:
        places = [at for at, letter in enumerate(word) if letter in "aeiou"]
        if not places:
            return word
        at = self._rng.choice(places)
        marked = unicodedata.normalize(
            "NFC", word[at] + self._rng.choice("\u0300\u0301\u0302\u0308")
        )
        return word[:at] + marked + word[at + 1 :]


def _is_plain(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _plain(word: str) -> str:
    """Without accents, hyphens and apostrophes."""
    letters = unicodedata.normalize("NFD", word)
    return "".join(letter for letter in letters if letter.isalpha())
