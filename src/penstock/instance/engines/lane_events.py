"""What a runtime tells of its lanes, on its way to a copy that is made after the runtime."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError
from penstock.runtimes.base import LaneListener


class LaneEvents:
    """A `LaneListener` that passes on to another; what comes before there is one is kept."""

    def __init__(self) -> None:
        self._to: LaneListener | None = None
        self._early: list[tuple[str, tuple[Any, ...]]] = []

    def attach(self, to: LaneListener) -> None:
        self._to = to
        for name, given in self._early:
            getattr(to, name)(*given)

    def _pass_on(self, name: str, *given: Any) -> None:
        if self._to is None:
            self._early.append((name, given))
        else:
            getattr(self._to, name)(*given)

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._pass_on("lane_lost", lane, error)

    def lane_ready(self, lane: int) -> None:
        self._pass_on("lane_ready", lane)

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self._pass_on("lane_failed", lane, error)
