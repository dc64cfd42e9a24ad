"""Which unloaded models are about to be called, as far as their calls so far tell.

Only of a model whose gaps between calls are alike is the next call known well enough to load for
it. It is loaded a little before: twice the time that a load takes, and a sixteenth of the gap, up
to five seconds. A model that was prefetched twice in vain is not guessed at again until somebody
called for it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from penstock.core.residency.model import State, TargetModel

_LOADS_AHEAD = 2.0
_GAP_AHEAD = 1 / 16
_AHEAD_S_MAX = 5.0
_MISGUESSES_MAX = 2


class Foresight:
    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._of: dict[str, TargetModel] = {}  #: those foreseen

    def loaded(self, model: TargetModel) -> None:
        self._forget(model)
        guessed = model.prefetched and not model.parked
        model.guessed_hits = model.hits if guessed else None

    def unloaded(self, model: TargetModel, *, now: float) -> None:
        """Foresees its next call, if it can be told, and is not so near that it never should go."""
        if model.guessed_hits is not None:
            in_vain = model.hits == model.guessed_hits
            model.misguesses = model.misguesses + 1 if in_vain else 0
            model.guessed_hits = None
        called_at = model.history.next_at()
        if called_at is None or model.dismissed or model.misguesses >= _MISGUESSES_MAX:
            return
        ahead_s = min(_GAP_AHEAD * model.history.period_s, _AHEAD_S_MAX)
        at = called_at - _LOADS_AHEAD * model.reload_s - ahead_s
        if at > now:
            self._forget(model)
            model.foreseen_at = at
            self._of[model.name] = model
            heappush(self._heap, (at, model.name))
            if len(self._heap) > 2 * len(self._of) + 64:
                self._heap = [entry for entry in self._heap if self._is_current(entry)]
                heapify(self._heap)

    def due(self, *, now: float) -> list[TargetModel]:
        """The models to load now; they are not foreseen any more."""
        found = []
        while self._heap and now >= self._heap[0][0]:
            entry = heappop(self._heap)
            if not self._is_current(entry):
                continue
            model = self._of[entry[1]]
            self._forget(model)
            if model.state is State.UNLOADED and not model.dismissed and now >= model.failed_until:
                found.append(model)
        return found

    def next_at(self) -> float:
        """When `due` is to be asked; inf: nothing is foreseen."""
        while self._heap and not self._is_current(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def _is_current(self, entry: tuple[float, str]) -> bool:
        model = self._of.get(entry[1])
        return model is not None and model.foreseen_at == entry[0]

    def _forget(self, model: TargetModel) -> None:
        model.foreseen_at = None
        self._of.pop(model.name, None)
