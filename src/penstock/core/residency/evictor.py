"""Which loaded models go, so that another may come: the longest unused, until they are enough.

Only a model that is idle and not pinned goes. Of those that would be enough together, whoever turns
out not to be needed stays, the one used last first: a load does not evict thirty small models where
the large one behind them has to go anyway, nor one that holds an accelerator's memory where the
host's is short.

A model stays for its *minimum residency* once it is loaded, else two that need one place would
evict each other for ever. Who needs its place waits until that is over. Only if it would be too
late for a parked request's deadline the model goes all the same: a request that can be answered is
not failed for the sake of a cache.

What is missing may be more than all models together are known to have taken: runs and loads leave
memory behind that nobody is charged with. Then waiting for more of them to be idle is in vain. One
goes, the rest is measured again, and so on: either it was enough, or nobody is left and the load is
refused at once, instead of when its callers' time is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from typing import Final, NamedTuple

from penstock.core.residency.model import TargetModel
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec
from penstock.core.residency.table import Table

#: Unless the settings say how long: three times what having it back costs, so that at most a fourth
#: of the time in which it takes memory is its load.
_RELOADS: Final = 3.0
#: However soon it is back: callers of one moment find it.
_S_MIN: Final = 0.5
#: However long its load takes: others wait for its place.
_S_MAX: Final = 10.0


class Shortage(NamedTuple):
    """What is missing: memory in two dimensions, and places."""

    memory: Footprint
    models: int

    @property
    def is_any(self) -> bool:
        return self.models > 0 or self.memory != NOTHING

    def helped_by(self, size: Footprint) -> bool:
        """Whether the end of a model of this size brings anything of it."""
        return bool(
            self.models > 0
            or (self.memory.host_bytes and size.host_bytes)
            or (self.memory.accelerator_bytes and size.accelerator_bytes)
        )

    def without(self, size: Footprint) -> Shortage:
        """What is missing still when a model of this size has gone."""
        return Shortage((self.memory - size).at_least(NOTHING), max(0, self.models - 1))


class Evictor:
    def __init__(self, spec: ResidencySpec, table: Table) -> None:
        self._spec = spec
        self._table = table

    def stays_until(self, model: TargetModel) -> float:
        """The end of its minimum residency; it is loaded."""
        seconds = self._spec.residency_s_min
        if seconds is None:
            seconds = min(max(_RELOADS * model.reload_s, _S_MIN), _S_MAX)
        return model.loaded_at + seconds

    def victims(
        self, shortage: Shortage, *, now: float, due: float, asked: bool = True
    ) -> tuple[list[TargetModel], float]:
        """Who goes, and else when to ask again.

        Args:
            shortage: what is missing.
            now: seconds.
            due: the load must begin until then; inf: whenever.
            asked: somebody waits for it or wishes it.

        Returns:
            The victims, none if those that may go are not enough; and the moment at which more may
            go by themselves, inf if there is none.
        """
        found = _enough(self._stayed(now), shortage)
        if found is not None:
            return found, inf
        if asked and not self._could_be_met(shortage):
            return [one for one in self._all(now) if shortage.helped_by(_size(one))][:1], inf
        ends_at = self._enough_at(shortage, now)
        if ends_at <= due:
            return [], ends_at
        return _enough(self._all(now), shortage) or [], inf

    def all_that_help(self, shortage: Shortage, *, now: float) -> list[TargetModel]:
        """Of memory that is exceeded already: enough of them, or all that may go."""
        found = _enough(self._all(now), shortage)
        if found is not None:
            return found
        return [one for one in self._all(now) if shortage.helped_by(_size(one))]

    def first_to_go(self, *, now: float, besides: TargetModel) -> Iterator[TargetModel]:
        """All that may, but `besides`."""
        return (one for one in self._all(now) if one is not besides)

    def _idle(self) -> Iterable[TargetModel]:
        return (one for one in self._table.resident.values() if one.may_go)

    def _stayed(self, now: float) -> Iterable[TargetModel]:
        """Those whose minimum residency is over, longest unused first."""
        return (one for one in self._idle() if now >= self.stays_until(one))

    def _all(self, now: float) -> Iterable[TargetModel]:
        """The others behind them."""
        others = (one for one in self._idle() if now < self.stays_until(one))
        return chain(self._stayed(now), others)

    def _enough_at(self, shortage: Shortage, now: float) -> float:
        """When so many have stayed long enough that they are enough; inf: never."""
        for one in self._stayed(now):
            shortage = shortage.without(_size(one))
        rest = [one for one in self._idle() if now < self.stays_until(one)]
        for one in sorted(rest, key=self.stays_until):
            shortage = shortage.without(_size(one))
            if not shortage.is_any:
                return self.stays_until(one)
        return inf

    def _could_be_met(self, shortage: Shortage) -> bool:
        """Whether all models that are not pinned are enough, once they are idle."""
        loaded = [one for one in self._table.resident.values() if not one.pinned]
        memory = sum((_size(one) for one in loaded), NOTHING)
        return shortage.memory.within(memory) and len(loaded) >= shortage.models


def _enough(oldest_first: Iterable[TargetModel], shortage: Shortage) -> list[TargetModel] | None:
    """Those that go, in this order; None where all of them are not enough."""
    victims = []
    left = shortage
    for model in oldest_first:
        victims.append(model)
        left = left.without(_size(model))
        if not left.is_any:
            return _needed(victims, shortage)
    return None


def _needed(victims: Sequence[TargetModel], shortage: Shortage) -> list[TargetModel]:
    """Without those whose going the others make needless, the one used last first."""
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
