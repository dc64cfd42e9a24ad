"""Where among the typed bytes each byte of the right answer is: two more things to learn from.

Serves `train.py`. A decoder that is told its answer alone needs long to find out where to look. So
two heads of it are told (guided alignment, Chen et al., 2016), and the encoder is asked, at the
letter where a letter of the answer belongs, which letter that is. The served model has nothing of
this.
"""

from __future__ import annotations


def hints(typed: bytes, meant: bytes) -> list[int]:
    """For each byte of `meant` and for its end: the place in `typed` (its length for the end).

    The alignment with the fewest edits (Wagner and Fischer, 1974); a byte that was left out is
    looked for where the next one is.
    """
    first = 0
    shorter = min(len(typed), len(meant))
    while first < shorter and typed[first] == meant[first]:
        first += 1
    last = 0
    while last < shorter - first and typed[-1 - last] == meant[-1 - last]:
        last += 1
    inner = _aligned(typed[first : len(typed) - last], meant[first : len(meant) - last])
    shift = len(typed) - len(meant)
    return [
        *range(first),
        *(first + place for place in inner),
        *(at + shift for at in range(len(meant) - last, len(meant) + 1)),
    ]


def _aligned(typed: bytes, meant: bytes) -> list[int]:
    width = len(typed) + 1
    costs = [list(range(width))]
    for letter in meant:
        above = costs[-1]
        row = [above[0] + 1]
        for at in range(1, width):
            changed = above[at - 1] + (typed[at - 1] != letter)
            row.append(min(changed, above[at] + 1, row[-1] + 1))
        costs.append(row)
    places = [0] * len(meant)
    at, left = width - 1, len(meant)
    while left:
        if at and costs[left][at] == costs[left - 1][at - 1] + (typed[at - 1] != meant[left - 1]):
            at, left = at - 1, left - 1
            places[left] = at
        elif at and costs[left][at] == costs[left][at - 1] + 1:
            at -= 1
        else:
            left -= 1
            places[left] = at
    return places
