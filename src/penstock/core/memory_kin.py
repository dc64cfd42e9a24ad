"""What models of one kind have shown of each other's memory: an estimate that learns.

A rule of thumb (`memory_need`) is for a model that was never loaded on this machine. A host of many
models loads one after the other, and those of one kind (runtime) take about the same multiple of
their files: so what the last ones really took corrects the rule for the next. The largest of the
last few counts, with a little headroom: too little would be memory that is not there.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Loads of a kind that are remembered.
_LOADS: Final = 16
_HEADROOM: Final = 1.1
#: A rule is never corrected by more: what lies beyond was not the model.
_FACTOR_MIN, _FACTOR_MAX = 0.25, 8.0


class KinMemory:
    def __init__(self) -> None:
        self._ratios: dict[str, deque[float]] = {}

    def learn(self, kind: str, *, estimated_bytes: int, peak_bytes: int) -> None:
        """A model of that kind took `peak_bytes` at its height; the rule said `estimated_bytes`."""
        if estimated_bytes > 0:
            ratios = self._ratios.setdefault(kind, deque(maxlen=_LOADS))
            ratios.append(peak_bytes / estimated_bytes)

    def corrected(self, kind: str, estimated_bytes: int) -> int:
        """What to expect of a model of that kind that was never loaded."""
        ratios = self._ratios.get(kind)
        if not ratios:
            return estimated_bytes
        factor = min(max(max(ratios) * _HEADROOM, _FACTOR_MIN), _FACTOR_MAX)
        return int(estimated_bytes * factor)
