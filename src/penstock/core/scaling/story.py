"""The decisions for a target, each with all that it was made from, to show why it scaled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from penstock.core.scaling.actions import ScalingDecision
from penstock.core.scaling.choose import PolicyRequest
from penstock.core.scaling.observed import LoadObserved

DECISIONS_KEPT: Final = 1_000


class ScalingStory:
    """The last decisions of one target; one that goes on is listed once, from its beginning."""

    def __init__(self) -> None:
        self._decisions: deque[ScalingDecision] = deque(maxlen=DECISIONS_KEPT)

    def tell(
        self,
        observed: LoadObserved,
        to: int,
        reason: str,
        trigger: str,
        wishes: tuple[PolicyRequest, ...],
    ) -> None:
        """`to`: the decided count; the present one, where nothing changes."""
        if to == observed.capacity and self._decisions:
            last = self._decisions[-1]
            same = (last.to, last.reason) == (to, reason) and last.was == last.to
            if same and _asks(last.wishes) == _asks(wishes):
                return
        self._decisions.append(
            ScalingDecision(
                at=observed.at,
                trigger=trigger,
                was=observed.capacity,
                to=to,
                reason=reason,
                observed=observed,
                wishes=wishes,
            )
        )

    def decisions(self) -> list[ScalingDecision]:
        """Oldest first."""
        return list(self._decisions)


def _asks(wishes: Iterable[PolicyRequest]) -> list[tuple[str, int | None, str]]:
    return [(one.policy, one.capacity, one.reason) for one in wishes]
