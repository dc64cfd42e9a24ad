"""What one variant has cost: since the start, in the last hour, and per answer.

Idle time is paid by the answers around it. For the CloudWatch series, what an idle interval cost is
carried over to the next answers, so that the average of a period is all its cost divided by all
that it answered. The gauges divide the last hour's cost by the last hour's answers. Requests that
failed or were refused answered nothing: the others bear them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.utilization.cost import Charge

RECENT_S: Final = 3600.0
_SLICE_S: Final = 60.0
_TOKENS_PER_PRICE: Final = 1000.0


class PerUnit(NamedTuple):
    """Of the last hour; None where it answered nothing."""

    dollars_per_request: float | None
    joules_per_request: float | None
    dollars_per_thousand_tokens: float | None
    joules_per_thousand_tokens: float | None


class _Slice:
    """One minute."""

    __slots__ = ("answers", "dollars", "joules", "start", "tokens")

    def __init__(self, start: float) -> None:
        self.start = start
        self.joules = 0.0
        self.dollars = 0.0
        self.answers = 0
        self.tokens = 0.0


class VariantCost:
    """One variant's account.

    Attributes:
        joules: source -> joules since the start.
        dollars: since the start.
        dollars_by_type: the same of the instances of each type.
    """

    __slots__ = ("_answers", "_due", "_slices", "_tokens", "dollars", "dollars_by_type", "joules")

    def __init__(self) -> None:
        self.joules: dict[str, float] = {}
        self.dollars = 0.0
        self.dollars_by_type: dict[str, float] = {}
        self._answers = 0  #: all that were answered until the last `settle`
        self._tokens = 0.0
        #: name -> what the answers to come have to bear
        self._due = {"CostPerRequest": 0.0, "EnergyPerRequest": 0.0,
                     "CostPerThousandTokens": 0.0, "EnergyPerThousandTokens": 0.0}  # fmt: skip
        self._slices: deque[_Slice] = deque()

    def settle(
        self, charges: list[Charge], *, answers: int, tokens: float, now: float
    ) -> list[tuple[str, str, StatisticSet]]:
        """Takes an interval's charges; returns (metric, source or "", samples) to be published.

        Args:
            answers, tokens: all since the start; tokens in and out.
            now: wall s.
        """
        dollars = sum(one.dollars for one in charges)
        joules = sum(one.joules for one in charges)
        answered, self._answers = max(0, answers - self._answers), answers
        made, self._tokens = max(0.0, tokens - self._tokens), tokens
        self.dollars += dollars
        for one in charges:
            self.joules[one.source] = self.joules.get(one.source, 0.0) + one.joules
            before = self.dollars_by_type.get(one.instance_type, 0.0)
            self.dollars_by_type[one.instance_type] = before + one.dollars
        piece = self._slice(now)
        piece.dollars += dollars
        piece.joules += joules
        piece.answers += answered
        piece.tokens += made
        published = [
            ("Cost", "", StatisticSet.of(dollars)),
            ("Energy", "", StatisticSet.of(joules)),
        ]
        for source in sorted({one.source for one in charges}):
            part = sum(one.joules for one in charges if one.source == source)
            published.append(("Energy", source, StatisticSet.of(part)))
        for name, amount, units in (
            ("CostPerRequest", dollars, answered),
            ("EnergyPerRequest", joules, answered),
            ("CostPerThousandTokens", dollars, made / _TOKENS_PER_PRICE),
            ("EnergyPerThousandTokens", joules, made / _TOKENS_PER_PRICE),
        ):
            self._due[name] += amount
            if units > 0:
                due, self._due[name] = self._due[name], 0.0
                each = due / units
                published.append((name, "", StatisticSet.from_values(units, due, each, each)))
        return published

    def recent(self) -> PerUnit:
        """Cost and energy per unit over the last hour, as of the last `settle`."""
        dollars = sum(piece.dollars for piece in self._slices)
        joules = sum(piece.joules for piece in self._slices)
        answers = sum(piece.answers for piece in self._slices)
        thousands = sum(piece.tokens for piece in self._slices) / _TOKENS_PER_PRICE
        return PerUnit(
            dollars / answers if answers else None,
            joules / answers if answers else None,
            dollars / thousands if thousands else None,
            joules / thousands if thousands else None,
        )

    def _slice(self, now: float) -> _Slice:
        slices = self._slices
        if not slices or not 0.0 <= now - slices[-1].start < _SLICE_S:
            slices.append(_Slice(now))
        # A clock that was set back leaves slices of the future: they go at once.
        while slices and not now - RECENT_S < slices[0].start <= now:
            slices.popleft()
        return slices[-1]
