"""What models of one kind have shown of each other's memory: an estimate that learns.

A rule of thumb (`memory_need`) is for a model that was never loaded on this machine. A host of many
models loads one after the other, and those of one kind (runtime) and of about one size take about
the same: so what the last ones really took corrects the rule for the next. Of models of another
size they tell less, only what came on top of the rule. The largest of the last few counts, with a
little headroom: too little would be memory that is not there.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Loads of a kind that are remembered.
_LOADS: Final = 16
_HEADROOM: Final = 1.1
#: Estimates that differ by less are of models of one size.
_ALIKE: Final = 2.0


class KinMemory:
    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[int, int]]] = {}

    def learn(self, kind: str, *, estimated_bytes: int, peak_bytes: int) -> None:
        """A model of that kind took `peak_bytes` at its height; the rule said `estimated_bytes`."""
        seen = self._seen.setdefault(kind, deque(maxlen=_LOADS))
        seen.append((estimated_bytes, peak_bytes))

    def corrected(self, kind: str, estimated_bytes: int) -> int:
        """What to expect of a model of that kind that was never loaded."""
        seen = self._seen.get(kind)
        if not seen:
            return estimated_bytes
        alike = [
            peak
            for estimated, peak in seen
            if estimated_bytes < _ALIKE * estimated and estimated < _ALIKE * estimated_bytes
        ]
        if alike:
            return int(_HEADROOM * max(alike))
        on_top = max(peak - estimated for estimated, peak in seen)
        return estimated_bytes + max(0, on_top)
