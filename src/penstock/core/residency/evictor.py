"""Which loaded models may go at this moment, and which of them do.

Only a model that is idle and not pinned may. Two rules keep a model from being evicted and loaded
again at once, whatever the policy says:

* A model that was loaded less than `residency_s_min` ago stays. Who needs its place waits until it
  is old enough; only if that would be too late for a parked request's deadline it goes all the same
  (a request that can be answered is not failed for the sake of a cache), and then the dearest last.
* A model that was called less than `residency_s_min` ago goes only if others are not enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from penstock.core.residency import actions as why
from penstock.core.residency.contest import candidate
from penstock.core.residency.model import State, TargetModel
from penstock.core.residency.spec import LRU, NOTHING, ResidencySpec
from penstock.core.residency.table import Table
from penstock.core.residency.victims import Candidate, Shortage, by_last_use, by_value, spared

#: Loaded models looked at for one decision; half of them the longest unused.
_LOOKED_AT = 256
#: How much dearer it is to evict what was called, and what was loaded, a moment ago.
_USED_DEARER = 1e3
_YOUNG_DEARER = 1e6


class Evictor:
    def __init__(self, spec: ResidencySpec, table: Table) -> None:
        self._spec = spec
        self._table = table
        self._hand = 0

    @property
    def reason(self) -> str:
        """Of the victims chosen now."""
        return why.LOWEST_VALUE if self.by_value else why.LEAST_RECENTLY_USED

    def victims(
        self, shortage: Shortage, *, now: float, due: float
    ) -> tuple[list[Candidate], float]:
        """Who goes, and else when to ask again.

        Args:
            shortage: what is missing.
            now: seconds.
            due: the load must begin until then; inf: whenever.

        Returns:
            The victims, none if those that may go are not enough; and the moment at which more may
            go by themselves, inf if there is none.
        """
        found = self._chosen(shortage, now=now, young=False)
        if found:
            return found, inf
        ends = self._old_enough_at(shortage, now=now)
        if ends <= due:
            return [], ends
        return self._chosen(shortage, now=now, young=True) or [], inf

    def all_that_help(self, shortage: Shortage, *, now: float) -> list[Candidate]:
        """Of memory that is exceeded already: enough of them, or all that may go."""
        found = self._chosen(shortage, now=now, young=True)
        if found is not None:
            return found
        return [one for one in self._candidates(now, young=True) if shortage.share(one.size)]

    def candidate(self, model: TargetModel, *, now: float) -> Candidate:
        """The model as the policy followed now sees it."""
        if self.by_value:
            return candidate(model, now, self._table.population)
        last = model.history.last
        unused_s = now - (model.loaded_at if last is None else last)
        loss = model.reload_s / max(unused_s, 1e-3)
        return Candidate(model.name, model.size or NOTHING, loss, last or 0.0)

    @property
    def by_value(self) -> bool:
        """Whether value is followed now, not LRU."""
        return self._spec.policy != LRU and self._table.contest.by_value

    def _chosen(self, shortage: Shortage, *, now: float, young: bool) -> list[Candidate] | None:
        few = list(self._candidates(now, young=young, limit=_LOOKED_AT))
        found = self._pick(few, shortage)
        if found is None and len(self._table.recency) > len(few):
            found = self._pick(list(self._candidates(now, young=young)), shortage)
        return found

    def _pick(self, candidates: list[Candidate], shortage: Shortage) -> list[Candidate] | None:
        if self._spec.policy == LRU:
            return by_last_use(candidates, shortage)
        if self.by_value:
            return by_value(candidates, shortage)
        return spared(candidates, shortage)

    def _candidates(self, now: float, *, young: bool, limit: int = 0) -> Iterable[Candidate]:
        """Longest unused first; those loaded a moment ago, where they may go at all, last."""
        residency_s_min = self._spec.residency_s_min
        late = []
        for model in self._looked_at(limit):
            if not may_go(model):
                continue
            one = self.candidate(model, now=now)
            if now < model.loaded_at + residency_s_min:
                if young:
                    late.append(one._replace(loss=one.loss * _YOUNG_DEARER))
            elif now < one.last + residency_s_min:
                yield one._replace(loss=one.loss * _USED_DEARER)
            else:
                yield one
        yield from late

    def _looked_at(self, limit: int) -> Iterable[TargetModel]:
        loaded = list(self._table.recency.values())
        if not limit or len(loaded) <= limit:
            return loaded
        if not self.by_value:
            return loaded[:limit]
        half = limit // 2
        others = loaded[half:]
        start = self._hand % len(others)
        self._hand = start + half
        return loaded[:half] + (others + others[:half])[start : start + half]

    def _old_enough_at(self, shortage: Shortage, *, now: float) -> float:
        """When enough of those loaded a moment ago may go; inf: that would not be enough."""
        residency_s_min = self._spec.residency_s_min
        loaded = [model for model in self._table.recency.values() if may_go(model)]
        loaded.sort(key=lambda model: (model.loaded_at, model.name))
        host, accelerator = shortage.memory.host_bytes, shortage.memory.accelerator_bytes
        for count, model in enumerate(loaded, start=1):
            size = model.size or NOTHING
            host, accelerator = host - size.host_bytes, accelerator - size.accelerator_bytes
            end = model.loaded_at + residency_s_min
            if now < end and host <= 0 and accelerator <= 0 and count >= shortage.models:
                return end
        return inf


def may_go(model: TargetModel) -> bool:
    """Nobody is answered by it, and nobody pinned it."""
    return model.state is State.LOADED and not (model.busy or model.pinned or model.drains)
