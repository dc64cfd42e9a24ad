"""What models of one kind have shown of each other's memory: an estimate that learns.

A rule of thumb (`memory_need`) is for a model that was never loaded on this machine. A host of many
models loads one after the other, and those of one kind (runtime) and of about one size take about
the same: so what the last ones really took corrects the rule for the next. Of models of another
size they tell less, only what came on top of the rule. The largest of the last few counts, with a
little headroom: too little would be memory that is not there.

Models whose files have the same size to a few parts in a hundred are mostly one graph with other
weights. What such a model takes is *known* before it was ever loaded.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

#: Loads of a kind that are remembered.
_LOADS: Final = 16
_HEADROOM: Final = 1.1
#: Estimates that differ by less are of models of one size.
_ALIKE: Final = 2.0
#: Estimates that differ by less are of one size: names and lengths of labels differ, weights don't.
_SAME: Final = 1.05


class _Seen(NamedTuple):
    estimated_bytes: int
    peak_bytes: int
    kept_bytes: int


class KinMemory:
    def __init__(self) -> None:
        self._seen: dict[str, deque[_Seen]] = {}

    def learn(
        self, kind: str, *, estimated_bytes: int, peak_bytes: int, kept_bytes: int = 0
    ) -> None:
        """A model of that kind took `peak_bytes` at its height and kept `kept_bytes`; the rule said
        `estimated_bytes`."""
        seen = self._seen.setdefault(kind, deque(maxlen=_LOADS))
        seen.append(_Seen(estimated_bytes, peak_bytes, kept_bytes))

    def kept(self, kind: str, estimated_bytes: int) -> int | None:
        """What models of that very size kept, the largest of them; None: there was none."""
        return max(
            (one.kept_bytes for one in self._like(kind, estimated_bytes, _SAME)), default=None
        )

    def corrected(self, kind: str, estimated_bytes: int) -> int:
        """What to expect of a model of that kind that was never loaded."""
        seen = self._seen.get(kind)
        if not seen:
            return estimated_bytes
        alike = self._like(kind, estimated_bytes, _ALIKE)
        if alike:
            return int(_HEADROOM * max(one.peak_bytes for one in alike))
        on_top = max(one.peak_bytes - one.estimated_bytes for one in seen)
        return estimated_bytes + max(0, on_top)

    def _like(self, kind: str, estimated_bytes: int, factor: float) -> list[_Seen]:
        return [
            one
            for one in self._seen.get(kind, ())
            if estimated_bytes < factor * one.estimated_bytes
            and one.estimated_bytes < factor * estimated_bytes
        ]
