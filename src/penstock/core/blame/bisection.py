"""Which items of a batch that failed are to blame: found by halving, in O(log n) runs for each.

A batch fails as a whole: the model raises, or its worker dies, and nothing says which item did it.
So the batch is halved and the halves are run. Where one half passed, the other must hold the cause
and is halved at once: a part that is known to fail is not run again, for a failing run may cost a
worker. An item is refused only after it has failed by itself, so that the reason is its own.

One machine per failed batch; its parts run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


def cut(items: Sequence[T], parts_max: int) -> tuple[tuple[T, ...], ...]:
    """Splits suspects, in their order, into at most `parts_max` groups of about the same size."""
    size = max(1, -(-len(items) // parts_max))
    return tuple(tuple(items[at : at + size]) for at in range(0, len(items), size))


class RunPart(NamedTuple):
    """Run these items, then call `passed` or `failed`."""

    items: tuple[int, ...]
    reason: str  #: half-of-failed | rest-of-failed | alone


class Refuse(NamedTuple):
    """The item has failed by itself, with the error of the run that has just ended."""

    item: int
    reason: str  #: failed-alone


Action = RunPart | Refuse


class _Part(NamedTuple):
    items: tuple[int, ...]
    suspect: bool  #: at least one of its items fails, if runs can be repeated


class Bisection:
    """The search in a batch that failed whole. Call `begin` first; it is over without `RunPart`."""

    def __init__(self, items: Sequence[int]) -> None:
        self._left = [_Part(tuple(items), True)]  #: parts to be run, the next one last
        self._running: tuple[int, ...] = ()
        self._sibling: tuple[int, ...] = ()  #: the other half of the part that runs

    def begin(self) -> list[Action]:
        items = self._left[-1].items
        if len(items) == 1:
            return [Refuse(items[0], "failed-alone")]
        return self._next()

    def passed(self) -> list[Action]:
        """The part that ran last is answered."""
        if self._sibling:
            self._left.append(_Part(self._sibling, True))
        return self._next()

    def failed(self) -> list[Action]:
        """The part that ran last has failed, too."""
        if self._sibling:
            self._left.append(_Part(self._sibling, False))
        if len(self._running) > 1:
            self._left.append(_Part(self._running, True))
            return self._next()
        return [Refuse(self._running[0], "failed-alone"), *self._next()]

    def _next(self) -> list[Action]:
        if not self._left:
            return []
        items, suspect = self._left.pop()
        if len(items) == 1:
            return [self._run(items, (), "alone")]
        if not suspect:
            return [self._run(items, (), "rest-of-failed")]
        half, sibling = cut(items, 2)
        return [self._run(half, sibling, "half-of-failed" if len(half) > 1 else "alone")]

    def _run(self, items: tuple[int, ...], sibling: tuple[int, ...], reason: str) -> RunPart:
        self._running, self._sibling = items, sibling
        return RunPart(items, reason)

    def check_invariants(self) -> None:
        waiting = [item for part in self._left for item in part.items]
        known = [*self._running, *self._sibling, *waiting]
        assert len(known) == len(set(known)), "an item is in two parts"
