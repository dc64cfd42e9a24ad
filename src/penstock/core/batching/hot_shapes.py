"""Which input shapes of one model deserve a graph compiled for them alone, within a bound.

A graph that accepts any shape has a cost: it works out the shapes of all its nodes again whenever
the input's change, and its kernels are less specialised. For small models under mixed traffic that
takes as long as the run itself. A graph of one shape costs memory and a compilation, so only shapes
that come often get one: at the 32nd run, one at a time, and `graphs_max` at most. Once all are
taken, a shape replaces the rarest of them if it comes four times as often. All counts halve every
4096 runs, so that old traffic does not decide for ever.

A graph that another copy of the model compiled costs little more than its memory. So the shapes of
these are restored when a model is loaded, without a run; what comes often takes their places.

It knows shapes as keys and nothing of graphs; the compiler reports back by `built` or `failed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Shape = tuple[tuple[int, ...], ...]  #: shape of every input, in the model's order

_HOT_RUNS = 32
_HOTTER = 4
_HALVE_EVERY_RUNS = 4096
_KNOWN_MAX = 512  #: number of shapes counted, as inputs of tensor models may have any shape


class HotShapes:
    """Counts runs by shape. Every call is cheap: one is made per batch."""

    __slots__ = ("_building", "_built", "_counts", "_graphs_max", "_runs", "_unbuildable")

    def __init__(self, graphs_max: int) -> None:
        self._graphs_max = graphs_max
        self._counts: dict[Shape, int] = {}
        self._built: set[Shape] = set()
        self._building: Shape | None = None
        self._unbuildable: set[Shape] = set()
        self._runs = 0

    def ran(self, shape: Shape) -> Shape | None:
        """A batch of this shape runs. Returns the shape whose graph is to be compiled now, if any.

        The caller must then call `built` or `failed`; until then no other shape is returned.
        """
        counts = self._counts
        count = counts[shape] = counts.get(shape, 0) + 1
        self._runs += 1
        if self._runs >= _HALVE_EVERY_RUNS:
            self._halve()
        if count < _HOT_RUNS or self._building is not None or not self._deserves(shape):
            return None
        self._building = shape
        return shape

    def following(self) -> Shape | None:
        """After `built` or `failed`: the shape whose graph is to be compiled next, without waiting
        for its next run; for the caller as from `ran`."""
        counts = self._counts
        if self._building is None:
            hot = [shape for shape, count in counts.items() if count >= _HOT_RUNS]
            for shape in sorted(hot, key=lambda shape: (-counts[shape], shape)):
                if self._deserves(shape):
                    self._building = shape
                    return shape
        return None

    def expect(self, shapes: Sequence[Shape]) -> Shape | None:
        """These will come; the first soonest. Returns the shape whose graph is to be compiled now,
        if any, as `ran` does."""
        for place, shape in enumerate(reversed(shapes)):
            self._counts[shape] = max(self._counts.get(shape, 0), _HOT_RUNS + place)
        return self.following()

    def allow(self, graphs_max: int) -> list[Shape]:
        """From now on at most so many graphs. Returns the shapes whose graphs go."""
        self._graphs_max = graphs_max
        ordered = sorted(self._built, key=lambda shape: (self._counts.get(shape, 0), shape))
        gone = ordered[: max(0, len(ordered) - graphs_max)]
        self._built.difference_update(gone)
        return gone

    def restore(self, shape: Shape) -> bool:
        """Whether a graph of this shape, which another copy compiled, has a place. It takes it."""
        if shape in self._built or len(self._built) >= self._graphs_max:
            return False
        self._built.add(shape)
        return True

    def _deserves(self, shape: Shape) -> bool:
        if shape in self._built or shape in self._unbuildable:
            return False
        if len(self._built) < self._graphs_max:
            return True
        rarest = self._rarest()
        if rarest is None:
            return False
        counts = self._counts
        return counts[shape] >= _HOTTER * max(_HOT_RUNS, counts.get(rarest, 0))

    def built(self, shape: Shape) -> Shape | None:
        """The graph of `shape` is ready. Returns the shape whose graph it replaces, if any."""
        assert shape == self._building, f"{shape} was not asked for"
        self._building = None
        replaced = self._rarest() if len(self._built) >= self._graphs_max else None
        if replaced is not None:
            self._built.remove(replaced)
        self._built.add(shape)
        return replaced

    def failed(self, shape: Shape) -> None:
        """The graph of `shape` cannot be compiled: it is not returned by `ran` again."""
        assert shape == self._building, f"{shape} was not asked for"
        self._building = None
        self._unbuildable.add(shape)

    def snapshot(self) -> list[dict[str, Any]]:
        """The shapes that have a graph of their own, the most frequent first; JSON-ready."""
        ordered = sorted(self._built, key=lambda shape: (-self._counts.get(shape, 0), shape))
        return [
            {"shape": [list(sizes) for sizes in shape], "runs": self._counts.get(shape, 0)}
            for shape in ordered
        ]

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself; for tests and the twin."""
        assert len(self._built) <= self._graphs_max, "more graphs than are allowed"
        assert self._building not in self._built, "a graph is compiled twice"
        assert len(self._counts) <= _KNOWN_MAX + _HALVE_EVERY_RUNS, "counts grow without end"

    def _rarest(self) -> Shape | None:
        if not self._built:
            return None
        return min(self._built, key=lambda shape: (self._counts.get(shape, 0), shape))

    def _halve(self) -> None:
        self._runs = 0
        halved = {shape: count // 2 for shape, count in self._counts.items() if count > 1}
        kept = sorted(halved, key=lambda shape: (-halved[shape], shape))[:_KNOWN_MAX]
        self._counts = {shape: halved[shape] for shape in kept}
