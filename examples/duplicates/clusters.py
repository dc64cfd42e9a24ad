"""From answers about pairs to groups of duplicates, and how right they are.

Groups are the connected parts of the graph whose edges are the pairs that the model is sure of
enough (union-find, with path halving and union by size, as in Tarjan and van Leeuwen 1984).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: How sure the model has to be. A wrong edge joins two whole groups, so it is well above a half.
THRESHOLD = 0.8


class UnionFind:
    """Which of the numbers below `count` belong together."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))
        self._size = [1] * count

    def find(self, one: int) -> int:
        """The number that stands for the group of `one`."""
        parent = self._parent
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    def join(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        if one == other:
            return
        if self._size[one] < self._size[other]:
            one, other = other, one
        self._parent[other] = one
        self._size[one] += self._size[other]


@dataclass(frozen=True, slots=True)
class Judged:
    """Pairs that are said to be duplicates, against those that are."""

    right: int
    wrong: int  #: said, and not so
    missed: int  #: so, and not said

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def sureness(answer: Mapping[str, Any]) -> float:
    """How sure the model is, from 0 to 1, that the two are one product."""
    head = answer["duplicate"]
    return float(head["score"] if head["label"] == "yes" else 1.0 - head["score"])


def groups_of(
    count: int, pairs: Iterable[tuple[int, int]], scores: Iterable[float], threshold: float
) -> list[list[int]]:
    """Groups of two or more, the largest first."""
    joined = UnionFind(count)
    for (one, other), score in zip(pairs, scores, strict=True):
        if score >= threshold:
            joined.join(one, other)
    members: dict[int, list[int]] = defaultdict(list)
    for number in range(count):
        members[joined.find(number)].append(number)
    found = [group for group in members.values() if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), group[0]))


def pairs_within(groups: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Every two of one group, the lower number first."""
    return {
        (min(one, other), max(one, other))
        for group in groups
        for at, one in enumerate(group)
        for other in group[at + 1 :]
    }


def judged(said: set[tuple[int, int]], true: set[tuple[int, int]]) -> Judged:
    return Judged(len(said & true), len(said - true), len(true - said))
