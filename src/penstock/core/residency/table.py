"""The models that a host knows: which are loaded, which are waited for, and which to forget."""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from penstock.core.residency.contest import Contest
from penstock.core.residency.history import Population
from penstock.core.residency.model import ON_ITS_WAY, State, TargetModel

#: Models remembered; beyond it those that were not called for longest are forgotten.
KNOWN_MAX = 4096


class Table:
    def __init__(self, *, models_max: int) -> None:
        self.models: dict[str, TargetModel] = {}
        self.ready: set[str] = set()  #: loaded, and taking requests
        self.recency: OrderedDict[str, TargetModel] = OrderedDict()  #: loaded, longest unused first
        self.waiting: dict[str, TargetModel] = {}  #: with parked requests
        self.population = Population()
        self.contest = Contest(self.population, models_max)

    def of(self, name: str) -> TargetModel:
        """The model's record; a new one for a name that was never heard."""
        model = self.models.get(name)
        if model is None:
            if len(self.models) >= KNOWN_MAX:
                self._forget()
            model = self.models[name] = TargetModel(name)
        return model

    def called(self, model: TargetModel, *, now: float) -> None:
        """A request for the model came, wherever it goes."""
        model.history.called(now, self.population)
        self.contest.called(model, now=now, joins=model.state in ON_ITS_WAY)

    def _forget(self) -> None:
        """Drops an eighth at once, so that it costs little per name."""
        idle = [
            model
            for model in self.models.values()
            if model.state is State.UNLOADED and not model.pinned
        ]
        idle.sort(key=lambda model: (_last(model), model.name))
        for model in idle[: KNOWN_MAX // 8]:
            del self.models[model.name]
            self.contest.forget(model.name)


def _last(model: TargetModel) -> float:
    return -inf if model.history.last is None else model.history.last
