"""Where in the typed text each piece of the right answer begins: two more things to learn from.

Serves `train.py`. A decoder that is told its answer alone needs long to find out where to look. So
two heads of it are told (guided alignment, Chen et al., 2016), and the encoder is asked, at the
letter where a piece of the answer begins, which piece that is. The served model has nothing of
this. Words are matched by their order, letters in proportion; a query that lost or gained a space
gets no hints.
"""

from __future__ import annotations

from collections.abc import Sequence

_SPACE = "\u2581"


def hints(typed: str, meant: str, pieces: Sequence[str]) -> list[int]:
    """For each piece the place of its first letter among the typed ones, the space before the first
    word counted; empty where there is no telling.

    Args:
        pieces: the tokens of `meant`, as they are written, without the end.
    """
    if "".join(pieces) != _SPACE + meant.replace(" ", _SPACE):
        return []  # bytes, or another normal form
    typed_words, meant_words = typed.split(" "), meant.split(" ")
    if len(typed_words) != len(meant_words):
        return []
    places: list[int] = []
    start, word, done = 0, -1, 0
    for piece in pieces:
        if piece.startswith(_SPACE):
            start += len(typed_words[word]) + 1 if word >= 0 else 0
            word, done = word + 1, 0
        share = done / (len(meant_words[word]) + 1)
        places.append(start + int(share * (len(typed_words[word]) + 1)))
        done += len(piece)
    return places
