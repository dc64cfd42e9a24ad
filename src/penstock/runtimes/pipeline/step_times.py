"""Durations of a pipeline's steps, counted as calls end, to find out which one is slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

#: Weight of the latest call in the moving average: a deployment's first calls must fade.
_WEIGHT: Final = 1 / 64


class _StepTime:
    __slots__ = ("calls", "failed", "longest_s", "recent_s", "total_s")

    def __init__(self) -> None:
        self.calls = 0
        self.failed = 0
        self.total_s = 0.0
        self.recent_s = 0.0  #: moving average, s
        self.longest_s = 0.0

    def add(self, took_s: float) -> None:
        self.calls += 1
        self.total_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        weight = max(_WEIGHT, 1 / self.calls)
        self.recent_s += (took_s - self.recent_s) * weight


class StepTimes:
    def __init__(self, names: Iterable[str]) -> None:
        self._steps = {name: _StepTime() for name in names}

    def ended(self, name: str, took_s: float) -> None:
        self._steps[name].add(took_s)

    def failed(self, name: str, took_s: float) -> None:
        self._steps[name].failed += 1
        self._steps[name].add(took_s)

    def told(self) -> dict[str, dict[str, Any]]:
        """JSON-ready, by step; times in ms."""
        return {
            name: {
                "calls": step.calls,
                "failed": step.failed,
                "mean_ms": round(step.total_s / step.calls * 1e3, 3) if step.calls else None,
                "recent_ms": round(step.recent_s * 1e3, 3) if step.calls else None,
                "longest_ms": round(step.longest_s * 1e3, 3) if step.calls else None,
            }
            for name, step in self._steps.items()
        }
