"""The target models that a host knows, each in its state; and which of them to forget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from math import inf

from penstock.core.residency.model import IN_QUEUE, RESIDENT, State, TargetModel

#: Number of models remembered; above it, those not called for longest are forgotten.
KNOWN_MAX = 4096


class Table:
    """Find a model here by name; call `move` to change its state."""

    def __init__(self) -> None:
        self.models: dict[str, TargetModel] = {}
        self.queue: dict[str, TargetModel] = {}  #: models that wait for their loads to begin
        self.loading: dict[str, TargetModel] = {}
        #: loaded models, draining ones included; longest unused first
        self.resident: OrderedDict[str, TargetModel] = OrderedDict()
        self.waiting: dict[str, TargetModel] = {}  #: models with parked requests

    def of(self, name: str) -> TargetModel:
        """The model's record; a new one for an unknown name."""
        model = self.models.get(name)
        if model is None:
            if len(self.models) >= KNOWN_MAX:
                self._forget()
            model = self.models[name] = TargetModel(name)
        return model

    def is_loaded(self, name: str) -> bool:
        """Whether requests may go to it."""
        model = self.resident.get(name)
        return model is not None and model.state is State.LOADED

    def in_state(self, *states: State) -> Iterable[TargetModel]:
        return (model for model in self.models.values() if model.state in states)

    def move(self, model: TargetModel, to: State, *, now: float, reason: str = "") -> None:
        """Raises ValueError where `to` can't follow. `reason`: why it is loaded, drains, leaves."""
        model.enter(to, now=now, reason=reason)
        for index, states in (
            (self.queue, IN_QUEUE),
            (self.loading, frozenset({State.LOADING})),
            (self.resident, RESIDENT),
        ):
            if to in states:
                index.setdefault(model.name, model)
            else:
                index.pop(model.name, None)

    def used(self, model: TargetModel) -> None:
        """It is now the most recently used model."""
        if model.name in self.resident:
            self.resident.move_to_end(model.name)

    def park(self, model: TargetModel, deadline: float | None) -> None:
        model.park(deadline)
        self.waiting[model.name] = model

    def look_waiting(self, model: TargetModel) -> None:
        """Updates the table after some of its parked requests are gone."""
        if not model.parked:
            self.waiting.pop(model.name, None)

    def _forget(self) -> None:
        """Drops an eighth at once, so that the cost per name is low."""
        idle = [model for model in self.in_state(State.UNLOADED) if not model.pinned]
        idle.sort(key=lambda model: (_called_at(model), model.name))
        for model in idle[: KNOWN_MAX // 8]:
            del self.models[model.name]


def _called_at(model: TargetModel) -> float:
    return -inf if model.called_at is None else model.called_at
