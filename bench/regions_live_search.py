"""The search of `regions_live` for rates, and what is claimed of what it found. Pure.

All ways are probed in step, each at a level of its own; a level is an index of a list of rates. One
more fleet, sent to as `pushing` is, runs beside them at the levels of the others: P99s are compared
where both ways were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Walk:
    """The highest level that keeps the promise, from a guess on: first by steps that double, then
    by halving what is left. It is taken that whatever is below a level that keeps it does too."""

    def __init__(self, guess: int, levels: int) -> None:
        self._guess = guess
        self._step = 1
        self.low = -1  #: the highest level that kept it; -1: none has
        self.high = levels  #: the lowest that did not; `levels`: none has failed
        self._levels = levels
        self._failed = self._kept = False

    @property
    def found(self) -> int | None:
        """None: not yet, or not even the lowest level keeps it."""
        return self.low if self.next() is None and self.low >= 0 else None

    def next(self) -> int | None:
        """The level to probe; None: it is known which is the highest."""
        if self.high - self.low <= 1:
            return None
        if not self._kept and not self._failed:
            return self._guess
        if not self._failed:
            return min(self.low + self._step, self._levels - 1)
        if not self._kept:
            return max(self.high - self._step, 0)
        return (self.low + self.high) // 2

    def tell(self, level: int, *, kept: bool) -> None:
        """What came of the probe at `next()`."""
        first = not (self._kept or self._failed)
        before = self._kept, self._failed
        if kept:
            self.low, self._kept = max(self.low, level), True
        else:
            self.high, self._failed = min(self.high, level), True
        if not first and before == (self._kept, self._failed):
            self._step *= 2  # the same once more, in the same direction

    @property
    def likely(self) -> int:
        """The level that will have been the highest, as far as one can tell."""
        coming = self.next()
        return self.low if self.low >= 0 or coming is None else coming


def plan(
    walks: Mapping[str, Walk], pushing: str, beside: str, measured: Sequence[int]
) -> dict[str, int]:
    """The levels of the next round, by fleet; empty: nothing is left to be asked.

    Args:
        walks: of each way.
        pushing: the way that others are compared with.
        beside: the fleet that is sent to as `pushing`'s is.
        measured: the levels at which one of the two was probed.
    """
    levels = {name: level for name, walk in walks.items() if (level := walk.next()) is not None}
    free = [beside] if pushing in levels else [beside, pushing]
    known = {*measured, *(levels[name] for name in (pushing,) if name in levels)}
    for name, walk in walks.items():
        if free and name != pushing and walk.likely not in known and walk.likely >= 0:
            levels[free.pop(0)] = walk.likely
            known.add(walk.likely)
    return levels


@dataclass(slots=True)
class Found:
    """What came of a search, live or in the twin."""

    level: dict[str, int | None]  #: by way, the highest that kept the promise; None: not found
    p99_s: dict[str, dict[int, float]] = field(default_factory=dict)  #: by way and level


def compared(
    found: Found, rates: Sequence[float], pushing: str, others: Sequence[str]
) -> dict[str, float | None]:
    """`vs_X`: the highest rate of pushing over that of X; `vs_X_p99`: at the highest rate of X, its
    P99 over that of pushing. None: one of the two is not known."""
    ratios: dict[str, float | None] = {}
    own = found.level[pushing]
    for name in others:
        ratios[f"vs_{name}"] = ratios[f"vs_{name}_p99"] = None
        level = found.level[name]
        if level is None:
            continue
        if own is not None:
            ratios[f"vs_{name}"] = round(rates[own] / rates[level], 2)
        theirs, ours = (found.p99_s.get(each, {}).get(level) for each in (name, pushing))
        if theirs is not None and ours:
            ratios[f"vs_{name}_p99"] = round(theirs / ours, 2)
    return ratios


def agreement(
    live: Mapping[str, float | None], twin: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Each live figure over the twin's; None where one of them is not known."""
    ratios: dict[str, float | None] = {}
    for name, value in live.items():
        other = twin.get(name)
        ratios[name] = round(value / other, 3) if value is not None and other else None
    return ratios


def claimed(
    figures: Mapping[str, float | None], late_s: Sequence[float], late_s_max: float
) -> tuple[dict[str, float | None], str]:
    """The figures, and why they are not claimed (empty: they are): then they are None.

    `late_s`: of each round that counts, the P99 of how late its requests left. Load that leaves
    late is not the load that was asked for, of any of the ways.
    """
    latest = max(late_s, default=0.0)
    if latest <= late_s_max:
        return dict(figures), ""
    why = f"the load left {latest * 1e3:.0f} ms late (P99), more than {late_s_max * 1e3:.0f} ms"
    return dict.fromkeys(figures), why
