"""Lane events of a runtime on their way to its copy, which is made after the runtime."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError
from penstock.instance.copy import Copy


class LaneEvents:
    """A `LaneListener`. What is said before `attach` is passed on then."""

    def __init__(self) -> None:
        self.copy: Copy | None = None
        self._early: list[tuple[str, tuple[Any, ...]]] = []

    def _pass_on(self, name: str, *given: Any) -> None:
        if self.copy is None:
            self._early.append((name, given))
        else:
            getattr(self.copy, name)(*given)

    def attach(self, copy: Copy) -> None:
        self.copy = copy
        for name, given in self._early:
            getattr(copy, name)(*given)

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._pass_on("lane_lost", lane, error)

    def lane_ready(self, lane: int) -> None:
        self._pass_on("lane_ready", lane)

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self._pass_on("lane_failed", lane, error)
