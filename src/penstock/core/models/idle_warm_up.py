"""Which shapes of loaded models are run before a caller brings them, and when: in idle moments.

A compiler specialises its kernels for each shape that it meets. A model that is loaded because of a
call answers first and is warmed up afterwards, by these rules:

* A run begins only when nothing is in flight or on its way, and nothing was for `quiet_s`.
* Only one run at a time: so a request waits for at most one run.
* After a run that took longer than `run_s_max` the model's larger shapes are left to their callers:
  there kernels are a small part of a run's time, and a request would wait long for the run.
* The model that was called last goes first, with its smallest shape.
* Kernels take memory. Where little is left, none is used for callers who may never come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

IDLE: Final = "idle"


class LaneShape(NamedTuple):
    """What a lane runs: `rows` texts, padded to `width` tokens each."""

    lane: int
    rows: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleWarmUpSpec:
    #: s without requests before a run: callers of the same moment have come and gone
    quiet_s: float = 0.5
    run_s_max: float = 0.1  #: s; about the longest time in which one shape's kernels are made
    free_share_min: float = 0.125  #: free part of the models' memory that a run needs


@dataclass(frozen=True, slots=True)
class WarmUpRun:
    model: str
    shape: LaneShape
    reason: str = IDLE


class IdleWarmUp:
    """The runs that are left of each model. Report the result of a run by `ran`."""

    def __init__(self, spec: IdleWarmUpSpec) -> None:
        self._spec = spec
        self._left: dict[str, list[LaneShape]] = {}  #: the model called longest ago comes first

    def loaded(self, model: str, shapes: Sequence[LaneShape]) -> None:
        """`shapes`: all that traffic can bring."""
        self.gone(model)
        if shapes:
            self._left[model] = sorted(
                shapes, key=lambda one: (one.rows * one.width, one.rows, one.lane)
            )

    def gone(self, model: str) -> None:
        self._left.pop(model, None)

    def called(self, model: str) -> None:
        if model in self._left:
            self._left[model] = self._left.pop(model)

    def ran(self, run: WarmUpRun, run_s: float) -> None:
        """The run took `run_s`."""
        left = self._left.get(run.model)
        if left is None or run_s <= self._spec.run_s_max:
            return
        _, rows, width = run.shape
        left[:] = [one for one in left if one.rows < rows or one.width < width]
        if not left:
            del self._left[run.model]

    def next_run(self, *, quiet_since: float, free_share: float, now: float) -> WarmUpRun | None:
        """The run to begin now; it is no longer left afterwards.

        Args:
            quiet_since: when something was last in flight or on its way; inf: something still is.
            free_share: free part of the memory that models may take.
            now: seconds.
        """
        at = self.next_at(quiet_since=quiet_since)
        if now < at or free_share < self._spec.free_share_min:
            return None
        model = next(reversed(self._left))
        left = self._left[model]
        shape = left.pop(0)
        if not left:
            del self._left[model]
        return WarmUpRun(model, shape)

    def next_at(self, *, quiet_since: float) -> float:
        """When to ask without news; inf: nothing is left, or a request is being served."""
        return quiet_since + self._spec.quiet_s if self._left else inf

    def snapshot(self) -> dict[str, int]:
        """Number of shapes that are left, by model."""
        return {model: len(left) for model, left in self._left.items()}
