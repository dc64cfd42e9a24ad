"""The target models of one variant: their hosts' reports, since the start and by window.

The number of series is limited: the most called models have series of their own, all others one
together (`OTHERS`). A delta is added to the series that its model has at that moment, so that no
counter ever decreases; a model that loses its own series takes its counter along. No clock, no
store, no metric names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from penstock.core.models.most_called import MostCalled
from penstock.metrics.models.model_delta import OTHERS, ModelDelta

#: With eight series each, this is a small part of what the metric store holds.
SERIES_MODELS_MAX: Final = 50
#: Length of a window in s, as for all metrics of a variant.
WINDOW_S: Final = 10


class Resident(NamedTuple):
    """One model on one host."""

    host_bytes: int
    accelerator_bytes: int

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Resident | None:
        """As a host reports it with a delta; None: the model is not loaded there."""
        if not fields.get("resident"):
            return None
        return cls(int(fields.get("host_bytes", 0)), int(fields.get("accelerator_bytes", 0)))


class VariantModels:
    """The target models of one variant.

    Attributes:
        total: the counts of all models since the start.
        shown: model with series of its own, or OTHERS -> its counts since it has them.
        resident: (instance, model) -> what it takes there.
        windows: start -> model or OTHERS -> its counts, not yet published.
    """

    __slots__ = ("_places", "resident", "shown", "total", "windows")

    def __init__(self) -> None:
        self.total = ModelDelta()
        self.shown: dict[str, ModelDelta] = {}
        self.resident: dict[tuple[str, str], Resident] = {}
        self.windows: dict[int, dict[str, ModelDelta]] = {}
        self._places = MostCalled(SERIES_MODELS_MAX)

    def add(
        self,
        instance_id: str,
        deltas: Mapping[str, ModelDelta],
        taken: Mapping[str, Resident | None],
        now: float,
    ) -> None:
        """Adds the report of an instance's host at wall second `now`."""
        window = self.windows.setdefault(int(now) // WINDOW_S * WINDOW_S, {})
        for model, delta in deltas.items():
            resident = taken[model]
            if resident is not None:
                self.resident[instance_id, model] = resident
            else:
                self.resident.pop((instance_id, model), None)
            gone = self._places.called(model, _weight(delta), now=now)
            if gone is not None:
                self.shown.pop(gone, None)
            shown = self.shown_as(model)
            self.total.add(delta)
            _of(self.shown, shown).add(delta)
            _of(window, shown).add(delta)

    def shown_as(self, model: str) -> str:
        """The model itself if it has series of its own, else OTHERS."""
        return model if self._places.has_place(model) else OTHERS

    def take_due(self, before: float) -> list[tuple[int, dict[str, ModelDelta]]]:
        """Removes and returns the windows that ended at or before wall second `before`."""
        due = sorted(start for start in self.windows if before >= start + WINDOW_S)
        return [(start, self.windows.pop(start)) for start in due]

    def loaded(self) -> dict[str, int]:
        """Model with series of its own, or OTHERS -> number of instances that have it loaded."""
        found: dict[str, int] = {}
        for _, model in self.resident:
            shown = self.shown_as(model)
            found[shown] = found.get(shown, 0) + 1
        return found

    def resident_bytes(self) -> dict[str, Resident]:
        """Model with series of its own, or OTHERS -> what it takes on all instances together."""
        found: dict[str, Resident] = {}
        for (_, model), taken in self.resident.items():
            shown = self.shown_as(model)
            before = found.get(shown, Resident(0, 0))
            found[shown] = Resident(
                before.host_bytes + taken.host_bytes,
                before.accelerator_bytes + taken.accelerator_bytes,
            )
        return found

    def keep_instances(self, instance_ids: Collection[str]) -> None:
        """Says which instances exist; what was loaded on others is gone."""
        for key in [key for key in self.resident if key[0] not in instance_ids]:
            del self.resident[key]


def _weight(delta: ModelDelta) -> int:
    """Its weight among the most called models. A model counts from its first call, before it is
    loaded, because it has the wait of that call. A name for which no model exists does not
    count."""
    if delta.loads_failed and not delta.answered:
        return 0
    return delta.calls + delta.loads


def _of(deltas: dict[str, ModelDelta], model: str) -> ModelDelta:
    found = deltas.get(model)
    if found is None:
        found = deltas[model] = ModelDelta()
    return found
