"""Which loaded models may go at this moment, and which of them do.

Only a model that is idle and not pinned may. Two rules keep a model from being evicted and loaded
again at once, whatever the policy says:

* A model stays for its minimum residency (`youth.py`). Who needs its place waits until that is
  over; only if it would be too late for a parked request's deadline the model goes all the same (a
  request that can be answered is not failed for the sake of a cache), and then the dearest last.
* A model that was called a moment ago goes only if others are not enough.

What is missing may be more than all models together are known to have taken: runs and loads leave
memory behind that nobody is charged with. Then waiting for more of them to be idle is in vain. One
goes, the rest is measured again, and so on: either it was enough, or nobody is left and the load is
refused at once, instead of when its callers' time is up.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import inf

from penstock.core.residency import actions as why
from penstock.core.residency.contest import candidate
from penstock.core.residency.model import State, TargetModel
from penstock.core.residency.spec import LRU, NOTHING, Footprint, ResidencySpec
from penstock.core.residency.table import Table
from penstock.core.residency.victims import (
    EvictionCandidate,
    Shortage,
    by_last_use,
    by_value,
    spared,
)
from penstock.core.residency.youth import stays_s, stays_until

#: Loaded models looked at for one decision, half of them the longest unused; by LRU mostly fewer.
_LOOKED_AT = 128
_LOOKED_AT_FIRST = 8
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
        self, shortage: Shortage, *, now: float, due: float, asked: bool = True
    ) -> tuple[list[EvictionCandidate], float]:
        """Who goes, and else when to ask again.

        Args:
            shortage: what is missing.
            now: seconds.
            due: the load must begin until then; inf: whenever.
            asked: somebody waits for it or wishes it; it is no guess.

        Returns:
            The victims, none if those that may go are not enough; and the moment at which more may
            go by themselves, inf if there is none.
        """
        enough, ends = self._enough(shortage, now=now)
        if enough:
            return self._chosen(shortage, now=now, young=False) or [], inf
        if asked and not self._could_be_met(shortage):
            return self._cheapest(shortage, now=now), inf
        if ends <= due:
            return [], ends
        return self._chosen(shortage, now=now, young=True) or [], inf

    def all_that_help(self, shortage: Shortage, *, now: float) -> list[EvictionCandidate]:
        """Of memory that is exceeded already: enough of them, or all that may go."""
        found = self._chosen(shortage, now=now, young=True)
        if found is not None:
            return found
        return [one for one in self._candidates(now, young=True) if shortage.share(one.size)]

    def candidate(self, model: TargetModel, *, now: float) -> EvictionCandidate:
        """The model as the policy followed now sees it."""
        if self.by_value:
            return candidate(model, now, self._table.population)
        last = model.history.last
        unused_s = now - (model.loaded_at if last is None else last)
        loss = model.reload_s / max(unused_s, 1e-3)
        return EvictionCandidate(model.name, model.size or NOTHING, loss, last or 0.0)

    @property
    def by_value(self) -> bool:
        """Whether value is followed now, not LRU."""
        return self._spec.policy != LRU and self._table.contest.by_value

    def _chosen(
        self, shortage: Shortage, *, now: float, young: bool
    ) -> list[EvictionCandidate] | None:
        """The cheapest of a bounded number of models, and of all only where those won't do."""
        if not self.by_value:
            first = self._pick(
                list(self._candidates(now, young=young, limit=_LOOKED_AT_FIRST)), shortage
            )
            if first is not None and len(first) == 1:
                return first
        few = self._pick(list(self._candidates(now, young=young, limit=_LOOKED_AT)), shortage)
        if few is not None or len(self._table.recency) <= _LOOKED_AT:
            return few
        return self._pick(list(self._candidates(now, young=young)), shortage)

    def _pick(
        self, candidates: list[EvictionCandidate], shortage: Shortage
    ) -> list[EvictionCandidate] | None:
        if self._spec.policy == LRU:
            return by_last_use(candidates, shortage)
        if self.by_value:
            return by_value(candidates, shortage)
        return spared(candidates, shortage)

    def _candidates(
        self, now: float, *, young: bool, limit: int = 0
    ) -> Iterable[EvictionCandidate]:
        """Longest unused first; those loaded a moment ago, where they may go at all, last."""
        late = []
        for model in self._looked_at(limit):
            if not may_go(model):
                continue
            one = self.candidate(model, now=now)
            if now < stays_until(self._spec, model):
                if young:
                    late.append(one._replace(loss=one.loss * _YOUNG_DEARER))
            elif now < one.last + stays_s(self._spec, model):
                yield one._replace(loss=one.loss * _USED_DEARER)
            else:
                yield one
        yield from late

    def _looked_at(self, limit: int) -> Iterable[TargetModel]:
        recency = self._table.recency
        if not limit or len(recency) <= limit:
            return list(recency.values())
        if not self.by_value:
            return list(islice(recency.values(), limit))
        loaded, half = list(recency.values()), limit // 2
        others = loaded[half:]
        start = self._hand % len(others)
        self._hand = start + half
        return loaded[:half] + (others + others[:half])[start : start + half]

    def _enough(self, shortage: Shortage, *, now: float) -> tuple[bool, float]:
        """Whether those who may go now are enough; and when those too young will be, else inf."""
        host, accelerator = shortage.memory.host_bytes, shortage.memory.accelerator_bytes
        models = shortage.models
        young: list[tuple[float, Footprint]] = []
        for model in self._table.recency.values():
            if not may_go(model):
                continue
            size = model.size or NOTHING
            end = stays_until(self._spec, model)
            if now < end:
                young.append((end, size))
                continue
            host -= size.host_bytes
            accelerator -= size.accelerator_bytes
            models -= 1
            if host <= 0 and accelerator <= 0 and models <= 0:
                return True, inf
        young.sort(key=lambda one: one[0])
        for end, size in young:
            host -= size.host_bytes
            accelerator -= size.accelerator_bytes
            models -= 1
            if host <= 0 and accelerator <= 0 and models <= 0:
                return False, end
        return False, inf

    def _could_be_met(self, shortage: Shortage) -> bool:
        """Whether all models that are not pinned are enough, once they are idle."""
        loaded = [one for one in self._table.recency.values() if not one.pinned]
        memory = sum((one.size or NOTHING for one in loaded), NOTHING)
        return shortage.memory.within(memory) and len(loaded) >= shortage.models

    def _cheapest(self, shortage: Shortage, *, now: float) -> list[EvictionCandidate]:
        """The one that goes first of those that may; none where there is none."""
        found = [one for one in self._candidates(now, young=True) if shortage.share(one.size)]
        if self._spec.policy != LRU and self.by_value:
            found.sort(key=lambda one: (one.loss / shortage.share(one.size), one.last, one.name))
        return found[:1]


def may_go(model: TargetModel) -> bool:
    """Nobody is answered by it, and nobody pinned it."""
    return model.state is State.LOADED and not (model.busy or model.pinned or model.drains)
