"""What the benchmarks compute from what they measured: percentiles, ratios, savings, choices.

Pure functions, each with literal cases in `tests/bench/test_arithmetic.py`. A ratio is of two
things measured in one round; what is told of several rounds is their median.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from penstock.sim.outcome import percentile

__all__ = [
    "alternated", "best", "capacity", "keeps_level", "long_enough", "median_ratio", "percentile",
    "percentile_ms", "ratios", "resampled_range", "savings", "share_equal", "steps_of", "worst",
]  # fmt: skip

Case = TypeVar("Case", bound=Hashable)
Round = TypeVar("Round")


def percentile_ms(ascending_s: list[float], fraction: float) -> float:
    """By nearest rank, as everywhere in Penstock; 0 of none."""
    return percentile(ascending_s, fraction) * 1e3


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Of each round. ValueError where the rounds are not as many."""
    return [one / other for one, other in zip(above, below, strict=True)]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the rounds' own ratios."""
    return statistics.median(ratios(above, below))


def resampled_range(
    rounds: Sequence[Round], figure: Callable[[Sequence[Round]], float], *, times: int = 200
) -> tuple[float, float]:
    """What a figure over all rounds would have been with other rounds of the same kind: its 5th and
    95th percentile over rounds drawn anew with replacement (the bootstrap; Efron, 1979)."""
    rng = random.Random(1)
    found = sorted(figure(rng.choices(rounds, k=len(rounds))) for _ in range(times))
    return percentile(found, 0.05), percentile(found, 0.95)


def savings(rates: Sequence[float], of_peer: Sequence[float]) -> list[float]:
    """Share of the peer's cost per answer that is saved, by round; below 0 where ours costs more.

    Both have the whole machine while they are measured, so an answer costs 1 / (answers per s).
    """
    return [1 - peer / rate for rate, peer in zip(rates, of_peer, strict=True)]


def best(samples: Mapping[Case, Sequence[float]]) -> Case:
    """The setting with the highest median; the first of equals. ValueError where none is left."""
    return max(samples, key=lambda case: statistics.median(samples[case]))


def worst(by_case: Mapping[Case, float]) -> tuple[Case, float]:
    """The lowest ratio and where it was seen: what a headline may claim."""
    case = min(by_case, key=lambda each: by_case[each])
    return case, by_case[case]


def keeps_level(*, sent: int, answered: int, p99_ms: float, level_ms: float) -> bool:
    """Whether one run of arrivals was within its level: every request answered, P99 not above."""
    return sent > 0 and answered == sent and p99_ms <= level_ms


def capacity(kept: Mapping[float, bool]) -> float:
    """The highest rate up to which every rate that was tried kept the level; 0 if none did."""
    highest = 0.0
    for rate in sorted(kept):
        if not kept[rate]:
            break
        highest = rate
    return highest


def steps_of(rate: float, steps: int) -> list[float]:
    """Equal steps up to `rate`, ascending."""
    return [rate * step / steps for step in range(1, steps + 1)]


def long_enough(seconds: float, *, rows: int, rate: float) -> float:
    """Seconds of a run in which at least 30 batches of `rows` end at `rate` rows/s.

    A run begins with nothing on its way and ends with batches that are not counted: half of one is
    missing on average, which in few batches would be held against whoever runs large ones.
    """
    return max(seconds, 30 * rows / rate) if rate > 0 else seconds


def alternated(names: Sequence[Case], turn: int) -> list[Case]:
    """The order of one round: every other round goes backwards, so nobody is always first."""
    return list(names) if turn % 2 == 0 else list(reversed(names))


def share_equal(answers: Sequence[object], wanted: Sequence[object]) -> float:
    """ValueError where the answers are not as many, or none."""
    if not wanted:
        raise ValueError("no answers to compare")
    same = [one == other for one, other in zip(answers, wanted, strict=True)]
    return sum(same) / len(same)
