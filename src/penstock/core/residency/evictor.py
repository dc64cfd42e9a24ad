"""Which loaded models are evicted for another one: the longest unused, until there is enough room.

Only a model that is idle and not pinned is evicted. Of the models that would be enough together,
those that turn out not to be needed stay, the one used last first. So a load does not evict thirty
small models where the large one behind them must go anyway, nor a model that holds accelerator
memory where host memory is short.

After its load a model stays for its *minimum residency*; otherwise two models that need the same
place would evict each other for ever. A load that needs its place waits until that time is over.
If this would be too late for a parked request's deadline, the model is evicted earlier: a request
that can be answered does not fail for the sake of a cache.

More may be missing than all models together are known to have taken: runs and loads leave memory
behind that is charged to no model. Then waiting for more of them to be idle does not help. One
model is evicted once its minimum residency is over, memory is measured again, and so on: in the end
there is enough room, or no model is left and the load is refused, not only when its callers' time
is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from typing import Final, NamedTuple

from penstock.core.residency.model import Table, TargetModel
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec

#: Default minimum residency, in times of a reload: then loads take at most a fourth of the time in
#: which a model takes memory.
_RELOADS: Final = 3.0
#: s at least, however fast it loads: callers of the same moment find it.
_S_MIN: Final = 0.5
#: s at most, however long its load takes: others wait for its place.
_S_MAX: Final = 10.0


class Shortage(NamedTuple):
    """What is missing: host memory, accelerator memory, and places for models."""

    memory: Footprint
    models: int

    @property
    def is_any(self) -> bool:
        return self.models > 0 or self.memory != NOTHING

    def helped_by(self, size: Footprint) -> bool:
        """Whether unloading a model of this size frees anything of it."""
        return bool(
            self.models > 0
            or (self.memory.host_bytes and size.host_bytes)
            or (self.memory.accelerator_bytes and size.accelerator_bytes)
        )

    def without(self, size: Footprint) -> Shortage:
        """What is still missing after a model of this size was unloaded."""
        return Shortage((self.memory - size).at_least(NOTHING), max(0, self.models - 1))


class Evictor:
    def __init__(self, spec: ResidencySpec, table: Table) -> None:
        self._spec = spec
        self._table = table

    def stays_until(self, model: TargetModel) -> float:
        """The end of a loaded model's minimum residency."""
        seconds = self._spec.residency_s_min
        if seconds is None:
            seconds = min(max(_RELOADS * model.reload_s, _S_MIN), _S_MAX)
        return model.loaded_at + seconds

    def victims(
        self, shortage: Shortage, *, now: float, due: float, asked: bool = True
    ) -> tuple[list[TargetModel], float]:
        """Which models to evict, or when to ask again.

        Args:
            shortage: what is missing.
            now: seconds.
            due: the load must begin by then; inf: at any time.
            asked: somebody waits for it or requested the load.

        Returns:
            The victims, empty if the models that may be evicted are not enough; and the moment at
                which more may be evicted without any input, inf if there is none.
        """
        found = _enough(self._stayed(now), shortage)
        if found is not None:
            return found, inf
        if asked and not self._could_be_met(shortage):
            return self._first_that_helps(shortage, now, due)
        ends_at = self._enough_at(shortage, now)
        if ends_at <= due:
            return [], ends_at
        return _enough(self._all(now), shortage) or [], inf

    def all_that_help(self, shortage: Shortage, *, now: float) -> list[TargetModel]:
        """For a budget that is exceeded already: enough models, or all that may be evicted."""
        found = _enough(self._all(now), shortage)
        if found is not None:
            return found
        return [one for one in self._all(now) if shortage.helped_by(_size(one))]

    def first_to_go(self, *, now: float, besides: TargetModel) -> Iterator[TargetModel]:
        """All models that may be evicted, except `besides`."""
        return (one for one in self._all(now) if one is not besides)

    def _idle(self) -> Iterable[TargetModel]:
        return (one for one in self._table.resident.values() if one.may_go)

    def _stayed(self, now: float) -> Iterable[TargetModel]:
        """Idle models whose minimum residency is over, longest unused first."""
        return (one for one in self._idle() if now >= self.stays_until(one))

    def _all(self, now: float) -> Iterable[TargetModel]:
        """All idle models: those whose minimum residency is over come first."""
        others = (one for one in self._idle() if now < self.stays_until(one))
        return chain(self._stayed(now), others)

    def _enough_at(self, shortage: Shortage, now: float) -> float:
        """When enough models will have passed their minimum residency; inf: never."""
        for one in self._stayed(now):
            shortage = shortage.without(_size(one))
        rest = [one for one in self._idle() if now < self.stays_until(one)]
        for one in sorted(rest, key=self.stays_until):
            shortage = shortage.without(_size(one))
            if not shortage.is_any:
                return self.stays_until(one)
        return inf

    def _first_that_helps(
        self, shortage: Shortage, now: float, due: float
    ) -> tuple[list[TargetModel], float]:
        """As `victims`, of one model, for what is missing beyond all models."""
        helps = [one for one in self._all(now) if shortage.helped_by(_size(one))]
        ends_at = min((self.stays_until(one) for one in helps), default=inf)
        if now < ends_at <= due:
            return [], ends_at
        return helps[:1], inf

    def _could_be_met(self, shortage: Shortage) -> bool:
        """Whether all models that are not pinned are enough, once they are idle."""
        loaded = [one for one in self._table.resident.values() if not one.pinned]
        memory = sum((_size(one) for one in loaded), NOTHING)
        return shortage.memory.within(memory) and len(loaded) >= shortage.models


def _enough(oldest_first: Iterable[TargetModel], shortage: Shortage) -> list[TargetModel] | None:
    """Models to evict, in this order; None where all of them are not enough."""
    victims = []
    left = shortage
    for model in oldest_first:
        victims.append(model)
        left = left.without(_size(model))
        if not left.is_any:
            return _needed(victims, shortage)
    return None


def _needed(victims: Sequence[TargetModel], shortage: Shortage) -> list[TargetModel]:
    """Leaves out models that the others make needless, the one used last first."""
    freed = sum((_size(model) for model in victims), NOTHING)
    more, count = freed - shortage.memory, len(victims) - shortage.models
    stays = set()
    for model in reversed(victims):
        if count > 0 and _size(model).within(more):
            more, count = more - _size(model), count - 1
            stays.add(model.name)
    return [model for model in victims if model.name not in stays]


def _size(model: TargetModel) -> Footprint:
    return model.size or NOTHING
